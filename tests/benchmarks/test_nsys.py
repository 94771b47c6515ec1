"""A recording repeated, and nsys's own summaries of a real one beside what is read of it."""

from __future__ import annotations

import lzma
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import nsys
from profiles import readers
from tests.recordings import ROOT

H200 = ROOT.parent / "shared" / "recordings" / "h200"


def _unpacked(packed: Path, folder: Path) -> Path:
    path = folder / packed.stem
    with lzma.open(packed) as source, path.open("wb") as target:
        shutil.copyfileobj(source, target)
    return path


def test_a_recording_repeated_has_every_step_so_many_times(tmp_path: Path) -> None:
    once = _unpacked(ROOT / "tests" / "data" / "gru-1gpu.rank0.sqlite.xz", tmp_path)
    thrice = tmp_path / "thrice.sqlite"
    nsys.multiply(once, thrice, 3)
    assert nsys.our_totals(thrice) == {name: 3 * value for name, value in nsys.our_totals(once).items()}
    marks = [readers.read(path).marks["name"].astype(str) for path in (once, thrice)]
    steps = [int(names.str.fullmatch(r"step \d+").sum()) for names in marks]
    assert steps[1] == 3 * steps[0] > 0


def test_nsys_and_ringscope_read_the_same_totals() -> None:
    if not H200.is_dir():
        pytest.skip(f"no {H200}")
    name = "resnet50-2gpu-device.rank0"
    kernels, memory = ((H200 / f"{name}.nsys-{what}-sum.csv").read_text() for what in ("kern", "mem-time"))
    assert nsys.nsys_totals(kernels, memory) == nsys.our_totals(H200 / f"{name}.sqlite.xz")


def test_without_nsys_it_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.nsys", str(tmp_path / "none.sqlite")]
    done = subprocess.run(command, cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("no nsys on the PATH")
