"""Rows that cannot be where a recording puts them are left out, counted and doubted, in every format; no other is."""

from __future__ import annotations

import gzip
import json
import lzma
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.tables import EPOCH_NS
from benchmarks.training import Shape
from benchmarks.write import WRITERS
from profiles import analyse, readers
from profiles.model import measures_json
from profiles.model.possible import AT_ZERO, DAY_NS, ENDS_EARLY, OUTSIDE, UNTIMED
from profiles.model.tables import COLUMNS
from profiles.model.timeline import Timeline, make

from ..made.build import Build
from ..recordings import DATA, SHARED

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MADE = SHARED / "third" / "made"

SHAPE = Shape(steps=4, kernels=20, gpus=1, processes=1)
# (start, end) of kernels that cannot be, from the first operation of the recording, None: the recording's own 0.
PLANTED: list[tuple[str, int | None, int | None]] = [
    (AT_ZERO, None, None),
    (AT_ZERO, None, None),
    (ENDS_EARLY, 900, 899),
    (OUTSIDE, -20 * DAY_NS, -20 * DAY_NS + 5),
    (OUTSIDE, 2 * DAY_NS, 2 * DAY_NS + 5),
    (OUTSIDE, 1000, 1000 + 2 * DAY_NS),
]


def in_sqlite(table: str, origin: int) -> Callable[[Path], None]:
    """Writes them as copies of the table's first row."""

    def plant(path: Path) -> None:
        with sqlite3.connect(path) as connection:
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            for number, (_, start, end) in enumerate(PLANTED):
                given = {"start": 0 if start is None else origin + start, "end": 0 if end is None else origin + end}
                given["_id_"] = 10**6 + number
                chosen = ", ".join(str(given[name]) if name in given else f'"{name}"' for name in names)
                connection.execute(f"INSERT INTO {table} SELECT {chosen} FROM {table} LIMIT 1")
        connection.close()

    return plant


def in_json(path: Path) -> None:
    text = path.read_text()
    kernel = next(event for event in json.loads(text)["traceEvents"] if event.get("cat") == "kernel")
    for _, start, end in PLANTED:
        ts = 0 if start is None else EPOCH_NS + start
        length = 0 if start is None or end is None else end - start
        told = {**kernel, "ts": f"{ts // 1000}.{ts % 1000:03d}", "dur": length / 1000}
        text = text.replace('"traceEvents":[', f'"traceEvents":[{json.dumps(told)},', 1)
    path.write_text(text)


def in_csv(path: Path) -> None:
    text = path.read_text().rstrip("\n")
    cells = next(line for line in reversed(text.splitlines()) if "128,1,1" in line).split(",", 2)[2]
    for _, start, end in PLANTED:
        length = 0 if start is None or end is None else end - start
        text += f"\n{(start or 0) / 1e6:.6f},{length / 1e3:.3f},{cells}"
    path.write_text(text + "\n")


PLANT: dict[str, Callable[[Path], None]] = {
    "nsys": in_sqlite("CUPTI_ACTIVITY_KIND_KERNEL", 0),
    "nvprof": in_sqlite("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", EPOCH_NS),
    "nvprof-csv": in_csv,
    "kineto": in_json,
}


