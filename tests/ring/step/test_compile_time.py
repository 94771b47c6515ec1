"""How long XLA is said to compile, beside what it took on a GPU."""

from __future__ import annotations

import json

import tensorflow as tf

from ringscope.ring.step import compile_time
from tests.harness.running import ROOT

MEASURED = ROOT / "docs" / "results" / "2026-11-30-2xh200-b" / "graphs.jsonl"


def test_models_took_as_long_as_is_said() -> None:
    rows = [json.loads(line) for line in MEASURED.read_text().splitlines()]
    long = [row for row in rows if row["compiling_s"] > 12]
    within = 0
    for row in long:
        low_s, high_s = compile_time.seconds(row["operations"], row["sizes_of_products"])
        within += low_s <= row["compiling_s"] <= high_s
    assert (within, len(long)) == (26, 28)  # as the guide says


def _said(rows: list[int]) -> str:
    """Of a step that multiplies matrices of so many rows by one of 8 x 8."""

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def step(table: tf.Tensor) -> tf.Tensor:
        return tf.add_n([tf.reduce_sum(tf.ones((count, 8)) @ table) for count in rows])

    return compile_time.expected(step.get_concrete_function(tf.TensorSpec((8, 8))).graph)


def test_products_of_one_size_count_once_and_what_is_soon_over_is_not_told_of() -> None:
    assert _said([5] * 60) == "" and _said([5, 6]) == ""
    assert _said(list(range(1, 61))) == ", of 20 to 70 s that a first start of its size takes on an H200"
