"""Measure units in the processes of an MPI job (`mpirun -np 16 ringscope timeline DIR`), each the files on its host.

If several processes see a recording, as on a shared disk, one of them measures it. The first process joins the
units, and asks the others to measure a unit again if its clock or first step must be corrected.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .. import readers
from ..ground import threads
from ..ground.errors import RingscopeError, UnreadableRecording
from ..readers import File
from .one_recording import Asked, Unit
from .processes import Made, Reading, Source, measured, remade
from .together import Again

# The address of Open MPI's launcher in the value of an environment variable, and how long to try to connect to it.
_SERVER = re.compile(r"tcp[46]://\[?([\w.:]+?)\]?:(\d{1,5})$")
_REPLY_S = 5
# Environment variables in which launchers give the number of processes. A batch script itself has none of them.
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


@dataclass(frozen=True, slots=True)
class _Seen:
    """A file as one process sees it. `identity` is equal in all processes that see the same file."""

    file: File
    identity: tuple[object, ...]
    bytes: int


def started() -> int:
    """The number of processes that a launcher such as mpirun started, with this one; 1 without a launcher."""
    return max((int(text) for name in _SIZES if (text := os.environ.get(name, "")).isdigit()), default=1)


def _told_by() -> str:
    return next(name for name in _SIZES if (text := os.environ.get(name, "")).isdigit() and int(text) == started())


def _launcher_has_ended() -> bool:
    """True if environment variables name an Open MPI launcher, and no process listens at its address any longer."""
    told = [value for name, value in os.environ.items() if name.startswith("PMIX_SERVER_URI")]
    for host, port in (match.groups() for value in told if (match := _SERVER.search(value))):
        try:
            with socket.create_connection((host, int(port)), timeout=_REPLY_S):
                return False
        except (OSError, OverflowError):
            continue
    return bool(told)


class Job:
    """This process's part in the MPI job. Every process makes one, with the same paths and options. Raises
    RingscopeError if MPI cannot be used."""

    def __init__(self, paths: Sequence[str | Path], asked: Asked, how: Reading) -> None:
        self._comm = _world()
        self.asked, self._how = asked, how
        self.first = self._comm.Get_rank() == 0
        threads.alone()
        self._open = readers.listed(paths, how.max_bytes)
        seen, error = self._listed()
        everybody: list[list[_Seen]] = self._comm.allgather(seen)
        errors = self._comm.allgather(error)
        files: dict[tuple[object, ...], _Seen] = {}
        each = [one for process in everybody for one in process]
        found = {one.identity[0] for one in each if len(one.identity) > 1}
        for one in each:
            # A file that is missing on this host is no error if another host has it.
            if len(one.identity) > 1 or one.identity[0] not in found:
                files.setdefault(one.identity, one)
        if not files:
            raise next(error for error in errors if error is not None)
        self.files = [one.file for one in files.values()]
        self._mine = {one.identity: one.file for one in seen}
        self._sees = [{one.identity for one in process} for process in everybody]
        self._identities = list(files)
        self._whose = _shared_out(list(files.values()), self._sees)

    def _listed(self) -> tuple[list[_Seen], UnreadableRecording | None]:
        try:
            return [_seen(file) for file in self._open.__enter__()], None
        except UnreadableRecording as error:  # this host may have no recordings
            return [], error

    def each(self, files: Sequence[File], told: readers.Progress | None) -> Iterator[Made]:
        """First process: the measured units of each file, in order, while the other processes run `follow`."""
        made: list[Made] = self._gathered(self._own(told), len(files))
        return iter(made)

    def again(self, sources: Sequence[Source], wanted: Sequence[Again]) -> list[Unit]:
        """First process: let the processes gather and measure units again. Each of `sources` is one of the files."""
        place = {id(file): number for number, file in enumerate(self.files)}
        asked = [(one, [place[id(sources[member])] for member in one.members]) for one in wanted]
        self._comm.bcast(asked)
        made: list[Unit] = self._gathered(self._remade(asked), len(asked))
        return made

    def follow(self) -> None:
        """Other processes: measure their files, then whatever the first process asks for, until it calls `end`."""
        self._comm.gather(self._own(None))
        while (asked := self._comm.bcast(None)) is not None:
            self._comm.gather(self._remade(asked))

    def end(self) -> None:
        """First process: let the other processes return from `follow`."""
        self._comm.bcast(None)

    def _own(self, told: readers.Progress | None) -> list[tuple[int, Any]]:
        mine = [place for place, process in enumerate(self._whose) if process == self._comm.Get_rank()]
        found = []
        for done, place in enumerate(mine):
            file = self._mine[self._identities[place]]
            if told:
                told(done, len(mine), file.path)
            found.append((place, _safely(partial(measured, file, self.asked, self._how))))
        return found

    def _remade(self, asked: Sequence[tuple[Again, list[int]]]) -> list[tuple[int, Any]]:
        """(index in `asked`, unit or error) for each unit that this process must measure again."""
        found = []
        for number, (one, files) in enumerate(asked):
            able = [all(self._identities[file] in seen for file in files) for seen in self._sees]
            if not any(able):
                problem = "the recordings of one GPU are on different hosts; copy them to one host"
                found += [(number, RingscopeError(problem))] if self.first else []
            elif self._chosen(able, files) == self._comm.Get_rank():
                sources = [self._mine[self._identities[file]] for file in files]
                found.append((number, _safely(partial(remade, sources, one, self.asked, self._how))))
        return found

    def _chosen(self, able: Sequence[bool], files: Sequence[int]) -> int:
        """The process that measured the first of these files, if it sees all of them; else the first process that
        does."""
        first = self._whose[files[0]]
        return first if able[first] else able.index(True)

    def _gathered(self, own: list[tuple[int, Any]], count: int) -> list[Any]:
        everybody: list[list[tuple[int, Any]]] = self._comm.gather(own)
        found = dict(pair for process in everybody for pair in process)
        for one in found.values():
            if isinstance(one, Exception) and not isinstance(one, UnreadableRecording):
                raise one
        return [found[number] for number in range(count)]


def _safely(work: Any) -> Any:
    """The result of `work`, or the exception that it raised: raised in one process, it would leave the others
    waiting."""
    try:
        return work()
    except Exception as error:
        return error


def _world() -> Any:
    if _launcher_has_ended():  # MPI would end this process without a message
        problem = f"{_told_by()} is left over from a launcher that has ended"
        raise RingscopeError(
            f"{problem}; give --processes 1, or unset the variables that are left over (all that begin with PMIX_ or "
            "OMPI_)"
        )
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        problem = f"{started()} processes were started together, but mpi4py does not load ({error})"
        raise RingscopeError(f"{problem}; pip install mpi4py, or start one process") from None
    if MPI.COMM_WORLD.Get_size() == 1:
        problem = f"{_told_by()} says that {started()} processes were started together, but MPI knows of only one"
        remedy = (
            "unset this variable if no MPI job runs; under Slurm try srun --mpi=pmix; or start ringscope once, with "
            "--processes N"
        )
        raise RingscopeError(f"{problem}; {remedy}")
    return MPI.COMM_WORLD


def _seen(file: File) -> _Seen:
    """Identify a file by path, size, inode and time, which agree in processes of several hosts only on a shared
    disk."""
    origin = file.folder if file.folder and file.folder.is_file() else file.path
    try:
        status, size = origin.stat(), file.path.stat().st_size
    except OSError:
        return _Seen(file, (str(file.called),), 0)
    return _Seen(file, (str(file.called), size, status.st_ino, status.st_mtime_ns), size)


def _shared_out(files: Sequence[_Seen], sees: Sequence[set[tuple[object, ...]]]) -> list[int]:
    """Choose the process that measures each file: of those that see it, the one with the fewest bytes so far."""
    load = [0] * len(sees)
    whose = []
    for file in files:
        able = [process for process, seen in enumerate(sees) if file.identity in seen]
        chosen = min(able, key=lambda process: (load[process], process))
        load[chosen] += file.bytes
        whose.append(chosen)
    return whose
