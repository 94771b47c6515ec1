"""ResNet-50 on two H200: every figure of the report beside a second computation, in plain Python over the file's rows.

The second computation reads the SQLite file itself and knows nothing of `profiles`: steps are kernels after marks,
unions are sweeps, a feed gap is the time between the last thing that ran and the step's copy.
"""

from __future__ import annotations

import bisect
import lzma
import re
import sqlite3
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from profiles import measure, read
from tests.recordings import SHARED
from tests.tiers import few

H200 = SHARED / "h200"
pytestmark = pytest.mark.skipif(not H200.exists(), reason=f"{H200} is absent")
FEEDS, RANKS = ("prefetch", "device"), (0, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("h200")


@cache
def unpacked(folder: Path, feed: str, rank: int) -> Path:
    name = f"resnet50-2gpu-{feed}.rank{rank}.sqlite"
    (folder / name).write_bytes(lzma.decompress((H200 / f"{name}.xz").read_bytes()))
    return folder / name


@cache
def measured(folder: Path, feed: str, window: str):
    return measure([read(unpacked(folder, feed, rank)) for rank in RANKS], window=window)


class Plain:
    """One rank's file as lists of rows."""

    def __init__(self, path: Path):
        rows = sqlite3.connect(f"file:{path}?immutable=1", uri=True).execute
        self.calls = {
            correlation: (start, end)
            for correlation, start, end in rows("SELECT correlationId, start, end FROM CUPTI_ACTIVITY_KIND_RUNTIME")
        }
        self.kernels = rows(
            "SELECT start, end, correlationId, s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k "
            "JOIN StringIds s ON s.id = k.demangledName ORDER BY start"
        ).fetchall()
        self.copies = rows(
            "SELECT start, end, correlationId, copyKind, bytes, srcKind FROM CUPTI_ACTIVITY_KIND_MEMCPY ORDER BY start"
        ).fetchall()
        self.memsets = rows("SELECT start, end FROM CUPTI_ACTIVITY_KIND_MEMSET").fetchall()
        self.set_by = rows("SELECT start, correlationId FROM CUPTI_ACTIVITY_KIND_MEMSET").fetchall()
        marks = rows(
            "SELECT n.start, COALESCE(n.text, s.value) FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId"
        ).fetchall()
        self.marks = sorted(start for start, text in marks if text and re.fullmatch(r"step \d+", text))
        (self.utc,) = rows("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
        self.everything = sorted([row[:2] for row in self.kernels + self.copies] + self.memsets)

    def step_of(self, correlation: int) -> int:
        """The last mark that began before the launch call did."""
        return bisect.bisect_left(self.marks, self.calls[correlation][0]) - 1

    def steps(self) -> list[tuple[int, int]]:
        """First kernel to first kernel of the measured steps: without the first (warm-up) and the last (no end)."""
        first: dict[int, int] = {}
        for start, _, correlation, _ in self.kernels:
            first.setdefault(self.step_of(correlation), start)
        starts = [first[number] for number in sorted(first)]
        return list(zip(starts[1:-1], starts[2:], strict=True))

    def inputs(self) -> list[tuple[int, int, int]]:
        return [(start, end, correlation) for start, end, correlation, kind, size, _ in self.copies
                if kind == 1 and size > 1_000_000]  # fmt: skip

    def uncovered(self, copies) -> int:
        """ns of the copies at which no kernel ran."""
        reach, merged = -1, []
        for start, end, *_ in self.kernels:
            if start > reach:
                merged.append([start, end])
            else:
                merged[-1][1] = max(merged[-1][1], end)
            reach = max(reach, end)
        left = 0
        for start, end, *_ in copies:
            covered = sum(max(0, min(end, b) - max(start, a)) for a, b in merged)
            left += end - start - covered
        return left


@cache
def plain(folder: Path, feed: str, rank: int) -> Plain:
    return Plain(unpacked(folder, feed, rank))


def median(values: list[int]) -> int:
    """The observed value at the nearest rank."""
    return sorted(values)[(len(values) + 1) // 2 - 1]


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("feed", FEEDS)
def test_steps_are_the_marked_ones_without_warm_up_and_the_unfinished_last(folder, feed, rank):
    rows = plain(folder, feed, rank)
    steps = measured(folder, feed, "steps").gpus[rank].steps
    expected = rows.steps()
    assert (len(rows.marks), steps.source) == (12, "marks")
    assert (steps.count, steps.warm_up, steps.partial, steps.breaks) == (len(expected), 1, 1, 0)
    assert [(row.start_ns, row.end_ns) for row in steps.rows] == expected
    assert steps.period_ns and steps.period_ns.p50 == median([end - start for start, end in expected])


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("feed", FEEDS)
def test_kernels_and_all_reduces_a_step_are_counted_as_by_plain_loops(folder, feed, rank):
    rows, gpu = plain(folder, feed, rank), measured(folder, feed, "steps").gpus[rank]
    inside = [[name for at, _, _, name in rows.kernels if start <= at < end] for start, end in rows.steps()]
    assert gpu.kernels.per_step == median([len(names) for names in inside])
    assert [row.kernels for row in gpu.steps.rows] == [len(names) for names in inside]
    assert gpu.collectives.per_step == median([sum("nccl" in name for name in names) for names in inside]) == 1
    assert gpu.kernels.count == sum(len(names) for names in inside)


@pytest.mark.parametrize(("feed", "rank"), few(product(FEEDS, RANKS)))
def test_exposed_and_hidden_copies_are_those_of_plain_loops(folder, feed, rank):
    rows, gpu = plain(folder, feed, rank), measured(folder, feed, "capture").gpus[rank]
    to_gpu = [row for row in rows.copies if row[3] == 1]
    assert gpu.span_ns == max(end for _, end in rows.everything) - rows.everything[0][0]
    assert gpu.copies["h2d"].exposed_ns == gpu.ledger_ns["h2d"] == rows.uncovered(to_gpu)
    assert gpu.copies["h2d"].busy_ns == sum(row[1] - row[0] for row in to_gpu)  # they never overlap each other
    inputs = rows.inputs()
    assert gpu.input_copies is not None and gpu.input_copies["count"] == len(inputs)
    exposed = rows.uncovered(inputs)
    assert gpu.input_copies["exposed_ns"] == exposed
    assert gpu.input_copies["overlap"] == pytest.approx(1 - exposed / sum(end - start for start, end, _ in inputs))
    moved = sum(row[4] for row in to_gpu)
    pageable = sum(row[4] for row in to_gpu if row[5] == 0)
    assert gpu.copies["h2d"].pageable_share == pytest.approx(pageable / moved)
    assert all(row[5] == 0 for row in to_gpu if row[4] > 1_000_000)


def test_prefetching_to_the_device_hides_most_of_the_input_copies(folder):
    for rank in RANKS:
        before, after = (measured(folder, feed, "steps").gpus[rank] for feed in FEEDS)
        assert before.input_copies["overlap"] <= 0.02 and after.input_copies["overlap"] > 0.7
        before, after = (measured(folder, feed, "capture").gpus[rank] for feed in FEEDS)
        assert after.ledger_ns["h2d"] / after.span_ns < 0.5 * before.ledger_ns["h2d"] / before.span_ns


@pytest.mark.parametrize("rank", RANKS)
def test_feed_gaps_are_what_lies_before_the_copy_of_the_step_about_to_start(folder, rank):
    rows, gpu = plain(folder, "prefetch", rank), measured(folder, "prefetch", "steps").gpus[rank]
    steps = rows.steps()
    per_step = [0] * len(steps)
    for start, _, correlation in rows.inputs():
        dry = max([end for a, end in rows.everything if a < start], default=start)
        if dry < start and rows.calls[correlation][0] > dry:
            for number, (a, b) in enumerate(steps):
                per_step[number] += max(0, min(start, b) - max(dry, a))
    assert [row.feed_gap_ns for row in gpu.steps.rows] == per_step
    assert gpu.feed_gaps is not None and gpu.feed_gaps.p50_ns == median(per_step)
    assert gpu.feed_gaps.count == sum(gap > 0 for gap in per_step) == 10
    assert gpu.ledger_ns["idle_feed"] == sum(per_step)


@pytest.mark.parametrize("rank", RANKS)
def test_fed_on_the_device_no_step_waits_for_its_batch(folder, rank):
    gpu = measured(folder, "device", "steps").gpus[rank]
    assert gpu.feed_gaps is not None and gpu.feed_gaps.count == 0 and gpu.ledger_ns["idle_feed"] == 0
    assert gpu.input_copies is not None and gpu.input_copies["exposed_this_step_ns"] == 0


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("feed", FEEDS)
def test_batch_gaps_run_from_the_last_kernel_of_a_step_to_the_first_of_the_next(folder, feed, rank):
    rows, gpu = plain(folder, feed, rank), measured(folder, feed, "steps").gpus[rank]
    last: dict[int, int] = {}
    for _, end, correlation, _ in rows.kernels:
        number = rows.step_of(correlation)
        last[number] = max(last.get(number, 0), end)
    assert [row.batch_gap_ns for row in gpu.steps.rows] == [
        start - last[number] for number, (start, _) in enumerate(rows.steps())
    ]


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("feed", FEEDS)
def test_late_launches_are_told_from_the_calls(folder, feed, rank):
    """Idle time ended by a kernel or memset whose call had not returned, or a copy whose call had not begun: late. It
    is `launch`, or what comes before it in the order of causes."""
    rows, gpu = plain(folder, feed, rank), measured(folder, feed, "steps").gpus[rank]
    called = {start: rows.calls[correlation][1] for start, _, correlation, _ in rows.kernels}
    called |= {start: rows.calls[correlation][0] for start, _, correlation, *_ in rows.copies}
    called |= {start: rows.calls[correlation][1] for start, correlation in rows.set_by}
    late, reach = 0, rows.everything[0][0]
    (first, _), (_, last) = rows.steps()[0], rows.steps()[-1]
    for start, end in rows.everything:
        if first <= reach < start <= last and called[start] > reach:
            late += start - reach
        reach = max(reach, end)
    assert late == sum(gpu.ledger_ns[f"idle_{cause}"] for cause in ("feed", "sync", "launch"))


@pytest.mark.parametrize("feed", FEEDS)
def test_the_ranks_collectives_end_together_on_the_utc_clock(folder, feed):
    both = [plain(folder, feed, rank) for rank in RANKS]
    ends = [[end + rows.utc for _, end, _, name in rows.kernels if "nccl" in name] for rows in both]
    apart = [abs(a - b) for a, b in zip(*ends, strict=True)]
    clock = measured(folder, feed, "steps").clock
    assert clock is not None and max(apart) < 100_000
    assert clock["residual_ns"] <= max(apart)
