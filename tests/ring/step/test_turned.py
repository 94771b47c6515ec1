"""Gradients that lie otherwise than their weights, before the update."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")

from ringscope.ring.step import one_program  # noqa: E402


def test_they_wait_for_few_others_and_keep_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_program, "HELD", 300)
    random = np.random.default_rng(0)
    sizes = ((2, 2, 9), (5, 5), (3, 3, 3), (99,), (1, 5, 5))
    given = [random.normal(size=size).astype("float32") for size in sizes]

    @tf.function(autograph=False, jit_compile=True)
    def turned(given: Any) -> Any:
        return [each for each in one_program.turned([*given[:2], None, *given[2:]]) if each is not None]

    tensors = [tf.constant(each) for each in given]
    operations = turned.get_concrete_function(tensors).graph.get_operations()
    held = [len(each.inputs) for each in operations if each.type == "XlaOptimizationBarrier"]
    assert held == [2, 1]  # 36 and 27 numbers of 4 bytes, then 25 more
    for one, other in zip(turned(tensors), given, strict=True):
        np.testing.assert_array_equal(one, other)
