"""A GPU that the driver shows and the framework does not find. A few lines of C stand in for the driver."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
STARTS = "from ringscope import ring; ring.init()"
REFUSES = "from harness.training import facts; facts.check_seen('jax', [])"


def ran(folder: Path, code: str, *, gpus: int) -> subprocess.CompletedProcess[str]:
    """What Python says to the code, on a host whose driver shows so many GPUs."""
    (folder / "cuda.c").write_text(DRIVER)
    built = ["cc", "-shared", "-fPIC", f"-DGPUS={gpus}", "-Wl,-soname,libcuda.so.1", "-o", folder / "libcuda.so.1"]
    subprocess.run([*built, folder / "cuda.c"], check=True)
    environ = {**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(ROOT)}
    environ |= {"RINGSCOPE_XLA_CACHE": str(folder / "cache")}
    return subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)


@pytest.mark.parametrize(("gpus", "says"), [(1, True), (0, False)])
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
