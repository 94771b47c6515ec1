"""The end of a script: ranks tell each other that they end, and compare weights that a user's own loop has trained.

A rank that ends by an exception tells the others. A rank that ends well waits for the others, at most 10 s, or 60 s if
its weights have changed since they were compared, so that ranks which trained apart do not end as if all were well.
"""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from types import TracebackType
from typing import Any

from .. import say
from ..lost import launcher, restart
from ..ranks.channel import Channel, left
from . import weights

LIMIT_S = 10.0
CHANGED_LIMIT_S = 60.0  # seconds to wait if the rank's weights have changed since they were compared

_failed = False
_compared: list[weights.Compared] = []


def at_exit(channel: Channel) -> None:
    """Make all ranks meet when their scripts end."""
    before = sys.excepthook

    def told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        global _failed
        restart.instead_of(error)
        restart.leave_alone()
        _failed = True
        channel.tell_failure(f"{kind.__name__}: {error}"[:300])
        before(kind, error, trace)
        if restart.is_of_lost_ranks(error) and (failure := channel.heard_failure()) is not None:
            say.line(f"rank {channel.rank} ends: {left(*failure)}")  # the error itself only names a connection

    sys.excepthook = told
    atexit.register(_end, channel)


def compare_at_exit(model: Any) -> None:
    """Compare this model's weights when the script ends, unless they are unchanged since they were last found equal."""
    if (each := weights.compared(model)) not in _compared:
        _compared.append(each)


def _end(channel: Channel) -> None:
    if not channel.is_of_this_process:
        return
    restart.leave_alone()
    # Weights that are unchanged since they were found equal need no comparison. If one rank alone changes its weights
    # later, say to save a checkpoint in another form, that is no error.
    own = [] if _failed else [each.changed() for each in _compared]
    limit_s = LIMIT_S if not any(own) else CHANGED_LIMIT_S
    everybodys = None if _failed or not own else channel.meet("end", own, limit_s=limit_s)
    if not (_failed and launcher.is_elastic()):  # without close()'s goodbye, elastic ranks learn that this one is lost
        channel.close()
    if everybodys is None:
        return
    for each, *digests in zip(_compared, *everybodys, strict=False):
        for rank, theirs in enumerate(digests):
            rank_0s = digests[0]
            if rank_0s is None or theirs is None or len(rank_0s) != len(theirs):
                continue
            differing = next((i for i, (a, b) in enumerate(zip(rank_0s, theirs, strict=True)) if a != b), None)
            if differing is not None:
                say.line(weights.differs(each.paths[differing], rank, "at the end"))
                with suppress(ValueError, OSError, AttributeError):  # the script may have closed stderr
                    sys.stdout.flush()
                os._exit(1)
