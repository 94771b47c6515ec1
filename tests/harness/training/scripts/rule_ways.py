"""As JSON: rule -> the samples of three steps of both ways; how many pictures the rule `cache` decodes; the samples of
the rules whose steps XLA compiles on a GPU, compiled here.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import tensorflow as tf

from harness.training.rules import feeding
from harness.training.rules.ways import _MODULES, Subject, ways
from profiles.rules import RULES

COMPILED = [rule for rule, module in _MODULES.items() if module == "computing"]


def decoded() -> dict[str, int]:
    """cached: in the first epoch and what follows of the second, which fill the cache; again: in two epochs without."""
    decode, trained = feeding.decode, feeding.trained
    seen: list[None] = []
    before: list[int] = []

    def counted(file: Any, label: Any) -> Any:
        with tf.control_dependencies([tf.py_function(lambda: seen.append(None), [], [])]):
            return decode(tf.identity(file), label)

    def noted(data: Any) -> Any:
        before.append(len(seen))
        return trained(data)

    feeding.decode, feeding.trained = counted, noted
    pair = ways("cache", Subject("mlp", 16, gpu=False))
    pair.against(16)
    feeding.decode, feeding.trained = decode, trained
    none, cached = before
    assert none == 0
    return {"cached": cached, "again": len(seen) - cached}


def main() -> None:
    told, out = {}, sys.stdout
    for rule in RULES:
        pair = ways(rule, Subject("mlp", 16, gpu=False))
        told[rule] = [pair.against(3), pair.advised(3)]
        sys.stdout = out  # `quiet` prints to a terminal of its own
    on_gpu = {rule: ways(rule, Subject("mlp", 16, gpu=True)) for rule in COMPILED}
    compiled = {rule: [pair.against(3), pair.advised(3)] for rule, pair in on_gpu.items()}
    print("\n" + json.dumps([told, decoded(), compiled]))


if __name__ == "__main__":  # `tf32` starts a process, which imports this file
    main()
