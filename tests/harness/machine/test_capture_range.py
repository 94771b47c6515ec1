"""The capture range keeps the device of its thread. A few lines of C stand in for CUDA, which needs a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recordings import ROOT

CUDA = """
static int current = CURRENT, active[] = {CONTEXTS};
int cudaGetDevice(int *device) { *device = current; return 0; }
int cudaSetDevice(int device) { current = device; return 0; }
int cudaProfilerStart(void) { return 0; }
int cudaProfilerStop(void) { return 0; }
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = 3; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is) { *is = active[device]; return 0; }
"""
READ = """
import ctypes
cudart = ctypes.CDLL("libcudart.so")
from harness.machine import capture_range
with capture_range.opened():
    device = ctypes.c_int()
    cudart.cudaGetDevice(ctypes.byref(device))
    print(device.value)
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize(
    ("current", "contexts", "then"),
    [
        (1, "1, 1, 0", 1),  # a rank on GPU 1 that has also put something on GPU 0
        (2, "1, 1, 1", 2),
        (0, "0, 1, 0", 1),  # a thread that has not used CUDA, in a process on GPU 1
        (0, "0, 0, 0", 0),
    ],
)
def test_the_capture_range_keeps_the_device_of_the_thread(
    tmp_path: Path, current: int, contexts: str, then: int
) -> None:
    (tmp_path / "cuda.c").write_text(CUDA)
    for name in ("libcudart.so", "libcuda.so.1"):
        told = [f"-DCURRENT={current}", f"-DCONTEXTS={contexts}", f"-Wl,-soname,{name}"]
        subprocess.run(["cc", "-shared", "-fPIC", *told, "-o", tmp_path / name, tmp_path / "cuda.c"], check=True)
    environ = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", READ], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(then)]
