"""The recorder of a training: it opens a profiler's capture range once the step time is steady, and closes it some
steps later."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from profiles.ground import numbers

LOOK_EVERY = 10  # steps between two checks whether the step time is steady
FIRST_LOOK = 20  # steps before the first check
# the step time is steady if two medians differ by less, relative to the larger: of the last steps, and of as many
# before
ALIKE = 0.2
# numbers of steps in a median; one of them suffices, since a checkpoint every ten steps makes groups of five differ
WINDOWS = 5, 10
LAST_LOOK = 200  # steps; by then the range is opened even if the step time is not steady

AHEAD = 3  # steps; ranks wait for each other in each step, so no rank is further ahead than one step


class Agreed:
    """The agreement of all ranks: they record steps, or some seconds if none has begun to train in time; and the step
    from which they record. The first rank that knows writes it into a file of `folder`.

    If each rank decided alone, ranks might record different steps, and a collective in one recording would have no
    counterpart in another.
    """

    def __init__(self, folder: Path) -> None:
        self._records, self._first = folder / "records", folder / "first_step"
        self._step: int | None = None

    def records_steps(self, *, seen: bool) -> bool | None:
        """True if the ranks record steps, False if they record seconds, None while another rank is still writing it.
        seen: True if this rank has begun to train; if it is the first to ask, this decides for all."""
        try:
            text = _settled(self._records, "steps" if seen else "seconds")
        except OSError:  # the ranks cannot share a file there
            return seen
        return None if text is None else text == "steps"

    def forget_seconds(self) -> None:
        """Let ranks that begin to train later record steps: this rank has recorded its seconds."""
        with suppress(OSError):
            self._records.unlink(missing_ok=True)

    def step(self, number: int, *, steady: bool) -> int | None:
        """The first step to record; None while no rank is steady. number: of the rank's current step. steady: True if
        this rank's step times are."""
        if self._step is None:
            text = _settled(self._first, str(number + AHEAD) if steady else None)
            self._step = None if text is None else int(text)
        return self._step


def _settled(path: Path, text: str | None) -> str | None:
    """The text that the first rank wrote into this file; a rank that gives a `text` writes it if it is the first. None
    if no rank has written, or the first one is still writing."""
    if text is not None:
        with suppress(FileExistsError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x") as file:
                file.write(f"{text}\n")
    try:
        found = path.read_text()
    except FileNotFoundError:
        return None
    return found.strip() if found.endswith("\n") else None


class Recorder:
    """Opens the profiler's range once the step time is steady, and closes it `steps` steps later.

    steps: 0 if `open` and `finish` are called by time. begins, ends: open and close the range. clock: returns seconds.
    agreed: the first step to record, if several ranks agree on one.
    """

    def __init__(
        self,
        steps: int,
        begins: Callable[[], object],
        ends: Callable[[], object],
        clock: Callable[[], float] = time.perf_counter,
        agreed: Agreed | None = None,
    ) -> None:
        self._agreed = agreed
        self.steps, self._begins, self._ends, self._clock = steps, begins, ends, clock
        self._lock = threading.RLock()  # the main thread may open or close the range by time while it does so by steps
        self._took: list[float] = []
        self._began_s: float | None = None
        self.number = 0  # number of the current step
        self.expects_steps = False  # True once a training loop has begun
        self.awaits_steps = False  # True once PyTorch has an optimizer, whose first step may compile for minutes
        self.opened_at: int | None = None
        self.closed = False

    def step(self) -> None:
        """Note that a step begins, so that the one before it has ended."""
        now_s = self._clock()
        if self._began_s is not None:
            self._took.append(now_s - self._began_s)
            self._ended()
        self._began_s = now_s

    def pause(self) -> None:
        """Note that the current step is the last before other work, such as the end of an epoch or an evaluation."""
        if self._began_s is not None:
            self._began_s = None
            self._ended()

    def finish(self) -> bool:
        """Close the range for good; one that was never opened is not opened any more. Returns False if it was closed
        before."""
        with self._lock:
            if self.closed:
                return False
            self.closed = True
            if self.opened_at is not None:
                self._ends()
            return True

    @property
    def holds_nothing(self) -> bool:
        """True if the range was never opened, or was opened after the last step. A range opened by time may hold no
        step."""
        return self.opened_at is None or 0 < self.number == self.opened_at

    def unopened(self, *, failed: bool = False) -> str:
        """The reason why nothing was recorded, and what to do."""
        if failed:
            return "nothing was recorded: the script failed before; first make the script run without ringscope"
        if not self.steps:
            return (
                "nothing was recorded: the script ended before --delay was over, or it loaded none of JAX, PyTorch and "
                "TensorFlow; let the script run longer, or shorten --delay"
            )
        if self.number:
            why = (
                f"the script ended after {numbers.counted(self.number, 'step')}, before the step time was steady "
                f"(ringscope waits for that up to step {LAST_LOOK})"
            )
        else:
            why = "the script ended, and ringscope saw no step of Keras, DeepSpeed or PyTorch's optimizers"
        return f"nothing was recorded: {why}; let the script train longer, or set the time: --delay S --duration S"

    def waits_for(self) -> str:
        """A line that says how far the recording is and how long the rest takes; "" once it is over, or if it is timed
        in seconds."""
        if self.closed or not self.steps:
            return ""
        if self.opened_at is not None:
            done, of, what = self.number - self.opened_at, self.steps, "recorded"
        else:
            look = max(FIRST_LOOK, (self.number // LOOK_EVERY + 1) * LOOK_EVERY)
            done, of = self.number, look + self.steps
            what = f"{look} steps in which the step time may become steady, then {self.steps} to record"
        each = statistics.median(self._took[-5:]) if self._took else None
        left = f"; about {numbers.minutes((of - done) * each)} to go" if each else "; the first one is under way"
        return f"step {done} of {of} ({what}){left}"

    def open(self) -> bool:
        """Open the range now. Returns False if it was opened before."""
        with self._lock:
            if self.opened_at is not None or self.closed:
                return False
            self.opened_at = self.number
            self._begins()
            return True

    def _ended(self) -> None:
        self.number += 1
        if self.opened_at is not None and self.number >= self.opened_at + self.steps:
            self.finish()
        elif self.opened_at is None and self._is_due():
            self.open()

    def _is_due(self) -> bool:
        steady = self.number % LOOK_EVERY == 0 and self._is_steady()
        if self._agreed is None or self.number < FIRST_LOOK or self.number >= LAST_LOOK:
            return steady
        try:
            first = self._agreed.step(self.number, steady=steady)
        except (OSError, ValueError):  # the ranks cannot share a file there
            return steady
        return first is not None and self.number >= first

    def _is_steady(self) -> bool:
        if self.number >= LAST_LOOK:
            return True
        return self.number >= FIRST_LOOK and any(map(self._is_alike, WINDOWS))

    def _is_alike(self, steps: int) -> bool:
        """True if the last `steps` steps took about as long as the `steps` steps before them."""
        if len(self._took) < 2 * steps:
            return False
        earlier, later = (statistics.median(part) for part in (self._took[-2 * steps : -steps], self._took[-steps:]))
        return abs(later - earlier) <= ALIKE * max(earlier, later)
