"""Units of recordings in this process, or in processes on all cores: memory is bounded whatever the number of them."""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import signal
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
from ..model.timeline import Timeline
from ..readers import File
from . import partial_file
from .one_recording import Asked, Unit, gather_unit, measure
from .partial_file import Held
from .together import Again

# Sources of a unit: a file, a recording that was read, or a part of another host's measures.
Source: TypeAlias = "File | Timeline | Held"
# Units of a file: one for a recording, none if no reader knows it, an error if it is damaged.
Made: TypeAlias = "list[Unit] | None | UnreadableRecording"

# Recordings whose files are larger together are measured as they are read, one after the other, instead of being held
# until all were: what is held takes two to three times its file.
_HELD_BYTES: Final = 1 << 30
# Memory of a process without a recording, and at most for each byte of one.
_PROCESS_BYTES: Final = 150 << 20
_TIMES_FILE: Final = 6
_FOLDED, _UNFOLDS = (".xz", ".gz", ".zst", ".nsys-rep"), 12
# File descriptors that this process needs, and each that it starts.
_DESCRIPTORS, _DESCRIPTORS_EACH = 40, 4
# The garbage collector runs after as many new objects: a small recording makes half of that, and nearly no garbage.
_OBJECTS = 20_000
# Starting processes takes as long as measuring some small recordings.
_WORTH_FILES, _WORTH_BYTES = 8, 4 << 20


_T = TypeVar("_T")


class Measurer(Protocol):
    """Makes units of files, somewhere."""

    def each(self, files: Sequence[File], told: readers.Progress | None) -> Iterator[Made]:
        """A unit of each file, in their order, measured or not."""

    def again(self, sources: Sequence[Source], wanted: Sequence[Again]) -> list[Unit]:
        """Units that others correct: members of `wanted` are places in `sources`."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The way in which recordings are read."""

    max_bytes: int | None = None
    cache: bool = True


def make(sources: Sequence[Source], again: Again, asked: Asked, how: Reading) -> Unit:
    """A unit that others correct, not measured yet. Raises RingscopeError where its recordings are not at hand."""
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
        """A unit of each file, in their order; measured at once where too much would be held otherwise."""
        held = 0
        for done, file in enumerate(files):
            with readers.heard(told, done, len(files), file.path):
                made = _made(file, self._asked, self._how)
            held += _bytes(file)
            if held > _HELD_BYTES:
                _measure(made, self._asked)
            yield made

    def again(self, sources: Sequence[Source], wanted: Sequence[Again]) -> list[Unit]:
        """Units that others correct."""
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
    del timeline  # as soon as its kernels are taken, nothing may hold it
    return [gather_unit([only.pop()], (), (0,), asked)]


def count(files: Sequence[File]) -> int:
    """The number of processes that is worth it: no more than cores, and than memory has room for."""
    sizes = list(map(_bytes, files))
    if len(files) < _WORTH_FILES or sum(sizes) < _WORTH_BYTES:
        return 1
    room = _available_bytes() // (_PROCESS_BYTES + _TIMES_FILE * max(sizes))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    pipes = len(files) if most == resource.RLIM_INFINITY else (most - _DESCRIPTORS) // _DESCRIPTORS_EACH
    return max(1, min(threads.usable_cpus(), len(files), room, pipes))


def _bytes(file: File) -> int:
    """Bytes of the recording, at least. A missing file counts as 0: reading it says what is wrong."""
    try:
        return file.path.stat().st_size * (_UNFOLDS if file.path.suffix in _FOLDED else 1)
    except OSError:
        return 0


def _available_bytes() -> int:
    import psutil

    return int(psutil.virtual_memory().available)


class Pool:
    """Processes that measure recordings."""

    def __init__(self, processes: int, asked: Asked, how: Reading) -> None:
        # Not forked from this process, whose threads may hold locks; what workers need is imported once.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, "adbc_driver_sqlite.dbapi", "pyarrow.compute"])
        _start_deaf_to_ctrl_c()
        until, self._line = context.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(until,))
        self._asked, self._how = asked, how

    def each(self, files: Sequence[File], told: readers.Progress | None) -> Iterator[Made]:
        """A measured unit of each file, in their order."""
        work = partial(measured, asked=self._asked, how=self._how)
        # Not the pool's `map`, which cancels what is left when one has failed: see `close`.
        waiting = deque(self._submitted(work, file) for file in files)
        for done, file in enumerate(files, 1):
            unit = waiting.popleft().result()
            if told:
                told(done, len(files), file.path)
            yield unit

    def again(self, sources: Sequence[Source], wanted: Sequence[Again]) -> list[Unit]:
        """Units that others correct."""
        work = partial(remade, asked=self._asked, how=self._how)
        waiting = [self._submitted(work, [sources[place] for place in one.members], one) for one in wanted]
        return [one.result() for one in waiting]

    def _submitted(self, work: Callable[..., _T], *words: object) -> Future[_T]:
        """The first of them start the processes."""
        try:
            return self._pool.submit(work, *words)
        except OSError as error:
            raise RingscopeError(f"no more processes can be started ({error.strerror}); give --processes 1") from None

    def end(self) -> None:
        """End the processes, whatever they are at."""
        self._line.close()

    def close(self, *, cancels: bool) -> None:
        """cancels: work that has not begun. If a process has ended, the pool itself gives up that work, and Python 3.11
        fails over work that is cancelled meanwhile."""
        self._pool.shutdown(wait=True, cancel_futures=cancels)
        self._line.close()


@contextmanager
def pool(processes: int, asked: Asked, how: Reading) -> Iterator[Pool | Here]:
    """Start the processes, or measure in this one if they cannot be started: without /dev/shm there are no semaphores,
    and few descriptors make no pipes. Raises RingscopeError if one of the processes was killed."""
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
    """Start the process that workers are forked from. A Ctrl-C goes to it, too, and while it imports what they need
    for some seconds it would print where it was."""
    resource_tracker.ensure_running()  # it unblocks the signal where it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(until: Connection) -> None:
    """A worker uses one core, leaves Ctrl-C to the process that waits for it, and ends at once where that does, kill -9
    included, or wants no more: workers hold the ends of each other's pipes, so that nothing else would tell them."""
    threads.alone()
    gc.freeze()  # what was imported stays: not to be looked through again and again
    gc.set_threshold(_OBJECTS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(until,), daemon=True).start()


def _end_with_parent(until: Connection) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([until, parent.sentinel])
        os._exit(1)


def measured(file: File, asked: Asked, how: Reading) -> Made:
    """Measure what a file holds; pictures only where they are asked for."""
    made = _made(file, asked, how)
    _measure(made, asked)
    return [_light(unit, asked) for unit in made] if isinstance(made, list) else made


def _light(unit: Unit, asked: Asked) -> Unit:
    """Without what pictures need, which is as large as the recording."""
    if not asked.operations:
        unit.measured = tuple(replace(one, picture=None) for one in unit.measured)
    return unit


def _measure(made: Made, asked: Asked) -> None:
    """Measure the units, as if no other unit corrects them."""
    for unit in made if isinstance(made, list) else ():
        if unit.gathered is not None:
            measure(unit, unit.first_steps, asked)


def remade(sources: Sequence[Source], again: Again, asked: Asked, how: Reading) -> Unit:
    """A unit that others correct, measured."""
    unit = make(sources, again, asked, how)
    measure(unit, again.first, asked)
    return _light(unit, asked)
