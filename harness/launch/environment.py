"""The variables a rank gets. horovodrun puts its whole environment on ssh's command line, where everybody on both hosts
can read it: so only what training needs is passed, and never a token that happens to be set."""

from __future__ import annotations

import os
import re
import site
import sys
from collections.abc import Mapping
from pathlib import Path

_NAMES = """
    HOME HOSTNAME LANG LANGUAGE LD_LIBRARY_PATH LD_PRELOAD LIBRARY_PATH LOGNAME PATH PYTHONPATH SHELL SSH_AUTH_SOCK
    TERM TMPDIR TZ USER VIRTUAL_ENV XDG_RUNTIME_DIR MALLOC_ARENA_MAX MALLOC_CONF GPU_DEVICE_ORDINAL
    PYTHONHASHSEED PYTHONUNBUFFERED
"""
_FAMILIES = """
    LC_ CONDA_PREFIX CUDA_ CUDNN_ FI_ GLOO_ GOMP_ HOROVOD_ HIP_ IBV_ KERAS_ KMP_ MKL_ NCCL_ NVIDIA_ NVTX_ OMP_ OMPI_
    OPAL_ OPENBLAS_ PMIX_ PRTE_ RDMAV_ RINGSCOPE_ ROCR_ SLURM_ TF_ UCX_ XLA_
"""
NAMES = frozenset(_NAMES.split())
FAMILIES = tuple(_FAMILIES.split())
# Names that a family lets in but that hold a secret all the same.
SECRET = re.compile(r"(SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|PRIVATE)", re.IGNORECASE)
# Terraform's, which share TensorFlow's first letters.
STRANGER = re.compile(r"TF_(VAR|CLI|WORKSPACE|DATA_DIR|TOKEN)")
# Of a launcher that this process itself runs under: a nested launch must not take itself for part of it.
INHERITED = re.compile(
    r"(OMPI_COMM_WORLD_|OMPI_UNIVERSE|PMIX_(RANK|NAMESPACE|SERVER)|HOROVOD_(RANK|SIZE|LOCAL_|CROSS_|GLOO_))"
)


def allowed(environ: Mapping[str, str]) -> dict[str, str]:
    """What a rank gets of `environ`, with this package on its path and root let through Open MPI's question."""
    env = {name: value for name, value in environ.items() if _passes(name)}
    root = str(Path(__file__).resolve().parents[2])
    if root not in site.getsitepackages():
        env["PYTHONPATH"] = ":".join(filter(None, (root, env.get("PYTHONPATH"))))
    # The launchers stand beside this Python, whether its environment is activated or not.
    env["PATH"] = ":".join(dict.fromkeys([str(Path(sys.executable).parent), *env.get("PATH", os.defpath).split(":")]))
    # Open MPI refuses root, which is who runs in containers.
    env.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
    env.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    return env


def _passes(name: str) -> bool:
    if SECRET.search(name) or STRANGER.match(name) or INHERITED.match(name):
        return False
    return name in NAMES or name.startswith(FAMILIES)
