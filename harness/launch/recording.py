"""The recording of a rank from inside its process: some steps once their time is steady, or some seconds."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from profiles.ground.numbers import counted
from profiles.model import marks
from ringscope.places import of_tensorflow, ranges, sampler

from ..machine import capture_range
from . import framework_profiler, main_thread, users_launcher
from .profilers import INSIDE, Span
from .recorder import Agreed, Recorder

LOOK_S = 0.5  # seconds between looks at the clock
SAY_S = 10.0  # seconds between messages about what the recording waits for


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a script's recording. profiler: its name, as in Profiler. folder: gets all files. span: the part of
    the script that is recorded."""

    profiler: str
    folder: Path
    span: Span

    @classmethod
    def from_json(cls, text: str) -> Options:
        profiler, folder, span = json.loads(text)
        return cls(profiler, Path(folder), Span(**span))

    @property
    def inside(self) -> bool:
        """True if a framework's own profiler records, inside of the process."""
        return self.profiler in INSIDE

    @property
    def framework(self) -> str | None:
        """The framework whose profiler records, if it is not that of the framework that trains."""
        return framework_profiler.TENSORFLOW if self.profiler == "tensorflow" else None


class Recording:
    """The recording of this process as rank `rank` of `size`, from `start` to `end`."""

    def __init__(self, options: Options, rank: str, size: int) -> None:
        self._options, self.rank, self._size, self.pid = options, rank, size, os.getpid()
        self.several = size > 1
        agreed = Agreed(options.folder / users_launcher.STARTED) if self.several and options.span.steps else None
        self.recorder = Recorder(options.span.steps or 0, self._begins, self._ends, agreed=agreed)
        self.stepping = sampler.main_thread()  # id of the thread that takes the steps
        self._opened, self._over, self._records = ExitStack(), threading.Event(), False
        span, by_own = options.span, options.inside and options.framework is None
        by_time = (self.recorder, span.delay_s, span.duration_s, self._over, by_own, agreed)
        self._waits = threading.Thread(target=_by_time, args=by_time, daemon=True)

    def start(self) -> None:
        """Record by time if no step is seen. Rank 0 says what the recording waits for."""
        self._waits.start()
        if self.rank == "0":
            threading.Thread(target=_say, args=(self.recorder, self._over), daemon=True).start()

    def end(self, *, failed: bool) -> None:
        """Close the recording. Rank 0 says why there is none. failed: True if the script failed."""
        if self._over.is_set():
            return
        self.drop()
        self._waits.join()
        if self.recorder.holds_nothing and self.rank == "0" and not self._is_no_rank():
            print(f"ringscope: {self.recorder.unopened(failed=failed)}", file=sys.stderr, flush=True)

    def drop(self) -> None:
        """Close the recording, and record nothing any more."""
        self._over.set()
        self.recorder.finish()

    def _is_no_rank(self) -> bool:
        """True if this process is none of the ranks that the script has started."""
        return not self.several and users_launcher.by_script(self._options.folder)

    def _all_threads(self) -> bool:
        """True if threads other than this one are recorded: they train, or it is not known which thread trains."""
        return not self.recorder.expects_steps or threading.current_thread() is not threading.main_thread()

    def _begins(self) -> None:
        if self._is_no_rank():
            return
        options = self._options
        try:
            self._opened.enter_context(
                framework_profiler.opened(
                    options.folder,
                    self.rank,
                    options.framework,
                    all_threads=self._all_threads(),
                    unless=self._is_no_rank,
                )
                if options.inside
                else capture_range.opened()
            )
        # perhaps the script runs a profiler itself; the training goes on without a recording
        except Exception as error:
            print(f"ringscope: rank {self.rank} is not recorded: {error}", file=sys.stderr, flush=True)
            return
        self._records = True
        if self.several and not options.inside:  # nsys may record several ranks into one file
            writer = ranges.writer()
            writer.end(writer.begin(str(marks.Rank(int(self.rank), self._size))))
        pipeline = of_tensorflow.pipeline
        looks = sampler.of_rank(options.folder, self.rank, lambda: self.stepping, throughout=pipeline)
        looks.start()
        self._opened.callback(looks.stop)
        if options.span.steps and self.rank == "0":
            seconds = f"for {options.span.duration_s:g} s, because no step was seen"
            part = f"from step {self.recorder.number} on" if self.recorder.expects_steps else seconds
            print(f"ringscope: recording {part}", file=sys.stderr, flush=True)

    def _ends(self) -> None:
        try:
            self._opened.close()
        except Exception as error:  # perhaps the disk is full; the training goes on
            print(f"ringscope: the recording of rank {self.rank} is lost: {error}", file=sys.stderr, flush=True)
            self._records = False
        if self._records and self._options.span.steps and self.rank == "0" and not self._is_no_rank():
            taken = self.recorder.number - (self.recorder.opened_at or 0)  # 0 if seconds were recorded, not steps
            steps = f" {counted(taken, 'step')}" if taken else ""
            print(f"ringscope: recorded{steps}", file=sys.stderr, flush=True)


def _say(recorder: Recorder, over: threading.Event) -> None:
    """Print now and then what the recording waits for, because steps of an eager script may take seconds each."""
    said = ""
    while not recorder.closed and not over.wait(SAY_S):
        now = recorder.waits_for() if recorder.expects_steps else ""
        if now and now != said:
            print(f"ringscope: {now}", file=sys.stderr, flush=True)
        said = now


def _by_time(
    recorder: Recorder,
    delay_s: float,
    duration_s: float,
    over: threading.Event,
    inside: bool,
    agreed: Agreed | None = None,
) -> None:
    """Record by time if no step is seen within `delay_s`, for example in a custom loop of TensorFlow or JAX.

    The delay starts again while a part of a framework is imported or compiled, because that alone may take as long.
    Once PyTorch has an optimizer nothing is recorded by time, because its first step may compile for longer than the
    delay. The main thread opens and closes the recording. inside: True if the framework's own profiler records, which
    waits for the devices of JAX. agreed: what several ranks agree on.
    """
    ends_s = time.monotonic() + delay_s
    while not over.wait(min(LOOK_S, max(0.0, ends_s - time.monotonic()))):
        now_s, stepped = time.monotonic(), _is_stepped(recorder)
        if not stepped and recorder.steps and (main_thread.imports() or main_thread.compiles()):
            ends_s = now_s + delay_s
        elif not stepped and inside and framework_profiler.is_early():
            ends_s = max(ends_s, now_s + LOOK_S)
        elif stepped or now_s >= ends_s:
            by_steps = _records_steps(agreed, seen=stepped)
            if by_steps and stepped:
                return
            if by_steps is False:
                break
            ends_s = now_s + LOOK_S
    if main_thread.run(lambda: (agreed is not None or not _is_stepped(recorder)) and recorder.open(), over):
        over.wait(duration_s)
        main_thread.run(recorder.finish, over)
        if agreed is not None:
            agreed.forget_seconds()


def _records_steps(agreed: Agreed | None, *, seen: bool) -> bool | None:
    """True if this rank records steps, False if it records by time now, None if that is not known yet. seen: True if
    it has begun to train. A rank that does not train records beside the first step of the others."""
    if agreed is None:
        return seen
    by_steps = agreed.records_steps(seen=seen)
    with suppress(OSError, ValueError):
        if by_steps and not seen and agreed.step(0, steady=False) is not None:
            return False
    return by_steps


def _is_stepped(recorder: Recorder) -> bool:
    """True if steps are recorded: a training loop has begun, or an optimizer has been made for one."""
    return recorder.expects_steps or bool(recorder.awaits_steps and recorder.steps)
