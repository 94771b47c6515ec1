"""`python pair.py python WORD...`: two ranks that run `python WORD...`, in forks of a prepared process (prepared.py).

They meet over Gloo as under horovodrun, which takes 1 s of CPU more to start them: it runs two more processes a rank.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
from horovod.runner.http.http_server import RendezvousServer

from tests.harness.prepared import run

RANKS = 2
GRACE_S = 20  # for the rank that is left, to say what it has to, and end, on a machine that is busy


def meet(ranks: int) -> tuple[int, dict[str, str]]:
    """The process by which they meet, and the variables that say where.

    It is one of its own: threads here would be in the middle of something in each fork.
    """
    told, tells = os.pipe()
    serving = os.fork()
    if not serving:
        end_with_parent()
        server = RendezvousServer()
        os.write(tells, str(server.start()).encode())
        server.init(get_host_assignments(parse_hosts(f"localhost:{ranks}"), ranks))
        os.write(tells, b"\n")
        time.sleep(1 << 20)
    os.close(tells)
    with os.fdopen(told) as port:
        return serving, {
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
            "HOROVOD_GLOO_RENDEZVOUS_PORT": port.readline().strip(),
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_IFACE": "lo",
        }


def place(rank: int, ranks: int) -> dict[str, str]:
    """What a launcher tells a rank of itself."""
    numbers = {"RANK": rank, "SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_SIZE": ranks, "CROSS_RANK": 0, "CROSS_SIZE": 1}
    return {f"HOROVOD_{name}": str(number) for name, number in numbers.items()} | {"HOROVOD_HOSTNAME": "localhost"}


def end_with_parent() -> None:
    """Else who reads the parent's output would wait for its children, too, once it has been ended for taking long."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def main() -> None:
    _, where = meet(RANKS)
    ranks: dict[int, int] = {}
    for rank in range(RANKS):
        if not (pid := os.fork()):
            end_with_parent()
            os.environ |= where | place(rank, RANKS)
            return run(sys.argv[2:])
        ranks[pid] = rank
    sys.exit(wait(ranks))


def wait(ranks: dict[int, int]) -> int:
    """1 where a rank has failed, which ends the other, too."""
    failed = 0
    while ranks:
        pid, status = os.wait()
        rank, code = ranks.pop(pid), os.waitstatus_to_exitcode(status)
        if code and not failed:
            failed = 1
            print(f"rank {rank} ended with code {code}", file=sys.stderr)
            signal.signal(signal.SIGALRM, lambda *_: [os.kill(other, signal.SIGKILL) for other in ranks])
            signal.alarm(GRACE_S)
    return failed


if __name__ == "__main__":
    main()
