"""The time in which the running kernels have fewer thread blocks than half of the GPU's multiprocessors."""

from __future__ import annotations

import gzip
import json
import lzma
import math
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from profiles import analyse, read
from profiles.metrics import unfilled
from profiles.model.findings import Finding
from profiles.model.operations import Unfilled
from tests.made.build import Build
from tests.made.formats import FORMATS
from tests.profiles.verdicts.test_people import MS, US
from tests.profiles.verdicts.test_planted import BACKWARD, PRODUCT, Host
from tests.recordings import DATA

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def measured(made: Build) -> Unfilled | None:
    (gpu,) = analyse([made.timeline()]).measures.gpus
    return gpu.kernels.unfilled


def counted(made: Build, most: int, first: int, last: int) -> tuple[int, int, list[int]]:
    """(ns with too few blocks, their sum weighted by the empty part, times `most`, the most of these ns in which one
    name's kernels of few blocks run), one nanosecond after another."""
    running = np.zeros(last, np.int64)
    for row in made.rows["kernels"]:
        if not row["name"].startswith("nccl"):
            running[row["start_ns"] : row["end_ns"]] += row["blocks"] or most
    for row in made.rows["graphs"]:
        running[row["start_ns"] : row["end_ns"]] += most
    few = (running > 0) & (2 * running < most)
    few[:first] = False
    names: dict[str, int] = {}
    for row in made.rows["kernels"]:
        if row["blocks"] and 2 * row["blocks"] < most and not row["name"].startswith("nccl"):
            names[row["name"]] = names.get(row["name"], 0) + int(few[row["start_ns"] : row["end_ns"]].sum())
    return int(few.sum()), int((most - running[few]).sum()), sorted(filter(None, names.values()), reverse=True)[:3]


