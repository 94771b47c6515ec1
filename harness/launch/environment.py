"""The environment variables of a rank. On this host a rank inherits all of the launcher's variables; a rank on another
host gets only the variables that training needs.

horovodrun puts its whole environment on ssh's command line, where every user of both hosts can read it.
"""

from __future__ import annotations

import os
import pwd
import re
import site
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

_NAMES = """
    HOME HOSTNAME LANG LANGUAGE LD_LIBRARY_PATH LD_PRELOAD LIBRARY_PATH LOGNAME PATH PYTHONPATH SHELL SSH_AUTH_SOCK
    TERM TMPDIR TZ USER VIRTUAL_ENV XDG_RUNTIME_DIR MALLOC_ARENA_MAX MALLOC_CONF GPU_DEVICE_ORDINAL
    PYTHONHASHSEED PYTHONUNBUFFERED PYTHONIOENCODING PYTHONUTF8 CONDA_PREFIX
    CUDA_CACHE_DISABLE CUDA_CACHE_MAXSIZE CUDA_CACHE_PATH CUDA_DEVICE_MAX_CONNECTIONS CUDA_DEVICE_ORDER CUDA_DIR
    CUDA_HOME CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING CUDA_MPS_LOG_DIRECTORY CUDA_MPS_PIPE_DIRECTORY CUDA_PATH
    CUDA_ROOT CUDA_VISIBLE_DEVICES CUDNN_LOGDEST_DBG CUDNN_LOGINFO_DBG CUDNN_LOGLEVEL_DBG
    NVIDIA_DRIVER_CAPABILITIES NVIDIA_TF32_OVERRIDE NVIDIA_VISIBLE_DEVICES TF_DETERMINISTIC_OPS TF_CONFIG
"""
# Prefixes of libraries that have many settings, none of them secret.
_FAMILIES = """
    LC_ FI_ GLOO_ GOMP_ HOROVOD_ IBV_ KERAS_ KMP_ MKL_ NCCL_ NVTX_ OMP_ OMPI_ OPAL_ OPENBLAS_ PMIX_ PRTE_ RDMAV_
    RINGSCOPE_ TF_AUTOTUNE_ TF_CPP_ TF_CUDA_ TF_CUDNN_ TF_DISABLE_ TF_DUMP_ TF_ENABLE_ TF_FORCE_ TF_GPU_ TF_NUM_ TF_USE_
    TF_XLA_ UCX_ XLA_
"""
# Variables of a Slurm allocation that Open MPI's daemons and srun read, for launches inside one.
_OF_SLURM = """
    SLURM_CLUSTER_NAME SLURM_CONF SLURM_CPUS_ON_NODE SLURM_CPUS_PER_TASK SLURM_JOBID SLURM_JOB_CPUS_PER_NODE
    SLURM_JOB_ID SLURM_JOB_NODELIST SLURM_JOB_NUM_NODES SLURM_JOB_PARTITION SLURM_NNODES SLURM_NODELIST
    SLURM_NPROCS SLURM_WHOLE SLURM_NTASKS SLURM_NTASKS_PER_NODE SLURM_TASKS_PER_NODE
"""
NAMES = frozenset(_NAMES.split())
FAMILIES = tuple(_FAMILIES.split())
OF_SLURM = frozenset(_OF_SLURM.split())
# Words in a variable's name that mark it as secret, even if its prefix is allowed.
SECRET = re.compile(
    r"SECRET|TOKEN|PASSW|CREDENTIAL|PRIVATE|COOKIE|(^|_)(API_?)?(AUTH|BEARER|CERT|JWT|KEY|PASS|PWD)(_|$)", re.IGNORECASE
)
# A launcher sets these. A second launcher that inherits them would take itself for a part of the first launch.
INHERITED = re.compile(
    r"OMPI_(COMM_WORLD_|WORLD_|UNIVERSE|APP_CTX_|NUM_APP_CTX|FIRST_RANKS|FILE_LOCATION|ARGV$|COMMAND$)|"
    r"OMPI_MCA_(ess$|pmix$|orte_ess_|orte_hnp_uri|orte_local_daemon_uri|num_procs$)|PMI_|MPI_LOCAL(RANKID|NRANKS)$|"
    r"PMIX_(RANK|NAMESPACE|SERVER|SECURITY_MODE|GDS_MODULE|BFROP_BUFFER_TYPE|VERSION|HOSTNAME)|PRTE_LAUNCHED|"
    r"TORCHELASTIC_|RINGSCOPE_(RANK|SIZE|RECORDED)$|"
    r"HOROVOD_(RANK|SIZE|LOCAL_|CROSS_|GLOO_(IFACE|RENDEZVOUS))|"
    # By these mpirun finds an allocation and its nodes, and a rank finds its number. The names excepted here only
    # describe the job.
    r"SLURM_(?!JOB_(ID|NAME|USER|ACCOUNT|PARTITION|QOS)$|ARRAY_|SUBMIT_|TMPDIR$|CLUSTER_NAME$)"
)


def on_this_host(environ: Mapping[str, str], more: Collection[str] = ()) -> dict[str, str]:
    """`environ` without the variables that a launcher above this process has set, and with the changes that
    `allowed` makes. more: names of variables that are passed in any case."""
    mine = {name: value for name, value in environ.items() if not INHERITED.match(name)}
    return mine | allowed(environ, more)


def allowed(environ: Mapping[str, str], more: Collection[str] = ()) -> dict[str, str]:
    """The variables of `environ` that a rank on another host gets, with this package on PYTHONPATH; Open MPI may run
    as root. more: names of variables that are passed in any case."""
    env = {name: value for name, value in environ.items() if name in more or passes(name)}
    if paths := package_path(env.get("PYTHONPATH")):
        env["PYTHONPATH"] = paths
    env |= {"PATH": search_path(env), **home(env)}
    # Open MPI refuses to run as root, the usual user in containers.
    env.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
    env.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    return env


def package_path(paths: str | None) -> str:
    """PYTHONPATH with this package on it, unless the package is installed; "" if both are empty."""
    root = str(Path(__file__).resolve().parents[2])
    return ":".join(filter(None, ("" if root in site.getsitepackages() else root, paths)))


def search_path(environ: Mapping[str, str]) -> str:
    """PATH with the programs of this Python's environment first, whether it is activated or not. Empty entries are
    dropped, because they mean the current directory."""
    folders = [str(Path(sys.executable).parent), *(environ.get("PATH") or os.defpath).split(os.pathsep)]
    return os.pathsep.join(dict.fromkeys(filter(None, folders)))


def home(environ: Mapping[str, str]) -> dict[str, str]:
    """{"HOME": folder}, without which Open MPI does not start: from the environment, else from the password
    database."""
    try:
        return {"HOME": environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir}
    except KeyError:  # a container's user may have no entry in the database
        return {}


def passes(name: str) -> bool:
    """True if ranks get a variable of this name by default."""
    if name in NAMES:
        return True
    return name.startswith(FAMILIES) and not SECRET.search(name) and not INHERITED.match(name)
