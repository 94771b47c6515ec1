"""What is committed: kept in this process's memory, where it outlives a new beginning, and shared with who has less."""

from __future__ import annotations

import io
import os
import pickle
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..exchange import from_all, on_host
from ..internals.frameworks import hvd, tf
from ..lost import restart

__all__ = ["Commit", "agreed", "keep"]


@dataclass
class Commit:
    """number: counts commits, 0 before the first. models: by the number of the call of
    ring.distribute. fits: the calls of `fit` that are over, {"epoch": [...], "history": {...}}. fit: the state of the
    call that is going on. values: the values of the user's own loops."""

    number: int = 0
    models: dict[int, dict[str, Any]] = field(default_factory=dict)
    fits: list[dict[str, Any]] = field(default_factory=list)
    fit: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)


_current: Commit | None = None
_file: int | None = None


def agreed() -> Commit:
    """The commit at hand, the same on all ranks: asked for the first time they meet, and the newest is everybody's."""
    global _current
    if _current is None:
        _current = _everybodys(_kept())
    return _current


def keep() -> None:
    """Write the commit at hand to where a new beginning finds it. One that is cut off by it leaves the one before."""
    global _file
    commit = agreed()
    commit.number += 1
    # A file of memory alone: it needs no room on a disk, and is gone with the process.
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
    """The newest of the ranks' commits."""
    if hvd.size() == 1:
        return own
    numbers = from_all(own.number, "commits")
    newest = max(numbers)
    if all(number == newest for number in numbers):
        return own
    root = numbers.index(newest)
    leaves, shape = _apart(own) if hvd.rank() == root else ([], None)
    facts = [(leaf.shape, leaf.dtype.str) for leaf in leaves]
    with on_host():
        shape, facts = hvd.broadcast_object((shape, facts), root_rank=root, name="commit")
        arrays = []
        for i, (dimensions, kind) in enumerate(facts):
            array = leaves[i] if leaves else np.zeros(dimensions, np.dtype(kind))
            # As bytes, since Horovod does not know all types.
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            sent = hvd.broadcast(tf.constant(flat), root_rank=root, name=f"commit_{i}") if flat.size else flat
            arrays.append(np.asarray(sent).view(np.dtype(kind)).reshape(dimensions))
    return own if hvd.rank() == root else _together(shape, arrays)


class _Arrays(pickle.Pickler):
    """Puts arrays aside."""

    def __init__(self, out: Any) -> None:
        super().__init__(out, protocol=5)
        self.found: list[np.ndarray[Any, Any]] = []

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, np.ndarray) or value.dtype == object:
            return None
        self.found.append(value)
        return len(self.found) - 1


class _FromArrays(pickle.Unpickler):
    def __init__(self, shape: Any, arrays: list[Any]) -> None:
        super().__init__(shape)
        self._arrays = arrays

    def persistent_load(self, number: int) -> Any:
        return self._arrays[number]


def _apart(commit: Commit) -> tuple[list[Any], bytes]:
    """(its arrays, the rest of it)."""
    out = io.BytesIO()
    pickler = _Arrays(out)
    pickler.dump(commit)
    return pickler.found, out.getvalue()


def _together(shape: bytes, arrays: list[Any]) -> Commit:
    commit = _FromArrays(io.BytesIO(shape), arrays).load()
    assert isinstance(commit, Commit)
    return commit
