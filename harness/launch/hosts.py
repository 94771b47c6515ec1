"""Hosts on which ranks may run: `--hosts a:4,b:4`, a host file, or a Slurm allocation."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from profiles.ground.errors import RingscopeError
from profiles.ground.files import as_text


@dataclass(frozen=True, slots=True)
class Host:
    """A host and the number of ranks that it takes."""

    name: str
    slots: int

    def __str__(self) -> str:
        return f"{self.name}:{self.slots}"


def parse(text: str) -> tuple[Host, ...]:
    """Read hosts from `a:4,b:4`; a name without a number takes one rank."""
    hosts = tuple(_host(*part.strip().partition(":")[::2], whole=text) for part in text.split(",") if part.strip())
    if not hosts:
        raise RingscopeError(f"hosts: {text!r} names no host; write name:slots, as in a:4,b:4")
    return hosts


def read(path: Path) -> tuple[Host, ...]:
    """Read a host file: one host per line, `a slots=4` (Open MPI's form) or `a:4`; # begins a comment."""
    try:
        lines = [line.partition("#")[0].strip() for line in as_text(path.read_bytes()).splitlines()]
    except (OSError, ValueError) as error:
        raise RingscopeError(
            f"{path}: {getattr(error, 'strerror', error)}; name a file with one host per line, such as: node1 slots=4"
        ) from error
    hosts = []
    for line in filter(None, lines):
        match = re.fullmatch(r"(\S+?)(?::(\S+)|\s+slots\s*=\s*(\S+))?(?:\s+\S+\s*=\s*\S+)*", line)
        if not match:
            raise RingscopeError(f"{path}: cannot read the line {line!r}; write it as: a slots=4")
        hosts.append(_host(match[1], match[2] or match[3] or "", whole=line))
    if not hosts:
        raise RingscopeError(f"{path}: no host in it; write one host per line, such as: node1 slots=4")
    # PBS and LSF write a host's name once per rank.
    names = dict.fromkeys(host.name for host in hosts)
    return tuple(Host(name, sum(host.slots for host in hosts if host.name == name)) for name in names)


def _host(name: str, slots: str, *, whole: str) -> Host:
    # The name is used on ssh's and mpirun's command lines, where a name that begins with a dash would be an option.
    if not re.fullmatch(r"[A-Za-z0-9_\[][A-Za-z0-9_.\-\]]*", name):
        raise RingscopeError(f"hosts: {name!r} in {whole!r} is not a host name; write name:slots, as in a:4,b:4")
    if slots and not (slots.isdigit() and int(slots) > 0):
        raise RingscopeError(f"hosts: {slots!r} slots in {whole!r}; write name:slots, as in a:4,b:4")
    return Host(name, int(slots or 1))


def take(hosts: Sequence[Host], ranks: int) -> tuple[Host, ...]:
    """The first hosts with enough slots for the ranks; the last host gets only the slots that are still needed.
    Returns () if no host is named. Raises RingscopeError if the hosts have too few slots."""
    if not hosts:
        return ()
    taken: list[Host] = []
    left = ranks
    for host in hosts:
        if left > 0:
            taken.append(Host(host.name, min(host.slots, left)))
            left -= host.slots
    if left > 0:
        raise RingscopeError(
            f"{ranks} ranks, but the hosts have {ranks - left} slots: {','.join(map(str, hosts))};"
            " name more hosts or slots"
        )
    return tuple(taken)


def is_local(name: str) -> bool:
    """True if the name means this machine."""
    return name in ("localhost", "127.0.0.1", "::1", socket.gethostname(), socket.getfqdn())
