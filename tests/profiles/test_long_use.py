"""A process that measures recordings for days holds no more after the last than after the first few."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.recordings import DATA

FILES = [DATA / f"dense41m-{one}.rank0.sqlite.xz" for one in ("2gpu-pinned", "1gpu-pinned-float32")]
# Between two times memory differs by some 100 KiB, as it is given back in pages.
GROWS_KIB, THREADS = 4 << 10, 2
TIMES = 300


@pytest.mark.exhaustive
def test_memory_and_descriptors_are_flat_after_the_first_tenth() -> None:
    command = [sys.executable, "-m", "tests.profiles.long_use", str(TIMES), *map(str, FILES)]
    held = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    resident, descriptors, threads = zip(*held[TIMES // 10 :], strict=True)
    assert max(resident) - resident[0] < GROWS_KIB, resident
    assert set(descriptors) == {descriptors[0]}
    assert max(threads) <= threads[0] + THREADS
