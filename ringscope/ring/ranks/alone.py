"""Start Horovod without MPI in a process that no launcher started: it is the only rank, which MPI takes a second to
find out.

Horovod reads variables of the environment when it starts. They are removed afterwards, so that processes started by
this one do not inherit them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ..internals.frameworks import hvd

# Launchers (of Horovod, MPI implementations, Slurm and others) set these variables; a process without them runs alone.
_LAUNCHED = re.compile(
    r"HOROVOD_(RANK|SIZE|ELASTIC|RENDEZVOUS|GLOO_RENDEZVOUS)|OMPI_(COMM_WORLD|UNIVERSE)_|PMIX?_|MPI_LOCAL|MPIRUN_|MV2_COMM_"
    r"|HYD|JSM_NAMESPACE_|ALPS_APP_|PALS_|FLUX_TASK_|SLURM_(PROCID|STEP)|MP_CHILD"
)
ONE_RANK = {
    **{f"HOROVOD_{name}RANK": "0" for name in ("", "LOCAL_", "CROSS_")},
    **{f"HOROVOD_{name}SIZE": "1" for name in ("", "LOCAL_", "CROSS_")},
    "HOROVOD_CONTROLLER": "gloo",
    "HOROVOD_CPU_OPERATIONS": "gloo",
    "HOROVOD_GLOO_IFACE": "lo",  # an address, which works even if the host cannot resolve its own name
}


def launched(environ: Mapping[str, str] = os.environ) -> bool:
    """True if a launcher of ranks started this process, even with one rank."""
    return any(_LAUNCHED.match(name) for name in environ)


@contextmanager
def alone() -> Iterator[None]:
    """Within this context, Horovod starts as the only rank if no launcher started the process; otherwise nothing
    changes."""
    taken = sys.platform == "linux" and hvd.gloo_built() and not launched() and not set(ONE_RANK) & set(os.environ)
    os.environ.update(ONE_RANK if taken else {})
    try:
        yield
    finally:
        for name in ONE_RANK if taken else ():
            os.environ.pop(name, None)
