"""A GPU that the driver shows and the framework does not find. A few lines of C stand in for the driver."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.jobs import sweep
from harness.launch.hosts import Host
from harness.verbs import bench
from profiles.ground.errors import RingscopeError
from profiles.runs.records import Cell
from tests.recordings import ROOT

pytest.importorskip("horovod.tensorflow")
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

DRIVER = """
#include <string.h>
static int begun = 0;
int cuInit(unsigned flags) { begun = 1; return GPUS ? 0 : 100; }
int cuDeviceGetCount(int *count) { *count = begun ? GPUS : 0; return begun ? 0 : 3; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal < 0 || ordinal >= GPUS ? 101 : 0; }
int cuDeviceGetName(char *name, int length, int device) { strncpy(name, "NVIDIA H200", length); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = 9; return 0; }
int cuDeviceGetUuid(unsigned char *uuid, int device) { memset(uuid, 7, 16); return 0; }
int cuDriverGetVersion(int *version) { *version = 12050; return 0; }
"""
PEER = "from benchmarks.peers import fit_keras; fit_keras.main()"
STARTS = "from ringscope import ring; ring.init()"
REFUSES = "from harness.training import facts; facts.check_seen('jax', [])"


def ran(folder: Path, code: str, *words: str, gpus: int) -> subprocess.CompletedProcess[str]:
    """What Python says to the code, on a host whose driver shows so many GPUs."""
    (folder / "cuda.c").write_text(DRIVER)
    built = ["cc", "-shared", "-fPIC", f"-DGPUS={gpus}", "-Wl,-soname,libcuda.so.1", "-o", folder / "libcuda.so.1"]
    subprocess.run([*built, folder / "cuda.c"], check=True)
    environ = {**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(ROOT)}
    environ |= {"RINGSCOPE_XLA_CACHE": str(folder / "cache")}
    return subprocess.run([sys.executable, "-c", code, *words], env=environ, capture_output=True, text=True)


@pytest.mark.parametrize(("gpus", "says"), [(1, True), pytest.param(0, False, marks=pytest.mark.exhaustive)])
def test_ring_says_that_it_trains_on_the_cpu_of_a_host_with_a_gpu(tmp_path: Path, gpus: int, says: bool) -> None:
    done = ran(tmp_path, STARTS, gpus=gpus)
    assert done.returncode == 0, done.stderr
    assert ("TensorFlow does not see this host's NVIDIA H200, and trains on the CPU" in done.stderr) == says
    assert ("pip install 'tensorflow[and-cuda]'" in done.stderr or "`ringscope doctor`" in done.stderr) == says


@pytest.mark.parametrize(("gpus", "refuses"), [(1, True), (0, False)])
def test_a_measurement_is_refused_where_a_framework_does_not_find_the_gpu(
    tmp_path: Path, gpus: int, refuses: bool
) -> None:
    done = ran(tmp_path, REFUSES, gpus=gpus)
    assert (done.returncode != 0) == refuses, done.stderr
    assert ("jax sees no GPU" in done.stderr) == refuses


def test_a_benchmark_that_is_refused_for_its_gpu_ends_in_a_line(tmp_path: Path) -> None:
    done = ran(tmp_path, PEER, "--way", "plain", "--model", "decoder", gpus=1)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("fit_keras: tensorflow sees no GPU in ")


def test_a_sweep_whose_cells_would_all_be_refused_for_their_gpu_is_refused_before_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = {"index": 0, "uuid": "GPU-0", "name": "NVIDIA H200", "memory_bytes": 1 << 37}
    monkeypatch.setattr("harness.machine.nvml.visible_gpus", lambda: [gpu])
    monkeypatch.setattr("harness.machine.describe.probe_libraries", lambda: {"tensorflow": {"gpus": 0}})
    with pytest.raises(RingscopeError, match="tensorflow sees no GPU in .*CUDA_VISIBLE_DEVICES="):
        bench.command(["--models", "mlp", "--ranks", "1", "--out", str(tmp_path / "sweep")], standalone_mode=False)
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize(
    ("how", "strategy", "seen"),
    [
        (sweep.How(), "horovod", {"gpus": 0}),  # the user wants the CPU, or has no other
        (sweep.How(gpus=1), "horovod", {"gpus": 1}),
        (sweep.How(gpus=1), "horovod", None),  # TensorFlow does not load: cells say why
        (sweep.How(gpus=1), "keras-jax", {"gpus": 0}),
        (sweep.How(gpus=1, hosts=(Host("far", 1),)), "horovod", {"gpus": 0}),
        (sweep.How(gpus=1, launcher="slurm"), "horovod", {"gpus": 0}),
        (sweep.How(gpus=1, container="image.sif"), "horovod", {"gpus": 0}),
    ],
)
def test_other_sweeps_begin(
    how: sweep.How, strategy: str, seen: dict[str, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.machine.describe.probe_libraries", lambda: {"tensorflow": seen})
    sweep.check_gpus([Cell("mlp", 1, 8, strategy=strategy)], how)
