"""The same planted loss as files of four profilers: what is told first does not depend on who recorded it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from profiles import analyse
from profiles.model.findings import Finding
from profiles.readers import read
from tests.made.build import Build
from tests.made.formats import FORMATS
from tests.profiles.verdicts.test_people import ATEN, MS, NCCL, US
from tests.profiles.verdicts.test_planted import BACKWARD, PRODUCT, STEPS, Host, stages

ALL_REDUCE = NCCL.format("AllReduce_Sum_f32_RING_LL")
Work = Callable[[Host], None]


def begun(rank: int = 0) -> Host:
    """A host that has copied weights: rocprofv3 does not tell a program without copies from copies not recorded."""
    host = Host()
    host.made = Build(pid=1 + rank)
    host.copy("h2d", 2 * US, 1 << 20)
    host.kernel(5 * US, ATEN)
    return host


def loop(work: Work, count: int = STEPS) -> list[Build]:
    host = begun()
    return [host.steps(lambda _: work(host), count)]


def computing(host: Host, each_ns: int = 500 * US, count: int = 10) -> None:
    for name in (*[PRODUCT] * (2 * count - 1), BACKWARD):
        host.kernel(each_ns, name)


def nothing(host: Host) -> None:
    computing(host)
    host.now = max(host.now, host.free - 5 * MS)


def item(host: Host) -> None:
    computing(host, 300 * US)
    host.copy("d2h", 2 * US, 4)
    host.call("cudaStreamSynchronize")
    host.now += 3 * MS


def small_batch(host: Host) -> None:
    for name in (PRODUCT, BACKWARD):
        for _ in range(60):
            host.kernel(3 * US, name)
            host.now += 4 * US


def copy_that_waits(host: Host, kind: str = "pinned") -> None:
    host.now = start = max(host.now, host.free)
    if kind == "pinned":
        host.copy("h2d", 6 * MS, 64 << 20)
    else:
        host.now, host.free = start + 6 * MS + 12 * US, start + 6 * MS + 10 * US
        host.made.copy("h2d", start + 10 * US, host.free, 64 << 20, call=(start, host.now))
    computing(host)


def allocation(host: Host) -> None:
    for _ in range(12):
        host.kernel(120 * US, PRODUCT)
        host.call("cudaFree")
        host.call("cudaMalloc", 150 * US)


def python(host: Host) -> None:
    for name in (*[PRODUCT] * 59, BACKWARD):
        host.kernel(100 * US, name)
        host.now = max(host.now, host.free) + 100 * US


def slow_input(host: Host) -> None:
    host.now = start = max(host.now, host.free)
    host.now += 8 * MS
    host.made.mark("wait input", start, host.now)
    host.copy("h2d", 500 * US, 32 << 20)
    computing(host)


def slower_gpu() -> list[Build]:
    host = begun()

    def step(number: int) -> None:
        for _ in range(20):
            host.kernel((160 if number >= 12 else 100) * US, PRODUCT)

    return [host.steps(step, 24)]


def ranks(work_ns: tuple[int, int], exchange_ns: int) -> list[Build]:
    """Two ranks whose kernels last so long, and which meet in an all-reduce after them."""
    made = []
    for rank, own_ns in enumerate(work_ns):
        host, begins = begun(rank), 20 * MS
        for number in range(STEPS):
            host.now = host.free = begins
            computing(host, own_ns)
            met = begins + 20 * (max(work_ns) + US) + 10 * US + exchange_ns
            host.kernel(met - host.free - US, ALL_REDUCE)
            host.made.mark(f"step {number}", begins - 30 * US, host.now, domain="")
            begins = met + 50 * US
        made.append(host.made)
    return made


def pipeline() -> list[Build]:
    made = stages([*[(0, 300 * US)] * 7, (1, 100 * US)])
    for rank, one in enumerate(made):
        for row in (row for table in one.rows.values() for row in table if "pid" in row):
            row["pid"] = 1 + rank
        one.defaults["pid"] = 1 + rank
        one.copy("h2d", 9 * MS, 9 * MS + 2 * US, 1 << 20, call=(9 * MS - 9 * US, 9 * MS - 8 * US))
    return made


PLANTED: dict[str | None, Callable[[], list[Build]]] = {
    None: lambda: loop(nothing),
    "loss-fetched-every-step": lambda: loop(item),
    "tiny-batch": lambda: loop(small_batch),
    "copies-exposed": lambda: loop(copy_that_waits),
    "copies-pageable": lambda: loop(lambda host: copy_that_waits(host, "pageable")),
    "memory-allocated-in-the-loop": lambda: loop(allocation),
    "python-in-the-loop": lambda: loop(python),
    "input-pipeline-slow": lambda: loop(slow_input),
    "gpu-slows-down": slower_gpu,
    "all-reduce-exposed": lambda: ranks((500 * US, 500 * US), 5 * MS),
    "slow-gpu": lambda: ranks((500 * US, MS), 500 * US),
    "straggler": pipeline,
}
# rocprofv3 does not record what kind of memory the host's end of a copy is.
OTHERWISE = {("copies-pageable", "results.json"): "copies-exposed"}


def first(made: list[Build], folder: Path, suffix: str) -> Finding | None:
    timelines = []
    for rank, one in enumerate(made):
        one.recording = replace(one.recording, rank=rank if len(made) > 1 else None)
        path = folder / f"rank{rank}.{suffix}"
        FORMATS[suffix](one, path)
        timelines.append(read(path))
    found = analyse(timelines).measures.findings
    return found[0] if found else None


@pytest.mark.parametrize("planted", PLANTED, ids=str)
def test_a_loss_is_told_first_whatever_profiler_recorded_it(planted: str | None, tmp_path: Path) -> None:
    found = {suffix: first(PLANTED[planted](), tmp_path, suffix) for suffix in FORMATS}
    assert {suffix: one and one.code for suffix, one in found.items()} == {
        suffix: OTHERWISE.get((planted or "", suffix), planted) for suffix in FORMATS
    }
    prices = {one.at_most_gain for one in found.values() if one and one.code == planted}
    assert all(price == pytest.approx(next(iter(prices)), rel=1e-3) for price in prices)
