"""`horovodrun` with Gloo: Horovod's own launcher, which needs no MPI."""

from __future__ import annotations

import importlib.util
import multiprocessing
import sys
from collections.abc import Sequence

from profiles.ground.errors import RingscopeError

from .hosts import Host, is_local

# Seconds that horovodrun waits at most for its service on every host: few, so that one missing host does not use up the
# whole time limit of the launch.
START_TIMEOUT_S = 45


def argv(
    rank_argv: Sequence[str], *, ranks: int, hosts: Sequence[Host], env: dict[str, str], launcher_args: Sequence[str]
) -> list[str]:
    """The command line. No variable is named, because ranks inherit horovodrun's environment. Raises RingscopeError
    if horovodrun cannot make semaphores here."""
    _need_semaphores()
    where = ",".join(map(str, hosts)) or f"localhost:{ranks}"
    installed = importlib.util.find_spec("horovod")  # this Python has no Horovod; use the horovodrun on the PATH
    here = ["--here"] if all(is_local(host.name) for host in hosts) else []
    return [
        *([sys.executable, "-m", "harness.launch.gloo", *here] if installed else ["horovodrun"]),
        "--gloo",
        "-np",
        str(ranks),
        "-H",
        where,
        "--disable-cache",  # without this horovodrun believes for an hour that a host answers
        "--start-timeout",
        str(START_TIMEOUT_S),
        *launcher_args,
        *rank_argv,
    ]


def _need_semaphores() -> None:
    """Raise RingscopeError if no semaphore can be made, because horovodrun's own error names neither file nor
    remedy."""
    try:
        multiprocessing.get_context("fork").Lock()
    except OSError as error:
        problem = f"horovodrun needs semaphores, and none can be made here ({error.strerror})"
        raise RingscopeError(f"{problem}; mount a writable /dev/shm, or give --launcher mpirun") from None