@pytest.mark.parametrize("block", [1, 2, 7, 1 << 17])
def test_it_is_what_a_count_of_every_nanosecond_says(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfilled, "_BLOCK", block)
    draw = random.Random(block)
    for _ in range(20):
        made, most = Build(), draw.choice((1, 2, 5, 20, 132))
        made.device(0, multiprocessors=most)
        made.kernel(0, 1, blocks=1)
        for _ in range(draw.randrange(1, 30)):
            start = draw.randrange(300)
            more = {"blocks": draw.randrange(1 + 2 * most), "name": draw.choice(("one", "two", NCCL))}
            made.kernel(start, start + draw.randrange(60), stream=draw.randrange(3), **more)
        made.graph(310, 320)
        found = measured(made)
        assert found is not None and found.multiprocessors == most
        ns, weighted, named = counted(made, most, 0, 400)
        assert (found.ns, found.lost_ns, len(found.kernels)) == (ns, weighted // most, len(named))


def test_a_kernel_of_few_blocks_beside_one_that_fills_the_gpu_is_not_named() -> None:
    made = Build()
    made.device(0, multiprocessors=100)
    made.kernel(0, 900, "hidden", blocks=1, stream=1)
    made.kernel(0, 900, "filling", blocks=500, stream=2)
    made.kernel(900, 1_000, "alone", blocks=2, stream=2)
    found = measured(made)
    assert found is not None and (found.ns, found.kernels) == (100, ["alone"])


def test_only_the_window_of_the_steps_counts() -> None:
    made = Build()
    made.device(0, multiprocessors=100)
    for number in range(12):
        at = number * MS
        made.mark(f"step {number}", at, at + MS)
        made.kernel(at + 100 * US, at + 400 * US, "few", blocks=10, call=(at + US, at + 2 * US))
        made.kernel(at + 500 * US, at + 900 * US, "many", blocks=500, call=(at + 3 * US, at + 4 * US))
    (gpu,) = analyse([made.timeline()]).measures.gpus
    assert gpu.window == "steps" and gpu.kernels.unfilled is not None
    ns, weighted, _ = counted(made, 100, *gpu.window_ns)
    found = gpu.kernels.unfilled
    assert (found.ns, found.lost_ns, found.kernels) == (ns, weighted // 100, ["few"]) and ns >= 2 * MS


def test_without_blocks_or_multiprocessors_nothing_is_known() -> None:
    for blocks, multiprocessors in ((0, 132), (1, 0)):
        made = Build()
        made.device(0, multiprocessors=multiprocessors)
        made.kernel(0, 100, blocks=blocks)
        assert measured(made) is None


def test_a_real_recording_has_what_its_rows_say(tmp_path: Path) -> None:
    """GRU of batch 64 on an H200; the kernels of its one process, from the file itself."""
    plain = tmp_path / "gru.rank0.sqlite"
    plain.write_bytes(lzma.decompress((DATA / "gru-1gpu.rank0.sqlite.xz").read_bytes()))
    analysis = analyse([read(plain)])
    (gpu,), origin = analysis.measures.gpus, analysis.measures.recordings[0].origin_ns
    with closing(sqlite3.connect(plain)) as base:
        ((most,),) = base.execute("SELECT smCount FROM TARGET_INFO_GPU").fetchall()
        rows = base.execute("SELECT start, end, gridX * gridY * gridZ FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchall()
    at: dict[int, int] = {}
    for start, end, blocks in rows:
        for time, more in ((start, blocks), (end, -blocks)):
            time = min(max(time - origin, gpu.window_ns[0]), gpu.window_ns[1])
            at[time] = at.get(time, 0) + more
    running = few = weighted = before = 0
    for time in sorted(at):
        if 0 < running < most / 2:
            few, weighted = few + time - before, weighted + (time - before) * (most - running)
        running, before = running + at[time], time
    found = gpu.kernels.unfilled
    assert found is not None and (found.multiprocessors, found.ns, found.lost_ns) == (most, few, weighted // most)
    assert found.ns >= 0.4 * gpu.span_ns


@pytest.mark.parametrize(
    ("name", "loses", "mostly"),
    [("one_block", 0.9, "cunn_SoftMaxForward"), ("cells_graph", 0.2, "lstm_cell_forward")],
)
def test_busy_loops_of_few_blocks_on_an_h200_are_told_first(name: str, loses: float, mostly: str) -> None:
    path = DATA / "few-blocks" / f"{name}.pt.trace.json.gz"
    with gzip.open(path) as file:
        events = [event for event in json.load(file)["traceEvents"] if event.get("cat") == "kernel"]
    # They run one after the other on one stream.
    lost_us = sum(event["dur"] * (1 - min(math.prod(event["args"]["grid"]) / 132, 1)) for event in events
                  if math.prod(event["args"]["grid"]) < 66)  # fmt: skip
    measures = analyse([path]).measures
    (gpu,), found = measures.gpus, measures.findings[0]
    assert gpu.kernels.unfilled is not None and gpu.kernels.unfilled.lost_ns == pytest.approx(1e3 * lost_us, rel=0.01)
    assert gpu.kernels.unfilled.lost_ns >= loses * gpu.span_ns
    assert found.code == "tiny-batch" and mostly in found.text
    assert 1 + (found.at_most_gain or 0) == pytest.approx(1 / (1 - 1e3 * lost_us / gpu.span_ns), rel=0.1)


def planted(blocks: int, suffix: str, folder: Path) -> Finding | None:
    """A busy GPU that runs kernels of so many blocks for nine tenths of the time."""
    host = Host()

    def step(_: int) -> None:
        host.kernel(200 * US, PRODUCT, blocks=1024)
        for _ in range(20):
            host.kernel(100 * US, "void viterbi_path<4>(float*)", blocks=blocks)
        host.kernel(20 * US, BACKWARD, blocks=1024)

    path = folder / f"{blocks}.{suffix}"
    FORMATS[suffix](host.steps(step), path)
    found = analyse([read(path)]).measures.findings
    return found[0] if found else None


@pytest.mark.parametrize("suffix", ["sqlite", "pt.trace.json", "xplane.pb"])
def test_kernels_of_one_block_are_told_on_a_busy_gpu(suffix: str, tmp_path: Path) -> None:
    found = planted(1, suffix, tmp_path)
    assert found is not None and found.code == "tiny-batch"
    assert "132 multiprocessors (most of it viterbi_path)" in found.text
    # 2 000 of some 2 243 µs, all of it but one block's part.
    step_us = 2000 + 220 + 22
    assert found.at_most_gain == pytest.approx(step_us / (step_us - 2000 * 131 / 132) - 1, rel=0.03)
    assert planted(66, suffix, tmp_path) is None


def test_times_before_0_count_as_others_do() -> None:
    """Two recordings of one GPU: the second begins 15 ms before the time 0 of the first. Both run kernels then."""
    first, second = (DATA / f"{name}.rank0.sqlite.xz" for name in ("dense41m-2gpu-pinned", "vgg16-2gpu-pinned"))
    (both,) = analyse([first, second], window="capture").measures.gpus
    alone = [analyse([path], window="capture").measures.gpus[0].kernels.unfilled for path in (first, second)]
    assert both.kernels.unfilled is not None
    assert 0 < both.kernels.unfilled.ns <= sum(one.ns for one in alone if one is not None)
