"""Real training on two ranks while the system clock is set back by two hours."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.running import PATIENCE_S, ROOT, environment, rows, wait_until

pytestmark = [
    pytest.mark.train,
    pytest.mark.skipif(importlib.util.find_spec("horovod") is None, reason="Horovod is not installed"),
    pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc, which makes the library that shows another time"),
]
# Shows the system clock as it is until the file CLOCK_SET_BACK_AT exists, and two hours less from then on. It looks for
# that every 10 ms, as ranks that wait for each other ask for the time without a pause. The monotonic clock goes on, as
# it does where a clock is set.
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void find(void) {
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
}

static long back(void) {
    static volatile long seconds, looked_at;
    struct timespec now;
    if (seconds) return seconds;
    real(CLOCK_MONOTONIC, &now);
    long hundredths = now.tv_sec * 100 + now.tv_nsec / 10000000;
    if (hundredths == looked_at) return 0;
    looked_at = hundredths;
    int before = errno;
    const char *at = getenv("CLOCK_SET_BACK_AT");
    if (at && access(at, F_OK) == 0) seconds = 7200;
    errno = before;
    return seconds;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    if (!real) find();
    int failed = real(id, now);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec -= back();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now) *now = found.tv_sec;
    return found.tv_sec;
}
"""
HOW = ["--models", "mlp", "--feeds", "resident", "--per-rank-batch", "8", "--ranks", "2", "--launches", "1"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("phase", ["import", "train", "finish"])
@pytest.mark.parametrize("launcher", ["horovodrun", "mpirun"])
def test_a_bench_ends_where_the_clock_is_set_back_meanwhile(launcher: str, phase: str, tmp_path: Path) -> None:
    source, library, at = tmp_path / "clock.c", tmp_path / "clock.so", tmp_path / "set back"
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    environ = environment() | {"LD_PRELOAD": str(library), "CLOCK_SET_BACK_AT": str(at)}
    out = tmp_path / "out"
    argv = [sys.executable, "-m", "harness", "bench", "--out", out, *HOW, "--launcher", launcher, "--steps", "300"]
    words = [str(word) for word in argv]
    sweep = subprocess.Popen(words, env=environ, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def there() -> bool:  # or already past it
        said = [path.read_text() for path in out.glob("*/0/rank*.progress")]
        return sweep.poll() is not None or any(f'"{one}"' in text for text in said for one in (phase, "done"))

    wait_until(there, PATIENCE_S, lambda: os.listdir(out))
    at.touch()
    said, _ = sweep.communicate(timeout=PATIENCE_S)
    assert sweep.returncode == 0, said
    (row,) = rows(out)
    assert row["status"] == "ok" and float(row["samples_per_s_global"]) > 0
