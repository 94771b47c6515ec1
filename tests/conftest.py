"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from tests.browser import chromium

pytest_plugins = ("tests.tiers", "tests.late", "tests.scheduler")

# Workers of pytest-xdist have one, of 80: what is printed would be as wide as that.
os.environ.pop("COLUMNS", None)

# Tests train for some steps: LLVM's optimisation takes more CPU than it saves, half of what XLA takes to compile, and
# so does the newer of XLA's two ways to make code for CPUs, a quarter of what scripts by people take.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")

# A job in a shell's background ignores Ctrl-C, and so would everything that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine fails no test: hypothesis would after 200 ms an example. Nor does chance: each run has the same
# examples. `make test-all` draws others.
settings.register_profile("alike", deadline=None, derandomize=True)
settings.register_profile("drawn", deadline=None)
settings.load_profile("alike")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One browser for all tests: playwright starts once a process."""
    with chromium() as found:
        yield found


def pytest_collection_finish() -> None:
    """What was imported stays: no garbage collection need look through TensorFlow and all tests again."""
    gc.collect()
    gc.freeze()
