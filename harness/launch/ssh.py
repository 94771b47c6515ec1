"""The options of ssh with which launchers reach other hosts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

# Never ask, because nobody would answer. Accept the key of a new host, and refuse a changed key.
OPTIONS = "-o BatchMode=yes -o ConnectTimeout=15 -o StrictHostKeyChecking=accept-new"
# Give up within a minute on a host that dies.
KEEP_ALIVE = "-o ServerAliveInterval=15 -o ServerAliveCountMax=3"
_OF_HOROVODRUN = {"-p": "-p", "--ssh-port": "-p", "-i": "-i", "--ssh-identity-file": "-i"}
_OF_MPIRUN = ("plm_ssh_args", "plm_rsh_args")


def words(launcher: str, launcher_args: Sequence[str]) -> list[str]:
    """`ssh` with the options that the launcher's arguments give to the launcher's own ssh; empty if the launcher uses
    no ssh."""
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
