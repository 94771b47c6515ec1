"""Find out from environment variables whether a launcher of ranks started this process."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

# Launchers (of Horovod, MPI implementations, Slurm and others) set these variables; a process without them runs alone.
_LAUNCHED = re.compile(
    r"HOROVOD_(RANK|SIZE|ELASTIC|RENDEZVOUS|GLOO_RENDEZVOUS)|OMPI_(COMM_WORLD|UNIVERSE)_|PMIX?_|MPI_LOCAL|MPIRUN_|MV2_COMM_"
    r"|HYD|JSM_NAMESPACE_|ALPS_APP_|PALS_|FLUX_TASK_|SLURM_(PROCID|STEP)|MP_CHILD"
)


def launched(environ: Mapping[str, str] = os.environ) -> bool:
    """True if a launcher of ranks started this process, even with one rank."""
    return any(_LAUNCHED.match(name) for name in environ)
