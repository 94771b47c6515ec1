"""The commit: kept in the process's memory, where it survives a restart of the script, and sent to ranks with an older
one."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..exchange import from_all, on_host
from ..internals.frameworks import hvd, tf
from ..lost import restart


@dataclass
class Commit:
    """A committed state of the training. number: counts commits; 0: none yet. models: number of the call of
    ring.distribute -> the model's state. fits: finished calls of `fit`, {"epoch": [...], "history": {...}}. fit: the
    state of the call that is running. values: of the user's own loops."""

    number: int = 0
    models: dict[int, dict[str, Any]] = field(default_factory=dict)
    fits: list[dict[str, Any]] = field(default_factory=list)
    fit: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)


_current: Commit | None = None
_file: int | None = None


def agreed() -> Commit:
    """The current commit, the same on all ranks. At the first call the ranks exchange their commits, and all take the
    newest."""
    global _current
    if _current is None:
        _current = _everybodys(_kept())
    return _current


def keep() -> None:
    """Store the current commit for a restart of the script. If the restart comes while this function runs, it finds
    the previous commit."""
    global _file
    commit = agreed()
    commit.number += 1
    # A file in memory only: it needs no disk space, and vanishes with the process.
    file = os.memfd_create("ring commit")
    with os.fdopen(os.dup(file), "wb") as out:
        pickle.dump(commit, out, protocol=5)
    restart.carry(commit=file)
    old, _file = _file, file
    if old is not None:
        os.close(old)


def _kept() -> Commit:
    global _file
    _file = restart.before().commit
    if _file is None:
        return Commit()
    os.lseek(_file, 0, os.SEEK_SET)
    with os.fdopen(os.dup(_file), "rb") as known:
        commit = pickle.load(known)
    assert isinstance(commit, Commit)
    return commit


def _everybodys(own: Commit) -> Commit:
    """The newest of the ranks' commits, on every rank."""
    if hvd.size() == 1:
        return own
    numbers = from_all(own.number, "commits")
    newest = max(numbers)
    if all(number == newest for number in numbers):
        return own
    root = numbers.index(newest)
    arrays: list[pickle.PickleBuffer] = []
    rest = pickle.dumps(own, protocol=5, buffer_callback=arrays.append) if hvd.rank() == root else b""
    parts = [np.asarray(array.raw()) for array in arrays]  # each array as bytes
    with on_host():
        rest, sizes = hvd.broadcast_object((rest, [part.size for part in parts]), root_rank=root, name="commit")
        parts = parts or [np.zeros(size, np.uint8) for size in sizes]
        sent = [
            np.asarray(hvd.broadcast(tf.constant(part), root_rank=root, name=f"commit_{i}") if part.size else part)
            for i, part in enumerate(parts)
        ]
    if hvd.rank() == root:
        return own
    commit = pickle.loads(rest, buffers=sent)
    assert isinstance(commit, Commit)
    return commit
