"""Measure units (recordings that share a GPU) in this process or in a pool of processes, with bounded memory."""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import connection, forkserver, resource_tracker
from multiprocessing.connection import Connection
from typing import Final, Protocol, TypeAlias, TypeVar

from .. import readers
from ..ground import threads
from ..ground.errors import RingscopeError, UnreadableRecording
from ..ground.memory import available_bytes
from ..model.timeline import Timeline
from ..readers import File
from . import partial_file
from .one_recording import Asked, Unit, gather_unit, measure
from .partial_file import Held
from .together import Again

# Where a recording comes from: a file, a timeline in memory, or an entry of a partial file.
Source: TypeAlias = "File | Timeline | Held"
# The result for a file: its units (several from a partial file), None if no reader knows its format, or an error.
Made: TypeAlias = "list[Unit] | None | UnreadableRecording"

# Once the files read so far exceed this size together, each recording is measured as soon as it is read. Until then,
# recordings stay in memory, where each takes two to three times the size of its file.
_HELD_BYTES: Final = 1 << 30
# Memory of a process without a recording, and the most bytes in memory for each byte of a recording's file.
_PROCESS_BYTES: Final = 150 << 20
_TIMES_FILE: Final = 6
_FOLDED, _UNFOLDS = (".xz", ".gz", ".zst", ".nsys-rep"), 12
# Number of file descriptors that this process needs, and that it needs for each process that it starts.
_DESCRIPTORS, _DESCRIPTORS_EACH = 40, 4
# Threshold of Python's garbage collector. A small recording makes half as many objects, and nearly no garbage.
_OBJECTS = 20_000
# Processes are started only for this many files and bytes, since a start takes as long as some small recordings.
_WORTH_FILES, _WORTH_BYTES = 8, 4 << 20


_T = TypeVar("_T")


class Measurer(Protocol):
    """Something that measures files: this process, a pool of processes, or an MPI job."""

    def each(self, files: Sequence[File], told: readers.Progress | None) -> Iterator[Made]:
        """One result per file, in the order of `files`: units (recordings that share a GPU), None if no reader knows
        its format, or an error. Some units may only be read so far, and be measured later."""

    def again(self, sources: Sequence[Source], wanted: Sequence[Again]) -> list[Unit]:
        """Gather units again with a corrected clock, first step or set of recordings. `members` are indices into
        `sources`."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Options for reading: the largest size in bytes, and whether to use the cache."""

    max_bytes: int | None = None
    cache: bool = True


def make(sources: Sequence[Source], again: Again, asked: Asked, how: Reading) -> Unit:
    """Gather a unit again, without measuring it. Raises RingscopeError if a recording is only in a partial file."""
    held = next((one for one in sources if isinstance(one, Held)), None)
    if held is not None:
        called = [_called(one) for one in sources]
        raise held.refusal(max(again.first.values(), default=0), called)
    timelines = [_read(one, how) for one in sources if not isinstance(one, Held)]
    return gather_unit(timelines, again.members, again.shift_ns, asked)


def _called(source: Source) -> str:
    if isinstance(source, Held):
        return source.recording
    return source.recording.path if isinstance(source, Timeline) else str(source.called)


def _read(source: File | Timeline, how: Reading) -> Timeline:
    if isinstance(source, Timeline):
        return source
    timeline = readers.read_file(source, max_bytes=how.max_bytes, cache=how.cache)
    if timeline is None:
        raise UnreadableRecording(source.path, "no longer a recording", "leave files alone while they are measured")
    return timeline


class Here:
    """Measures recordings in this process."""

    def __init__(self, asked: Asked, how: Reading) -> None:
        self._asked, self._how = asked, how

    def each(self, files: Sequence[File], told: readers.Progress | None) -> Iterator[Made]:
        """The units of each file, in order. After _HELD_BYTES of files, units are measured at once, to save memory."""
        held = 0
        for done, file in enumerate(files):
            with readers.heard(told, done, len(files), file.path):
                made = _made(file, self._asked, self._how)
            held += _bytes(file)
            if held > _HELD_BYTES:
                _measure(made, self._asked)
            yield made

    def again(self, sources: Sequence[Source], wanted: Sequence[Again]) -> list[Unit]:
        """Gather units again, in the order of `wanted`."""
        of = ([sources[place] for place in one.members] for one in wanted)
        return [make(some, one, self._asked, self._how) for some, one in zip(of, wanted, strict=True)]


def _made(file: File, asked: Asked, how: Reading) -> Made:
    try:
        if partial_file.detects(file.path):
            return partial_file.read(file.path, asked, how.max_bytes)
        timeline = readers.read_file(file, max_bytes=how.max_bytes, cache=how.cache)
    except UnreadableRecording as error:
        return error
    if timeline is None:
        return None
    only = [timeline]
    del timeline  # gather_unit must hold the only reference, so that it can free the kernels' table
    return [gather_unit([only.pop()], (), (0,), asked)]


def count(files: Sequence[File]) -> int:
    """The number of processes worth starting: at most one per file and core, within free memory and file
    descriptors."""
    sizes = list(map(_bytes, files))
    if len(files) < _WORTH_FILES or sum(sizes) < _WORTH_BYTES:
        return 1
    room = available_bytes() // (_PROCESS_BYTES + _TIMES_FILE * max(sizes))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    pipes = len(files) if most == resource.RLIM_INFINITY else (most - _DESCRIPTORS) // _DESCRIPTORS_EACH
    return max(1, min(threads.usable_cpus(), len(files), room, pipes))