@pytest.mark.parametrize("kind", PLANT)
def test_every_format_leaves_out_what_cannot_be_and_nothing_else(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "recording"
    WRITERS[kind](SHAPE, path, None)
    without = readers.read(path)
    PLANT[kind](path)
    found = readers.read(path)
    for table in COLUMNS:
        pd.testing.assert_frame_equal(getattr(found, table), getattr(without, table))
    assert found.recording == without.recording
    planted = [reason for reason, *_ in PLANTED]
    # nvprof's 0 is CUPTI's word for a time that could not be taken.
    planted = [UNTIMED if kind == "nvprof" and reason == AT_ZERO else reason for reason in planted]
    counts = {f"{reason}: kernels": count for reason, count in Counter(planted).items()}
    assert {key: value for key, value in found.left_out.items() if key not in without.left_out} == counts
    (doubt,) = [doubt for doubt in found.doubts if doubt not in without.doubts]
    assert doubt.code == "impossible-times" and str(len(PLANTED)) in doubt.text


def worked(made: Build, begin: int, kernels: int = 50, *, called: bool = True) -> None:
    """So many kernels of 2 us, each with its launch call, from then on."""
    for at in range(begin, begin + 10_000 * kernels, 10_000):
        made.kernel(at + 3000, at + 5000, **({"call": (at, at + 1000)} if called else {}))


def test_a_session_that_pauses_for_a_weekend_is_whole_and_its_ledger_sums() -> None:
    weekends = 60  # 120 days: sums of so many ns are beyond what a float holds exactly
    made = Build()
    worked(made, 0)
    worked(made, weekends * 2 * DAY_NS + 1)
    analysis = analyse([made.timeline()], window="capture", operations=True)
    (gpu,) = analysis.measures.gpus
    assert gpu.kernels.count == 100
    assert gpu.span_ns == weekends * 2 * DAY_NS + 1 + 49 * 10_000 + 2000
    assert sum(ns for ns in gpu.ledger_ns.values() if ns is not None) == gpu.span_ns > 1 << 53
    assert gpu.ledger_ns["compute"] == 200_000


def test_days_apart_counts_as_one_session_only_where_others_bear_it_out() -> None:
    def kept(*at: int, called: bool, many: int = 50) -> int:
        made = Build()
        worked(made, 0, many, called=called)
        for one in at:
            worked(made, one, 1, called=called)
        return len(made.timeline().kernels) - many

    assert kept(3 * DAY_NS, called=False) == 0  # alone
    assert kept(3 * DAY_NS, called=True) == 1  # with its launch call
    assert kept(*range(3 * DAY_NS, 3 * DAY_NS + 6000, 1000), called=False) == 6  # more than a tenth of the others
    assert kept(*range(3 * DAY_NS, 3 * DAY_NS + 4000, 1000), called=False) == 0
    assert kept(3 * DAY_NS, 3 * DAY_NS, called=False, many=2) == 0  # many at one wrong time bear nothing out
    assert kept(DAY_NS - 10**9, called=False) == 1  # no day apart


def test_ranges_of_the_host_may_reach_into_a_session_from_days_before() -> None:
    made = Build()
    worked(made, 0)
    made.mark("training", -5 * DAY_NS, 1000)
    made.mark("all of it", -5 * DAY_NS, 5 * DAY_NS)
    made.mark("another time", -5 * DAY_NS, -5 * DAY_NS + 7)
    made.mark("instant", 0, 0)
    assert made.timeline().marks["name"].astype(str).tolist() == ["training", "all of it", "instant"]


def test_operations_without_a_length_stay_and_are_no_gpus_work_by_themselves() -> None:
    made = Build()
    made.kernel(5, 5)
    timeline = made.timeline()
    assert len(timeline.kernels) == 1 and not timeline.doubts
    with pytest.raises(Exception, match="no GPU did anything"):
        analyse([timeline])


def test_what_starts_before_its_launch_call_is_left_out_and_the_rest_is_as_without_it() -> None:
    def measured(*early: int) -> str:
        made = Build()
        worked(made, 10**9, 100)
        for at in early:
            made.kernel(at, at + 2000, call=(10**9 + 500_000, 10**9 + 501_000))
        if not early:
            made.api("cudaLaunchKernel_v7000", 10**9 + 500_000, 10**9 + 501_000, correlation=101)
        measures = analyse([made.timeline()], operations=True).measures
        doubts = [doubt for doubt in measures.doubts if doubt.code == "impossible-times"]
        assert len(doubts) == bool(early)
        measures.doubts, measures.trust = [], None
        measures.gpus[0].launches = None  # without the kernel its call is one whose kernel was lost
        return measures_json.dumps(measures)

    assert measured(10**9 - 10**8) == measured()


@pytest.mark.parametrize("early_ns", [1000, 900_000])
def test_what_seems_to_start_a_little_before_its_call_stays(early_ns: int) -> None:
    made = Build()
    worked(made, 10**9, 100)
    made.kernel(10**9 + 2_000_000 - early_ns, 10**9 + 2_000_000, call=(10**9 + 2_000_000, 10**9 + 2_001_000))
    assert analyse([made.timeline()]).measures.gpus[0].kernels.count == 101


def test_any_times_make_a_timeline_whose_measures_sum() -> None:
    """Random rows of which a third is anywhere in 146 years."""
    rng = np.random.default_rng(7)
    for _ in range(30):
        made = Build()
        worked(made, 0, int(rng.integers(1, 20)))
        for _ in range(int(rng.integers(1, 10))):
            start, length = (int(one) for one in rng.integers(-(1 << 61), 1 << 61, 2))
            kind = rng.integers(4)
            if kind == 0:
                made.kernel(start, start + length)
            elif kind == 1:
                made.copy("h2d", start, start + length // (1 << 30), call=(start - 5, start))
            elif kind == 2:
                made.mark("step 3", start, start + length)
            else:
                made.kernel(int(rng.integers(0, 10**6)), length >> int(rng.integers(1, 50)))
        timeline = made.timeline()
        operations = timeline.kernels
        assert (operations["end_ns"] >= operations["start_ns"]).all()
        for gpu in analyse([timeline], operations=True).measures.gpus:
            assert sum(ns for ns in gpu.ledger_ns.values() if ns is not None) == gpu.span_ns


def test_rows_that_are_all_possible_are_the_tables_that_were_given() -> None:
    made = Build()
    worked(made, 0)
    one = made.timeline()
    again: Timeline = make(one.recording, {name: getattr(one, name) for name in COLUMNS if name != "devices"})
    pd.testing.assert_frame_equal(again.kernels, one.kernels)
    assert again.left_out == {}


@pytest.mark.skipif(not MADE.is_dir(), reason="no third set of recordings in ../shared")
def test_a_fifth_of_the_kernels_at_0_changes_no_cause_of_the_rest() -> None:
    zero, plain = (analyse(MADE / f"{name}.json.gz").measures for name in ("k_zero", "k_plain"))
    lost = {
        (event["args"]["correlation"])
        for event in json.loads(gzip.decompress((MADE / "k_zero.json.gz").read_bytes()))["traceEvents"]
        if event.get("cat") == "kernel" and not event["ts"]
    }
    told = json.loads(gzip.decompress((MADE / "k_plain.json.gz").read_bytes()))["traceEvents"]
    lost_ns = sum(1000 * e["dur"] for e in told if e.get("cat") == "kernel" and e["args"]["correlation"] in lost)
    (before,), (after,) = plain.gpus, zero.gpus
    assert len(lost) == 96 and after.ledger_ns["compute"] == (before.ledger_ns["compute"] or 0) - lost_ns
    assert after.ledger_ns["collective"] == before.ledger_ns["collective"]
    shares = [(gpu.ledger_ns["idle_launch"] or 0) / gpu.span_ns for gpu in (before, after)]
    assert 0.1 < shares[1] <= shares[0] < shares[1] + 0.01
    assert after.ledger_ns["idle_wait"] == before.ledger_ns["idle_wait"]
    assert (after.ledger_ns["idle_unknown"] or 0) >= lost_ns
    assert [one.code for one in zero.findings if one.code != "loss-not-judged"] == [one.code for one in plain.findings]
    assert "impossible-times" in {doubt.code for doubt in zero.doubts}


@pytest.mark.parametrize("name", ["dense41m-2gpu-pinned.rank0", "gru-1gpu.rank0"])
def test_operations_that_a_file_holds_twice_are_read_once(name: str, tmp_path: Path) -> None:
    once, twice = tmp_path / "a.sqlite", tmp_path / "b.sqlite"
    once.write_bytes(lzma.decompress((DATA / f"{name}.sqlite.xz").read_bytes()))
    shutil.copy(once, twice)
    tables = [f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET")]
    with closing(sqlite3.connect(twice)) as database, database:
        count = sum(database.execute(f"INSERT INTO {table} SELECT * FROM {table}").rowcount for table in tables)
    expected, found = analyse(once).measures, analyse(twice).measures
    (doubt,) = [one for one in found.doubts if one not in expected.doubts]
    assert doubt.code == "copy-left-out"
    assert sum(map(int, re.findall(r"\d+", doubt.text.replace(",", "")))) == count
    assert found.gpus == expected.gpus
    assert found.trust.verdict == expected.trust.verdict


def test_equal_kernels_of_two_streams_or_of_no_length_are_not_the_same() -> None:
    made = Build()
    for at in (0, 100):
        made.kernel(at, at + 50, stream=1)
        made.kernel(at, at + 50, stream=2)
        made.kernel(at + 60, at + 60, stream=1)
        made.kernel(at + 60, at + 60, stream=1)
    assert len(made.timeline().kernels) == 8


@pytest.mark.parametrize("each, doubted", [(3, True), (99, True), (101, False)])
def test_kernels_without_length_are_doubted_from_one_in_a_hundred_on(each: int, doubted: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    path.write_bytes(lzma.decompress((DATA / "gru-1gpu.rank0.sqlite.xz").read_bytes()))
    with closing(sqlite3.connect(path)) as database, database:
        count = database.execute(f'UPDATE {KERNEL} SET "end" = start WHERE rowid % {each} = 0').rowcount
        (of,) = database.execute(f"SELECT count(*) FROM {KERNEL}").fetchone()
    said = [doubt.text for doubt in readers.read(path).doubts if doubt.code == "impossible-times"]
    expected = f"{count:,} of {of:,} kernels last 0 ns, which no kernel does: their time counts as idle"
    assert said == [expected] * doubted
