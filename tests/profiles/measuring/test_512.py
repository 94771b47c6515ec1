"""512 ranks, some 1 MB a recording: how much memory, the same over MPI, and who was made slow on purpose.

They alone catch memory or time that grows faster than the number of ranks.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import ringscope
from benchmarks.tables import timeline
from benchmarks.training import Shape
from benchmarks.write import WRITERS
from profiles.model.findings import Finding
from tests.profiles.measuring.test_mpi import MPIRUN, launched, ringscope_words
from tests.recordings import ROOT

pytestmark = pytest.mark.exhaustive
RANKS = 512
SHAPE = Shape(steps=20, kernels=450, gpus=RANKS, processes=RANKS, skew_ns=50, hidden_ns=150_000, feed_ns=100_000)
SMALL = replace(SHAPE, steps=12, kernels=12)
LATE = 2_000_000
BYTES = 2 << 30  # in all processes together
# What stops work that grows with the square of the ranks: on an idle machine it takes less than 40 s of CPU.
STOP_CPU_S = 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rank 37 is slow."""
    made = tmp_path_factory.mktemp("many")
    shape = replace(SHAPE, slow_gpus=(37,), late_ns=LATE)
    for rank in range(RANKS):
        WRITERS["nsys"](shape, made / f"rank{rank}.sqlite", range(rank, rank + 1))
    return made


def watched(words: list[str], screen: Path) -> tuple[float, int]:
    """CPU seconds of a command and its processes, and the most bytes they held together; it prints into `screen`."""
    environ = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    cpu: dict[int, float] = {}
    most = 0
    with screen.open("w") as out, subprocess.Popen(words, env=environ, cwd=ROOT, stdout=out) as running:
        top = psutil.Process(running.pid)
        while running.poll() is None:
            held = 0
            for one in [top, *top.children(recursive=True)]:
                try:
                    spent, memory = one.cpu_times(), one.memory_full_info()
                except (psutil.NoSuchProcess, psutil.ZombieProcess):
                    continue
                cpu[one.pid] = spent.user + spent.system
                held += memory.pss  # what they share counts once
            most = max(most, held)
            time.sleep(0.2)
    assert running.returncode == 0
    return sum(cpu.values()), most


def test_512_recordings_are_measured_in_bounded_time_and_memory_and_over_mpi_alike(folder, tmp_path) -> None:
    words = [*ringscope_words(folder, "--json", tmp_path / "one.json"), "--processes", "2"]
    cpu_s, held = watched(words, tmp_path / "screen")
    print(f"{RANKS} ranks: {cpu_s:.1f} s CPU, {held / 1e9:.2f} GB")
    assert held <= BYTES and cpu_s <= STOP_CPU_S
    first = json.loads((tmp_path / "one.json").read_text())["findings"][0]
    assert first["gpu"] == 37 and "rank 37" in first["text"]
    shown = (tmp_path / "screen").read_text().splitlines()
    assert len(shown) <= 60 and "rank 37" in next(line for line in shown if "•" in line)
    if not MPIRUN.exists():
        pytest.skip("no mpirun in this environment")
    launched((4, ringscope_words(folder, "--json", tmp_path / "four.json")))
    assert (tmp_path / "four.json").read_bytes() == (tmp_path / "one.json").read_bytes()


def first_finding(**faults) -> Finding:
    """Of 64 hosts with eight GPUs each."""
    shape = replace(SMALL, late_ns=LATE, **faults)
    read = [timeline(shape, range(rank, rank + 1)) for rank in range(RANKS)]
    named = [replace(one.recording, path=f"rank{rank}", host=f"node{rank // 8}") for rank, one in enumerate(read)]
    made = [replace(one, recording=recording) for one, recording in zip(read, named, strict=True)]
    return ringscope.measure(made).findings[0]


def test_a_slow_host_among_64_is_the_first_finding() -> None:
    found = first_finding(slow_gpus=tuple(range(296, 304)))
    assert (found.code, found.evidence["scope"], found.evidence["hosts"]) == ("slow-gpu", "host", ["node37"])


def test_a_slow_link_among_512_is_the_first_finding() -> None:
    found = first_finding(slow_links=(401,))
    assert (found.code, found.gpu, found.evidence["link"]) == ("slow-link", 401, "host")
    assert "on host node50" in found.text
