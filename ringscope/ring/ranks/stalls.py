"""Say where each rank is when ranks wait for each other in vain, and end a training that cannot go on.

A thread of each rank looks at its main thread. If that has stood still for SAY_S in TensorFlow, Horovod or a meeting,
all ranks tell where they are. Ranks that all wait, at different places, would wait for ever: they end after END_S.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from .. import say
from ..internals import main_thread

LOOK_S = 5.0  # seconds between two looks at the main thread
SAY_S, END_S = 60.0, 600.0  # seconds without any progress until ranks say where they are, and until they end
RULE = (
    "All ranks must take the same steps and make the same calls that exchange: let no rank leave a step early, skip a"
    " batch, or call fit, ring's or Horovod's functions alone"
)


class Stalls:
    """Looks at this rank's main thread, from a thread of its own, until `over` is set.

    ends: whether ranks that cannot go on end. ask: asks for the places of all ranks, for `judge`. step: the number of
    the step of `fit`, 0 outside.
    """

    def __init__(self, rank: int, *, ends: bool, ask: Callable[[], None], step: Callable[[], int]) -> None:
        self._rank, self._ends, self._ask, self._step = rank, ends, ask, step
        self._used_ns, self._moved_at = 0, time.monotonic()
        self.over = threading.Event()
        threading.Thread(target=self._look, name="ring stalls", daemon=True).start()

    def _look(self) -> None:
        ask_after_s = SAY_S
        while not self.over.wait(LOOK_S):
            still_s = self._still_s()
            if still_s < LOOK_S:
                ask_after_s = SAY_S
            innermost = main_thread.frame()
            if still_s >= ask_after_s and innermost is not None and main_thread.may_exchange(innermost):
                ask_after_s = still_s + SAY_S
                self._ask()
            del innermost

    def _still_s(self) -> float:
        """Seconds since the main thread was last seen to have computed anything."""
        if (used_ns := main_thread.cpu_ns()) != self._used_ns:
            self._used_ns, self._moved_at = used_ns, time.monotonic()
        return time.monotonic() - self._moved_at

    def place(self) -> dict[str, Any]:
        """The place of this rank's main thread, for the other ranks: the user's line, the exchange that waits there
        ("" if none does), and the seconds since the thread has computed anything."""
        innermost, step = main_thread.frame(), self._step()
        where, within = ("nowhere", "") if innermost is None else main_thread.at(innermost)
        return {"where": f"{where}, step {step}" if step else where, "within": within, "still_s": self._still_s()}

    def judge(self, places: list[dict[str, Any]]) -> None:
        """Say where the ranks are, and end this one if none can go on. places: by rank, the same list on all ranks."""
        by_place: dict[str, list[int]] = {}
        for rank, place in enumerate(places):
            within = f", in {place['within']}" if place["within"] else ""
            by_place.setdefault(f"at {place['where']}{within}", []).append(rank)
        is_over = max(place["still_s"] for place in places) < SAY_S
        if is_over or len(by_place) == 1:  # one place: a long step, say
            return
        text = "; ".join(f"{_named(ranks)} {where}" for where, ranks in by_place.items())
        stuck = all(place["within"] and place["still_s"] > 2 * LOOK_S for place in places)
        if not stuck:
            say.once(f"a rank has waited for {SAY_S:.0f} s: {text}. It goes on once the others come. {RULE}")
            return
        then = f", and end after {END_S:.0f} s" if self._ends else ""
        say.once(f"all ranks have waited for each other for {SAY_S:.0f} s{then}: {text}. {RULE}")
        if self._ends and all(place["still_s"] >= END_S for place in places):
            say.line(f"rank {self._rank} ends: all ranks have waited for each other for {END_S:.0f} s")
            os._exit(1)


def _named(ranks: list[int]) -> str:
    return f"rank {ranks[0]} is" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} are"
