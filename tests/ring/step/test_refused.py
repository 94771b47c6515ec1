"""What is said of a step that XLA refuses: which layer it is, and what that costs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from horovod import tensorflow as hvd

from ringscope.ring.step import choose
from ringscope.ring.step.head import Head


def _model() -> Any:
    inputs = keras.Input((4,), dtype="int32")
    x = keras.layers.Hashing(9, name="sorted_in")(inputs)
    x = keras.layers.Embedding(9, 3, name="sorted")(x)
    return keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Flatten()(x)))


def test_the_layer_that_xla_has_no_kernel_for_is_named_with_its_price() -> None:
    model = _model()
    compiled = tf.function(lambda x: model(x, training=True), jit_compile=True, autograph=False)
    with pytest.raises(tf.errors.OpError) as refused:
        compiled(np.zeros((2, 4), np.int32))
    said = choose.price(Head(model), str(refused.value))
    assert "sorted_in (Hashing)" in said and choose.COST in said and "Embedding" not in said


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("functional_1/sorted_1/embedding_lookup", ["Embedding"]),
        ("functional_1/sorted_in_1_2/x", ["Hashing"]),
        ("functional_1/sorted_out/x", []),
        ("gradient_tape/x", []),
    ],
)
def test_a_name_is_a_layers_with_a_number_or_without(path: str, named: list[str]) -> None:
    layers = [layer for layer in _model()._flatten_layers() if layer.name.startswith("sorted")]
    assert [type(layer).__name__ for layer in choose._on(path, layers)] == named


def test_an_error_that_names_no_layer_has_no_price() -> None:
    assert choose.price(Head(_model()), "batches of two shapes") == ""


@pytest.mark.parametrize(
    ("met", "begins"),
    [
        (lambda why: [why, why], "training without XLA: a batch holds strings"),
        (lambda why: [why, "another reason"], "rank 0: training without XLA: a batch holds strings"),
        (lambda why: None, "rank 0: training without XLA: a batch holds strings"),
    ],
)
def test_rank_0_says_it_for_all_ranks_unless_they_differ(
    met: Any, begins: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Others:
        def meet(self, kind: str, why: str, limit_s: float) -> Any:
            return met(why)

    hvd.init()
    for rank in (0, 1):
        monkeypatch.setattr(choose.hvd, "rank", lambda rank=rank: rank)
        chooser = choose.Chooser(falls_back=True, model=_model(), others=Others())  # type: ignore[arg-type]
        chooser.run(lambda compiled: compiled, [tf.constant(["a"])])
        said = capsys.readouterr().err
        if rank and begins.startswith("training"):
            assert not said
        else:
            assert said.startswith(f"ring: {begins.replace('rank 0', f'rank {rank}')}")


def test_a_step_that_the_batch_s_numbers_compile_again_is_trained_without_xla_after_three_times(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a clock on which compiling takes 30 s, and running a millisecond: XLA compiles for each size that is new."""
    hvd.init()
    now_s, compiled_for = [0.0], set()
    monkeypatch.setattr(choose, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    chooser, made = choose.Chooser(falls_back=True), []
    chooser._sized_by_batch = "StridedSlice"
    table = tf.reshape(tf.range(800), (8, 100))

    def step(longest: Any) -> Any:
        return tf.reduce_sum(tf.sort(table[:, :longest], axis=1))

    steps = {compiled: tf.function(step, autograph=False, jit_compile=compiled) for compiled in (True, False)}

    def take(compiled: bool) -> Any:
        made.append(compiled)
        now_s[0] += 30.0 if compiled and size not in compiled_for else 0.001
        compiled_for.add(size)
        return steps[compiled](longest)

    for size in (50, 50, 50, *range(51, 57)):
        longest = tf.constant(size)
        assert int(chooser.run(take, [longest])) == int(step(longest))
    assert made == [True] * 6 + [False] * 3
    first, last = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ring:")]
    assert "ring: XLA compiles the step again for each batch, since StridedSlice takes a size or a place" in first
    assert "training without XLA" in last and "3 times" in last
