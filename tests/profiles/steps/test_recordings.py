"""Steps, clocks and collectives of real recordings against plain SQL and loops over its rows."""

from __future__ import annotations

import dataclasses
import lzma
import re
import sqlite3
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from profiles import readers
from profiles.comparing.loss_ledger import losses
from profiles.gpus.clock import aligned, ends
from profiles.gpus.gather import gather
from profiles.gpus.operations import Gpu
from profiles.measuring.analysis import measure
from profiles.metrics import collectives
from profiles.metrics.collectives import Calls, Matched, of
from profiles.metrics.message_sizes import moved
from profiles.model.timeline import Timeline
from profiles.steps.find import find
from profiles.steps.found import FoundSteps
from tests.recordings import DATA, SHARED

H200, PUBLIC = SHARED / "h200", SHARED / "public"
CELLS = [(feed, rank) for feed in ("prefetch", "device") for rank in (0, 1)]

needs_h200 = pytest.mark.skipif(not H200.is_dir(), reason="no ../shared/recordings/h200")
needs_public = pytest.mark.skipif(not PUBLIC.is_dir(), reason="no ../shared/recordings/public")


def packed(feed: str, rank: int) -> Path:
    return H200 / f"resnet50-2gpu-{feed}.rank{rank}.sqlite.xz"


@cache
def timeline(feed: str, rank: int) -> Timeline:
    return readers.read(packed(feed, rank), cache=False)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The recordings' databases as they are, by feed and rank."""
    folder = tmp_path_factory.mktemp("unpacked")
    found = {}
    for feed, rank in CELLS:
        path = folder / f"{feed}{rank}.sqlite"
        path.write_bytes(lzma.decompress(packed(feed, rank).read_bytes()))
        found[feed, rank] = sqlite3.connect(path)
    yield found
    for database in found.values():
        database.close()


def steps_of(one: Timeline) -> tuple[Gpu, FoundSteps]:
    (gpu,) = gather([one])
    return gpu, find(gpu, [one])


def calls_of(timelines: Sequence[Timeline], shift_ns: Sequence[int], residual_ns: int | None) -> list[Calls]:
    gpus = gather(timelines, shift_ns)
    each = [collectives.own(gpu, moved(timelines, shift_ns, gpu, of(gpu))) for gpu in gpus]
    return Matched(each, [shift_ns[gpu.places[0][0]] for gpu in gpus], residual_ns).calls()


def without_marks(one: Timeline, pattern: str) -> Timeline:
    named = one.marks["name"].astype(str).str.contains(pattern)
    return dataclasses.replace(one, marks=one.marks[~named].reset_index(drop=True))


def without_collectives_names(one: Timeline) -> Timeline:
    renamed = one.kernels["name"].cat.rename_categories(lambda name: re.sub("nccl.*(?=_Sum)", "other", name))
    return dataclasses.replace(one, kernels=one.kernels.assign(name=renamed))


def plain_steps(database: sqlite3.Connection) -> list[dict]:
    """Per `step N` mark what was launched under it, by a loop over the rows."""
    marks = sorted(
        (start, int(text.removeprefix("step ")))
        for start, text in database.execute(
            "SELECT start, COALESCE(text, value) FROM NVTX_EVENTS LEFT JOIN StringIds ON textId = id"
        )
        if re.fullmatch(r"step \d+", text or "")
    )
    launched = {}
    for correlation, start in database.execute("SELECT correlationId, start FROM CUPTI_ACTIVITY_KIND_RUNTIME"):
        launched[correlation] = min(start, launched.get(correlation, start))
    found = [{"number": number, "starts": [], "ends": []} for _, number in marks]
    for start, end, correlation in database.execute("SELECT start, end, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL"):
        before = [place for place, (at, _) in enumerate(marks) if at < launched[correlation]]
        if before:
            found[before[-1]]["starts"].append(start)
            found[before[-1]]["ends"].append(end)
    return found