def _bytes(file: File) -> int:
    """Size of the recording in bytes, estimated if it is compressed; 0 for a missing file, which raises when it is
    read."""
    try:
        return file.path.stat().st_size * (_UNFOLDS if file.path.suffix in _FOLDED else 1)
    except OSError:
        return 0


class Pool:
    """Processes that measure recordings."""

    def __init__(self, processes: int, asked: Asked, how: Reading) -> None:
        # A forked process could inherit locks that threads hold. The fork server has no threads, and imports modules
        # once.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, "adbc_driver_sqlite.dbapi", "pyarrow.compute"])
        _start_deaf_to_ctrl_c()
        until, self._line = context.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(until,))
        self._asked, self._how = asked, how

    def each(self, files: Sequence[File], told: readers.Progress | None) -> Iterator[Made]:
        """The measured units of each file, in the order of `files`."""
        work = partial(measured, asked=self._asked, how=self._how)
        # Not by the pool's `map`, which cancels the remaining work after a failure: see `close`.
        waiting = deque(self._submitted(work, file) for file in files)
        for done, file in enumerate(files, 1):
            unit = waiting.popleft().result()
            if told:
                told(done, len(files), file.path)
            yield unit

    def again(self, sources: Sequence[Source], wanted: Sequence[Again]) -> list[Unit]:
        """Gather and measure units again, in the order of `wanted`."""
        work = partial(remade, asked=self._asked, how=self._how)
        waiting = [self._submitted(work, [sources[place] for place in one.members], one) for one in wanted]
        return [one.result() for one in waiting]

    def _submitted(self, work: Callable[..., _T], *words: object) -> Future[_T]:
        """Submit work to the pool, which starts a process if none is free. Raises RingscopeError if it cannot."""
        try:
            return self._pool.submit(work, *words)
        except OSError as error:
            raise RingscopeError(f"no more processes can be started ({error.strerror}); give --processes 1") from None

    def end(self) -> None:
        """End the processes at once, even in the middle of their work."""
        self._line.close()

    def close(self, *, cancels: bool) -> None:
        """Wait until the processes have ended. `cancels`: cancel work that has not begun. It must be False after a
        process was killed: the pool then drops that work itself, and Python 3.11 raises if it is also cancelled."""
        self._pool.shutdown(wait=True, cancel_futures=cancels)
        self._line.close()


@contextmanager
def pool(processes: int, asked: Asked, how: Reading) -> Iterator[Pool | Here]:
    """Start a pool of processes. If none can be started (no /dev/shm, too few file descriptors), measure in this
    process. Raises RingscopeError if one of the processes was killed."""
    try:
        made, whole = Pool(processes, asked, how), True
    except OSError:
        yield Here(asked, how)
        return
    try:
        yield made
    except BrokenProcessPool:
        whole = False
        problem = "a process that measured recordings was ended, perhaps because memory was short"
        raise RingscopeError(f"{problem}; give fewer: --processes {max(1, processes // 2)}") from None
    except KeyboardInterrupt:
        whole = False
        made.end()
        raise
    finally:
        made.close(cancels=whole)


def _start_deaf_to_ctrl_c() -> None:
    """Start the fork server with SIGINT blocked. It imports modules for some seconds. A Ctrl-C in the terminal reaches
    it, too, and would print a traceback."""
    # A signal that ends this process leaves the pool's semaphores to the tracker, which removes them: with a warning,
    # unless it is started with this filter.
    sys.warnoptions.append("ignore:resource_tracker")
    try:
        resource_tracker.ensure_running()  # first, since this call unblocks SIGINT
    finally:
        sys.warnoptions.pop()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(until: Connection) -> None:
    """Prepare a worker process: one core, no SIGINT, and a thread that ends it once its parent ends or closes `until`.
    The pool's pipes do not show that the parent was killed, since the workers hold each other's ends of these pipes."""
    threads.alone()
    gc.freeze()  # the collector need not scan the imported modules again
    gc.set_threshold(_OBJECTS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(until,), daemon=True).start()


def _end_with_parent(until: Connection) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([until, parent.sentinel])
        os._exit(1)


def measured(file: File, asked: Asked, how: Reading) -> Made:
    """Read and measure a file. The result has data for pictures only if `asked.operations` is set."""
    made = _made(file, asked, how)
    _measure(made, asked)
    return [_light(unit, asked) for unit in made] if isinstance(made, list) else made


def _light(unit: Unit, asked: Asked) -> Unit:
    """Drop the data for pictures, which is as large as the recording, unless `asked.operations` is set."""
    if not asked.operations:
        unit.measured = tuple(replace(one, picture=None) for one in unit.measured)
    return unit


def _measure(made: Made, asked: Asked) -> None:
    """Measure each unit from its own first steps on. If another unit corrects these, it is measured again later."""
    for unit in made if isinstance(made, list) else ():
        if unit.gathered is not None:
            measure(unit, unit.first_steps, asked)


def remade(sources: Sequence[Source], again: Again, asked: Asked, how: Reading) -> Unit:
    """Gather a unit again and measure it."""
    unit = make(sources, again, asked, how)
    measure(unit, again.first, asked)
    return _light(unit, asked)
