"""The environment variables that a rank gets: all on this host, only names that training needs on another one.

horovodrun puts its whole environment on ssh's command line, where everybody on both hosts can read it. So no other
variable goes to another host. On this host ranks inherit the environment from their launcher.
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
# Of libraries whose settings are many and never secret.
_FAMILIES = """
    LC_ FI_ GLOO_ GOMP_ HOROVOD_ IBV_ KERAS_ KMP_ MKL_ NCCL_ NVTX_ OMP_ OMPI_ OPAL_ OPENBLAS_ PMIX_ PRTE_ RDMAV_
    RINGSCOPE_ TF_AUTOTUNE_ TF_CPP_ TF_CUDA_ TF_CUDNN_ TF_DISABLE_ TF_DUMP_ TF_ENABLE_ TF_FORCE_ TF_GPU_ TF_NUM_ TF_USE_
    TF_XLA_ UCX_ XLA_
"""
# Variables of an allocation that Open MPI's daemons and srun read: for launches inside one.
_OF_SLURM = """
    SLURM_CLUSTER_NAME SLURM_CONF SLURM_CPUS_ON_NODE SLURM_CPUS_PER_TASK SLURM_JOBID SLURM_JOB_CPUS_PER_NODE
    SLURM_JOB_ID SLURM_JOB_NODELIST SLURM_JOB_NUM_NODES SLURM_JOB_PARTITION SLURM_NNODES SLURM_NODELIST
    SLURM_NPROCS SLURM_WHOLE SLURM_NTASKS SLURM_NTASKS_PER_NODE SLURM_TASKS_PER_NODE
"""
NAMES = frozenset(_NAMES.split())
FAMILIES = tuple(_FAMILIES.split())
OF_SLURM = frozenset(_OF_SLURM.split())
# Words of a name that a family lets in but that holds a secret all the same.
SECRET = re.compile(
    r"SECRET|TOKEN|PASSW|CREDENTIAL|PRIVATE|COOKIE|(^|_)(API_?)?(AUTH|BEARER|CERT|JWT|KEY|PASS|PWD)(_|$)", re.IGNORECASE
)
# Set by a launcher that this process runs under: a launch inside it would take itself for part of the outer one.
INHERITED = re.compile(
    r"OMPI_(COMM_WORLD_|WORLD_|UNIVERSE|APP_CTX_|NUM_APP_CTX|FIRST_RANKS|FILE_LOCATION|ARGV$|COMMAND$)|"
    r"OMPI_MCA_(ess$|pmix$|orte_ess_|orte_hnp_uri|orte_local_daemon_uri|num_procs$)|PMI_|MPI_LOCAL(RANKID|NRANKS)$|"
    r"PMIX_(RANK|NAMESPACE|SERVER|SECURITY_MODE|GDS_MODULE|BFROP_BUFFER_TYPE|VERSION|HOSTNAME)|PRTE_LAUNCHED|"
    r"TORCHELASTIC_|RINGSCOPE_(RANK|SIZE|RECORDED)$|"
    r"HOROVOD_(RANK|SIZE|LOCAL_|CROSS_|GLOO_(IFACE|RENDEZVOUS))|"
    # By these mpirun knows an allocation and its nodes, and a rank its number. The rest only names the job.
    r"SLURM_(?!JOB_(ID|NAME|USER|ACCOUNT|PARTITION|QOS)$|ARRAY_|SUBMIT_|TMPDIR$|CLUSTER_NAME$)"
)


def on_this_host(environ: Mapping[str, str], more: Collection[str] = ()) -> dict[str, str]:
    """All variables of `environ` but those of a launcher that this process runs under, with what `allowed` adds.

    more: names of variables that are passed in any case.
    """
    mine = {name: value for name, value in environ.items() if not INHERITED.match(name)}
    return mine | allowed(environ, more)


def allowed(environ: Mapping[str, str], more: Collection[str] = ()) -> dict[str, str]:
    """The variables of `environ` that a rank gets, with this package on its path and Open MPI told that root may run.

    more: names of variables that are passed in any case.
    """
    env = {name: value for name, value in environ.items() if name in more or passes(name)}
    if paths := package_path(env.get("PYTHONPATH")):
        env["PYTHONPATH"] = paths
    env |= {"PATH": search_path(env), **home(env)}
    # Open MPI refuses root, which is who runs in containers.
    env.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
    env.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    return env


def package_path(paths: str | None) -> str:
    """PYTHONPATH with this package on it, unless it is installed; "" for none."""
    root = str(Path(__file__).resolve().parents[2])
    return ":".join(filter(None, ("" if root in site.getsitepackages() else root, paths)))


def search_path(environ: Mapping[str, str]) -> str:
    """PATH with the programs of this Python's environment first, whether it is activated or not.

    Without an empty entry, which stands for the current directory.
    """
    folders = [str(Path(sys.executable).parent), *(environ.get("PATH") or os.defpath).split(os.pathsep)]
    return os.pathsep.join(dict.fromkeys(filter(None, folders)))


def home(environ: Mapping[str, str]) -> dict[str, str]:
    """HOME, without which Open MPI starts nothing, as the user's entry names it where the environment does not."""
    try:
        return {"HOME": environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir}
    except KeyError:  # a container's user without an entry
        return {}


def passes(name: str) -> bool:
    """True if a variable of this name reaches a rank by itself."""
    if name in NAMES:
        return True
    return name.startswith(FAMILIES) and not SECRET.search(name) and not INHERITED.match(name)