@needs_h200
@pytest.mark.parametrize(("feed", "rank"), CELLS)
def test_marked_steps_are_those_of_a_loop_over_the_rows(unpacked, feed, rank):
    one = timeline(feed, rank)
    _, found = steps_of(one)
    origin = one.recording.origin_ns
    known = plain_steps(unpacked[feed, rank])
    start = [min(step["starts"]) - origin for step in known]
    last_end = [max(step["ends"]) - origin for step in known]
    lasted = [after - before for before, after in zip(start, start[1:], strict=False)]
    usual = median(lasted)
    spread = 1.4826 * median([abs(one - usual) for one in lasted])
    assert len(known) == 12
    assert lasted[0] > usual + max(5 * spread, 0.1 * usual)  # warm-up
    assert all(one <= usual + max(5 * spread, 0.1 * usual) for one in lasted[1:])
    assert found.source == "marks"
    assert (found.count, found.warm_up, found.partial, found.breaks) == (10, 1, 1, 0)
    assert found.step_number.tolist() == [step["number"] for step in known][1:11]
    assert found.start_ns.tolist() == start[1:11]
    assert found.end_ns.tolist() == start[2:12]
    assert found.last_kernel_end_ns.tolist() == last_end[1:11]
    assert found.prev_last_kernel_end_ns.tolist() == last_end[0:10]
    assert found.all_start_ns.tolist() == start


@needs_h200
@pytest.mark.parametrize(("feed", "rank"), CELLS)
@pytest.mark.parametrize(
    ("removed", "source"),
    [
        (r"^step \d+$", "tensorflow"),
        (r"^step \d+$|_OptionalHasValue#", "tensorflow"),
        (r"^step \d+$|#edge_name", "horovod"),
        (r"^step \d+$|#edge_name|Horovod", "collectives"),
        (r".", "collectives"),
        (r".", "period"),
    ],
)
def test_other_sources_find_the_marked_steps(feed, rank, removed, source):
    one = timeline(feed, rank)
    gpu, marked = steps_of(one)
    if feed == "device" and source == "tensorflow" and "Has" in removed:
        source = "horovod"  # the iterator is on the GPU and writes no ranges
    bare = without_marks(one, removed)
    _, found = steps_of(without_collectives_names(bare) if source == "period" else bare)
    assert found.source == source
    assert found.count == marked.count == 10
    assert found.warm_up + found.partial == 2
    kernel_starts = np.sort(gpu.operations.start_ns[gpu.operations.is_kernel])
    kernels_off = np.abs(
        np.searchsorted(kernel_starts, found.start_ns) - np.searchsorted(kernel_starts, marked.start_ns)
    )
    batch_gap = marked.start_ns - marked.prev_last_kernel_end_ns
    assert (kernels_off <= 1).mean() >= 0.9
    assert (np.abs(found.start_ns - marked.start_ns) <= batch_gap).all()


def collectives_of(database: sqlite3.Connection) -> list[tuple[int, int]]:
    """Start and end of the collectives in UTC."""
    (utc,) = database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
    rows = database.execute(
        "SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON shortName = id "
        "WHERE value LIKE 'nccl%' ORDER BY end"
    )
    return [(utc + start, utc + end) for start, end in rows]


