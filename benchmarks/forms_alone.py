"""Forms by themselves beside what they stand for: attention that drops scores, heads of float32, dropout of layers.

    python -m benchmarks.forms_alone attention heads dropout --out alone.jsonl
    python -m benchmarks.forms_alone attention heads dropout --tiny --out try.jsonl     # without a GPU

Each is compiled there and back in a program of its own; a line of JSON says how many ms it takes (the least of three
rounds), how far its results are from those in float32, and the most memory that was handed out.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TIMES = 20


def attention(tiny: bool) -> dict[str, tuple[Callable[..., Any], list[Any]]]:
    """A layer of GPT-2 medium, 8 x 1 024 tokens, and of BERT-base, 64 x 256 tokens with padding."""
    import tensorflow as tf

    from ringscope.ring.forms import attention as fused
    from ringscope.ring.forms import attention_dropout as ways

    seed = tf.constant([11, 3], tf.int64)
    made: dict[str, tuple[Callable[..., Any], list[Any]]] = {}
    for name, (batch, length, heads, causal) in {"gpt2": (8, 1024, 16, True), "bert": (64, 256, 12, False)}.items():
        batch, length = (2, 32) if tiny else (batch, length)
        given = [tf.cast(tf.random.stateless_normal((batch, length, heads, 64), (i, 0)), tf.bfloat16) for i in range(4)]
        mask = None if causal else tf.range(length)[None, None, None] < (3 * length) // 4
        how: dict[str, Any] = {"scale": 0.125, "causal": causal}

        def own(query: Any, key: Any, value: Any, causal: bool = causal, mask: Any = mask) -> Any:
            """As Keras computes it, with its dropout."""
            scores = tf.einsum("btnh,bsnh->bnts", query * 0.125, key)
            earlier = tf.linalg.band_part(tf.ones(scores.shape[2:], tf.bool), -1, 0)
            lets = earlier if causal else mask
            share = tf.nn.softmax(tf.where(lets, scores, tf.constant(-1e9, scores.dtype)))
            share = tf.nn.experimental.stateless_dropout(share, 0.1, seed=tf.cast(seed, tf.int32))
            return tf.einsum("bnts,bsnh->btnh", share, value)

        def of(way: Callable[..., Any], mask: Any = mask, how: Any = how) -> Callable[..., Any]:
            return lambda query, key, value: way(query, key, value, mask, seed, rate=0.1, **how)

        def flash(query: Any, key: Any, value: Any, mask: Any = mask, how: Any = how) -> Any:
            return fused.attention(query, key, value, mask, **how)

        made[f"{name} by_xla"] = of(ways.by_xla), given
        made[f"{name} keras"] = own, given
        if not tiny:
            made[f"{name} fused"] = of(ways.fused), given
            made[f"{name} flash without dropout"] = flash, given
    return made


def heads(tiny: bool) -> dict[str, tuple[Callable[..., Any], list[Any]]]:
    """8 192 tokens of 1 024 by GPT-2's and 16 384 of 768 by BERT's words: rows, a weight, and the logits' gradient."""
    import tensorflow as tf

    from ringscope.ring.forms import padded_products, wide

    def padded(multiplied: Callable[..., Any]) -> Callable[..., Any]:
        return lambda rows, matrix: padded_products._in_multiples(rows, matrix, multiplied)

    made: dict[str, tuple[Callable[..., Any], list[Any]]] = {}
    for name, (tokens, width, words) in {"gpt2": (8192, 1024, 50_304), "bert": (16_384, 768, 30_522)}.items():
        tokens, words = (64, words // 100) if tiny else (tokens, words)
        rows = tf.cast(tf.random.stateless_normal((tokens, width), (1, 0)), tf.bfloat16)
        matrix = tf.random.stateless_normal((width, words), (2, 0), stddev=0.05)
        upstream = tf.random.stateless_normal((tokens, words), (3, 0))

        def by_float32(rows: Any, matrix: Any, multiplied: Any = tf.matmul) -> Any:
            return multiplied(tf.cast(rows, tf.float32), matrix)

        def by_bfloat16(rows: Any, matrix: Any) -> Any:
            return padded(tf.matmul)(rows, tf.cast(matrix, tf.bfloat16))

        ways = {
            "float32": by_float32,
            "float32 padded": lambda rows, matrix: by_float32(rows, matrix, padded(tf.matmul)),
            "wide": padded(wide.product),
            "bfloat16": by_bfloat16,
        }
        for way, function in ways.items():
            made[f"{name} {way}"] = function, [rows, matrix, upstream]
    return made


def dropout(tiny: bool) -> dict[str, tuple[Callable[..., Any], list[Any]]]:
    """8 x 1 024 x 1 024 numbers, after a sum and before one, as after a block of GPT-2 medium."""
    import tensorflow as tf

    from ringscope.ring.forms import hashed

    shape = (2, 8, 64) if tiny else (8, 1024, 1024)
    seed = tf.constant([11, 3], tf.int64)
    x, rest, upstream = (tf.cast(tf.random.stateless_normal(shape, (i, 0)), tf.bfloat16) for i in range(3))

    def own(x: Any, rest: Any) -> Any:
        return rest + tf.nn.experimental.stateless_dropout(x, 0.1, seed=tf.cast(seed, tf.int32))

    def by_hash(x: Any, rest: Any) -> Any:
        return rest + hashed.of(x, 0.1, list(shape), seed)

    return {"keras": (own, [x, rest, upstream]), "hashed": (by_hash, [x, rest, upstream])}


def measured(function: Callable[..., Any], given: list[Any]) -> dict[str, Any]:
    """given: what the function takes, and the upstream gradient of what it gives."""
    import tensorflow as tf

    *operands, upstream = given

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def step(*operands: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(operands)
            out = function(*operands)
        if out.shape != upstream.shape:  # nothing goes back
            return [out]
        return [out, *tape.gradient(out, operands, tf.cast(upstream, out.dtype))]

    gpus = tf.config.list_physical_devices("GPU")
    began_s = time.perf_counter()
    results = step(*operands)
    float(tf.reduce_sum(tf.cast(results[0], tf.float32)))
    facts: dict[str, Any] = {"first_s": round(time.perf_counter() - began_s, 2)}
    if gpus:
        tf.config.experimental.reset_memory_stats("GPU:0")
    rounds_ms = []
    for _ in range(3):
        began_s = time.perf_counter()
        for _ in range(TIMES):
            last = step(*operands)
        float(tf.reshape(last[-1], [-1])[0])  # waits for the device
        rounds_ms.append((time.perf_counter() - began_s) / TIMES * 1e3)
    facts |= {"ms": round(min(rounds_ms), 4), "rounds_ms": [round(ms, 4) for ms in rounds_ms]}
    if gpus:
        facts["peak_gib"] = round(tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**30, 3)
    norms = [float(tf.norm(tf.cast(each, tf.float32))) for each in results]
    return facts | {"norms": norms, "finite": all(norm < float("inf") for norm in norms)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = {"attention": attention, "heads": heads, "dropout": dropout}
    parser.add_argument("what", nargs="+", choices=tuple(every))
    parser.add_argument("--tiny", action="store_true", help="small shapes, to try this file")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    from ringscope.ring import start

    start.set_up_compiler()
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    for what in options.what:
        for name, (function, given) in every[what](options.tiny).items():
            try:
                facts = measured(function, given)
            except tf.errors.OpError as error:
                facts = {"error": str(error)[:500]}
            line = json.dumps({"what": what, "name": name} | facts)
            with options.out.open("a") as out:
                out.write(line + "\n")
            print(line, flush=True)


if __name__ == "__main__":
    main()
