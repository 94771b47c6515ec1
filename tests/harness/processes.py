"""Starting real ranks from tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAUNCHERS = {
    "gloo": ["horovodrun", "--gloo", "-np", "2"],
    "mpirun": ["mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none"],
}


def environment() -> dict[str, str]:
    """Ours, with the environment's programs first, without GPUs, and as root where that is so."""
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": "-1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


def run_python(*words: str, prefix: Sequence[str] = (), timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    """`prefix python words...` in the repository's root, output caught."""
    command = [*prefix, sys.executable, *words]
    return subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=timeout_s)