@needs_h200
@pytest.mark.parametrize("feed", ["prefetch", "device"])
def test_the_two_ranks_leave_their_collectives_together_and_wait_for_each_other(unpacked, feed):
    both = [timeline(feed, rank) for rank in (0, 1)]
    rows = [collectives_of(unpacked[feed, rank]) for rank in (0, 1)]
    apart = [abs(one[1] - other[1]) for one, other in zip(*rows, strict=True)]
    clock = aligned([ends(one) for one in both])
    assert clock.method == "utc"
    assert clock.residual_ns == sorted(apart)[-(-95 * len(apart) // 100) - 1]
    assert clock.residual_ns < 5_000
    calls = calls_of(both, clock.shift_ns, clock.residual_ns)
    for rank, own in enumerate(calls):
        pairs = list(zip(rows[rank], rows[1 - rank], strict=True))
        assert own.skew_ns.tolist() == [max(other[0] - mine[0], 0) for mine, other in pairs]
        waited = [min(max(other[0] - mine[0], 0), mine[1] - mine[0]) for mine, other in pairs]
        assert own.waiting_ns.tolist() == waited
        assert own.transfer_ns.tolist() == [m[1] - m[0] - w for (m, _), w in zip(pairs, waited, strict=True)]
        assert own.is_last.tolist() == [mine[0] - other[0] > clock.residual_ns for mine, other in pairs]


@needs_h200
def test_what_a_step_gains_by_feeding_on_the_gpu_is_the_difference_of_the_marked_steps(unpacked):
    step = {}
    for feed in ("prefetch", "device"):
        ranks = [[min(one["starts"]) for one in plain_steps(unpacked[feed, rank])] for rank in (0, 1)]
        step[feed] = sum(Fraction(start[11] - start[1], 10) for start in ranks) / 2
    found = losses(*(measure([timeline(feed, rank) for rank in (0, 1)]) for feed in ("prefetch", "device")))
    assert (found.step_before_ns, found.step_after_ns) == (step["prefetch"], step["device"])
    assert sum(part for part in found.loss_ns.values() if part is not None) == step["device"] - step["prefetch"]
    assert found.loss_ns["h2d"] < 0
    assert found.loss_ns["idle_feed"] < 0


def public(path: str) -> tuple[Timeline, list[FoundSteps]]:
    one = readers.read(PUBLIC / path, cache=False)
    return one, [find(gpu, [one]) for gpu in gather([one])]


@needs_public
def test_collectives_of_several_groups_of_gpus_are_told_apart():
    path = PUBLIC / "nvprof-sqlite/nccl-4gpu-one-process.nvvp"
    one = readers.read(path, cache=False)
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT deviceId, start, end FROM CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ORDER BY end")
        calls = [
            (device, start - one.recording.origin_ns, end - one.recording.origin_ns) for device, start, end in rows
        ]
    # Four groups of GPUs, each a broadcast and then an all-reduce; the ends of one call lie within 1 ms here.
    groups: list[list[tuple[int, int, int]]] = []
    for call in calls:
        if groups and call[2] - groups[-1][-1][2] < 1_000_000:
            groups[-1].append(call)
        else:
            groups.append([call])
    assert [len(group) for group in groups] == [2, 3, 3, 4, 2, 3, 3, 4]
    for gpu, own in zip(gather([one]), calls_of([one], [0], None), strict=True):
        mine = [(call, group) for group in groups for call in group if call[0] == gpu.device]
        assert own.ranks.tolist() == [len(group) for _, group in mine]
        latest = [max(start for _, start, _ in group) for _, group in mine]
        assert own.skew_ns.tolist() == [last - call[1] for (call, _), last in zip(mine, latest, strict=True)]


@pytest.mark.parametrize("pattern", [r"^step \d", "."])
def test_steps_launched_far_ahead_have_a_period_and_no_batch_gaps(pattern: str):
    """Real: 9 µs between steps, and in the middle of each 50 µs without a kernel, which a memset of 205 MB takes."""
    one = readers.read(DATA / "resnet50-4gpu-pinned.rank0.sqlite.xz")
    _, marked = steps_of(one)
    gaps = marked.all_start_ns[1:] - marked.all_last_kernel_end_ns[:-1]
    _, found = steps_of(without_marks(one, pattern))
    assert gaps.max() < 20_000 and marked.source == "marks" != found.source
    assert not len(found.all_last_kernel_end_ns)
    period = median((found.end_ns - found.start_ns).tolist())
    assert abs(period / median((marked.end_ns - marked.start_ns).tolist()) - 1) < 0.005


@needs_public
def test_batches_of_a_training_without_step_marks_are_found_by_their_period():
    _, (found,) = public("nvprof-sqlite/ort-training.nvvp")
    with sqlite3.connect(PUBLIC / "nvprof-sqlite/ort-training.nvvp") as database:
        names = dict(database.execute("SELECT _id_, value FROM StringTable"))
        batches = [
            time
            for time, name in database.execute(
                "SELECT timestamp, name FROM CUPTI_ACTIVITY_KIND_MARKER ORDER BY timestamp"
            )
            if names.get(name) == "Batch- Forward"
        ]
        kernels = database.execute("SELECT start, name FROM CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ORDER BY start")
        updates = [start for start, name in kernels if "SGDOptimizer" in names[name]]
    assert found.source == "period"
    # Two updates a batch, 101 batches; the first and the last two are at the ends, or unlike the others.
    assert len(batches) == 101
    assert len(updates) == 2 * len(batches)
    assert len(batches) - 4 <= found.count <= len(batches) - 2
    period = median([after - before for before, after in zip(batches, batches[1:], strict=False)])
    assert abs(median((found.end_ns - found.start_ns).tolist()) / period - 1) < 0.01
    first = updates[0] - readers.read(PUBLIC / "nvprof-sqlite/ort-training.nvvp", cache=False).recording.origin_ns
    shifted = [at - updates[0] + first for at in updates]
    inside = [sum(start <= at < end for at in shifted) for start, end in zip(found.start_ns, found.end_ns, strict=True)]
    assert set(inside) == {2}


@needs_public
@pytest.mark.parametrize("path", ["nsys-sqlite/mfu-2gpu-2process.sqlite", "nsys-sqlite/h100-2gpu-slice.sqlite"])
def test_layers_of_one_forward_pass_are_not_taken_for_steps(path):
    _, found = public(path)
    with sqlite3.connect(PUBLIC / path) as database:
        texts = [
            text for (text,) in database.execute("SELECT text FROM NVTX_EVENTS WHERE text LIKE 'FSDP::pre_forward%'")
        ]
    blocks = [re.search(r"block[s]?\.(\d+)", text) for text in texts]
    layers = {match[1] for match in blocks if match}
    assert len(layers) >= 15  # the recording goes through the layers, each at most twice a process
    assert [one.source for one in found] == [None, None]
    assert all("layer" in one.refused for one in found)


@needs_public
@pytest.mark.parametrize(
    "path",
    [
        "nvprof-sqlite/pytorch-lm-nvtx-1.sql",
        "nvprof-sqlite/pytorch-lm-nvtx-2.sql",
        "nvprof-sqlite/tf1-mnist.nvvp",
        "nvprof-sqlite/nccl-4gpu-one-process.nvvp",
        "nsys-sqlite/saxpy-mpi.sqlite",
        "nsys-sqlite/no-version-table.sqlite",
        "nsys-sqlite/cloverleaf-cuda.sqlite",
    ],
)
def test_recordings_with_fewer_than_five_equal_repetitions_are_refused_with_the_reason(path):
    one, found = public(path)
    for gpu, steps in zip(gather([one]), found, strict=True):
        assert steps.source is None
        assert steps.refused
        assert most_equal_repetitions(one, gpu.device) < 0.9


def most_equal_repetitions(one: Timeline, device: int) -> float:
    """The largest share of half the kernels or more that lies in 5 or more exactly equal repetitions, by any kernel."""
    kernels = one.kernels[one.kernels["device"] == device].sort_values("start_ns")
    names = kernels["name"].astype(str).tolist()
    best = 0.0
    for anchor in set(names):
        places = [place for place, name in enumerate(names) if name == anchor]
        cycles = [tuple(sorted(names[a:b])) for a, b in zip(places, places[1:], strict=False)]
        for cycle in set(cycles):
            equal = [place for place, other in enumerate(cycles) if other == cycle]
            between = places[equal[-1] + 1] - places[equal[0]]
            if len(equal) >= 5 and len(set(cycle)) > 1 and between >= len(names) / 2:
                best = max(best, len(equal) * len(cycle) / between)
    return best
