"""Look at the main thread from another one: at which line of the user's code it is, and whether it waits for ranks."""

from __future__ import annotations

import linecache
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from ringscope.places import whose

MEETINGS = ("ranks", "channel.py")  # end of the path of the file in whose code ranks wait for each other
# Functions of ring that wait for other ranks -> what they wait in; braces: the value of a local variable.
WAITS = {
    "average_gradients": "the exchange of gradients",
    "from_all": "the exchange {name!r}",
    "from_rank": "the exchange of one rank's value",
    "meet": "the meeting {kind!r}",
    "reduced_on_host": "the exchange {name!r}",
    "shared_inline": "the exchange of a sum",
    "step": "a step of the model",
    "turn": "a step of the model",
}
HOROVOD = "a call of Horovod"
SHOWN = 60  # characters of the user's line


class At(NamedTuple):
    """A place of a thread. where: the user's line. within: the call of ring or Horovod that waits there for other
    ranks; "" if none does."""

    where: str
    within: str


def cpu_ns() -> int:
    """The CPU time that the main thread has used, in ns. It does not grow while the thread waits."""
    return time.clock_gettime_ns(time.pthread_getcpuclockid(threading.main_thread().ident or 0))


def frame() -> FrameType | None:
    """The innermost frame of the main thread."""
    return sys._current_frames().get(threading.main_thread().ident or 0)


def may_exchange(innermost: FrameType) -> bool:
    """True if this thread is in TensorFlow, Horovod or a meeting of ranks; False if it is elsewhere, or waits for
    something of the script's own."""
    file = Path(innermost.f_code.co_filename)
    if file.name == "threading.py":
        callers = [each.f_code.co_filename for _, each in zip(range(3), _outwards(innermost), strict=False)]
        return any(Path(caller).parts[-2:] == MEETINGS for caller in callers)
    return bool({"tensorflow", "horovod"} & set(file.parts))


def at(innermost: FrameType) -> At:
    """The place of this thread."""
    within: list[str] = []
    for each in _outwards(innermost):
        about, file = whose.about(each.f_code), each.f_code.co_filename
        if about.owner == whose.USER:
            text = linecache.getline(file, each.f_lineno).strip()
            shown = text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
            return At(f"{whose.shown(file)}:{each.f_lineno}{f' ({shown})' if shown else ''}", _innermost(within))
        if file.endswith("iterator_ops.py") and not within:  # the thread waits for a batch of data
            within.append("")
        elif about.ours and each.f_code.co_name in WAITS:
            within.append(WAITS[each.f_code.co_name].format_map(each.f_locals))
        elif "horovod" in Path(file).parts:
            within.append(HOROVOD)
    return At("the end of its script", _innermost(within))


def _innermost(within: list[str]) -> str:
    """The first of these that is not Horovod, since ring calls Horovod; "" if there is none."""
    return next((each for each in within if each != HOROVOD), HOROVOD if within else "")


def _outwards(innermost: FrameType) -> Iterator[FrameType]:
    each: FrameType | None = innermost
    while each is not None:
        yield each
        each = each.f_back
