"""The ssh that launchers go to other hosts with."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

# Never a question, which nobody would answer; a host seen for the first time is let in, one that has changed is not.
OPTIONS = "-o BatchMode=yes -o ConnectTimeout=15 -o StrictHostKeyChecking=accept-new"
# A host that dies meanwhile is given up within a minute.
KEEP_ALIVE = "-o ServerAliveInterval=15 -o ServerAliveCountMax=3"
_OF_HOROVODRUN = {"-p": "-p", "--ssh-port": "-p", "-i": "-i", "--ssh-identity-file": "-i"}
_OF_MPIRUN = ("plm_ssh_args", "plm_rsh_args")


def words(launcher: str, launcher_args: Sequence[str]) -> list[str]:
    """`ssh` with what the launcher's own is told by its arguments; empty where it does not go by ssh."""
    if launcher not in ("horovodrun", "mpirun"):
        return []
    found = ["ssh", *shlex.split(OPTIONS), *shlex.split(KEEP_ALIVE)]
    given = [part for word in launcher_args for part in (word.split("=", 1) if word.startswith("--") else [word])]
    for name, value in zip(given, given[1:], strict=False):
        if launcher == "horovodrun" and name in _OF_HOROVODRUN:
            found += [_OF_HOROVODRUN[name], value]
        elif launcher == "mpirun" and name in _OF_MPIRUN:
            found += shlex.split(value)
    return found
