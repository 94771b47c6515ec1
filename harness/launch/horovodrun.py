"""`horovodrun` with Gloo: Horovod's own launcher, no MPI needed."""

from __future__ import annotations

import importlib.util
import multiprocessing
import sys
from collections.abc import Sequence

from profiles.ground.errors import RingscopeError

from .hosts import Host, is_local

# horovodrun waits as long for the service of every host: one that is away must not use up the cell's whole limit.
START_TIMEOUT_S = 45


def argv(
    rank_argv: Sequence[str], *, ranks: int, hosts: Sequence[Host], env: dict[str, str], launcher_args: Sequence[str]
) -> list[str]:
    """The command line. Ranks inherit the environment from horovodrun, so it is not named again.

    Raises RingscopeError where it could not hold its ranks.
    """
    _need_semaphores()
    where = ",".join(map(str, hosts)) or f"localhost:{ranks}"
    installed = importlib.util.find_spec("horovod")  # else the PATH's own, of another Python
    here = ["--here"] if all(is_local(host.name) for host in hosts) else []
    return [
        *([sys.executable, "-m", "harness.launch.gloo", *here] if installed else ["horovodrun"]),
        "--gloo",
        "-np",
        str(ranks),
        "-H",
        where,
        "--disable-cache",  # else it goes on believing for an hour that a host answers
        "--start-timeout",
        str(START_TIMEOUT_S),
        *launcher_args,
        *rank_argv,
    ]


def _need_semaphores() -> None:
    """horovodrun would end with a word on a read-only file system, and of no file."""
    try:
        multiprocessing.get_context("fork").Lock()
    except OSError as error:
        problem = f"horovodrun needs semaphores, and none can be made here ({error.strerror})"
        raise RingscopeError(f"{problem}; mount a writable /dev/shm, or give --launcher mpirun") from None
