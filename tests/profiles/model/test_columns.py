"""Columns are made once while a recording is measured, and no longer: the timeline stays the caller's own."""

from __future__ import annotations

import pandas as pd

from benchmarks.tables import timeline
from benchmarks.training import Shape, answers
from profiles import measure
from profiles.model.columns import made_once
from profiles.model.tables import TABLES

SHAPE = Shape(steps=6, kernels=20, gpus=1, processes=1)


def test_a_timeline_that_is_changed_is_measured_as_it_is_now() -> None:
    made = timeline(SHAPE)
    before = measure(made).gpus[0].busy_ns["memset"]
    assert before == answers(SHAPE, 0).busy_ns["memset"]
    made.memsets["end_ns"] = made.memsets["end_ns"] - 1_000
    assert measure(made).gpus[0].busy_ns["memset"] == before - 1_000 * SHAPE.steps


def test_the_tables_hold_what_the_timeline_does_and_its_own_stay_plain() -> None:
    made = timeline(SHAPE)
    once = made_once(made)
    for name in TABLES:
        table, own = getattr(once, name), getattr(made, name)
        assert type(own) is pd.DataFrame and table.equals(own)
        for column in own:
            assert table[column] is table[column] and table[column].equals(own[column])
        assert type(table[:0]) is pd.DataFrame and type(table[list(own.columns)]) is pd.DataFrame
    assert made_once(once).kernels is once.kernels
