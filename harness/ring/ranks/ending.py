"""The end of a script: the ranks say goodbye, and the weights that a loop of the user's own has trained are compared.

A rank that ends by an exception says so. One that ends well waits at most 10 s for the others: who trained apart must
not end as if all were well.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from types import TracebackType
from typing import Any

from .. import say
from ..elastic import again, launcher
from . import weights
from .channel import Channel

LIMIT_S = 10.0

_failed = False
_models: list[weakref.ref[Any]] = []


def at_exit(channel: Channel) -> None:
    """Have the ranks meet when their scripts end."""
    before = sys.excepthook

    def told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        global _failed
        again.instead_of(error)
        again.leave_alone()
        _failed = True
        channel.tell_failure(f"{kind.__name__}: {error}"[:300])
        before(kind, error, trace)

    sys.excepthook = told
    atexit.register(_end, channel)


def compare_at_exit(model: Any) -> None:
    """Compare this model's weights when the script ends, unless they are still those that `fit` has compared."""
    if not any(known() is model for known in _models):
        _models.append(weakref.ref(model))


def _digest(model: Any) -> list[int]:
    variables = model.trainable_weights
    return weights.weights_digest(variables).numpy().tolist() if variables else []


def _digests() -> list[list[int] | None]:
    """Of the models whose weights are no longer those that `fit` has compared: where one rank alone has changed them,
    say by a checkpoint that it then saves as something else, the others have nothing to say."""
    models = [known() for known in _models]
    found = [[] if model is None else _digest(model) for model in models]
    return [
        own if own and own != model.__dict__.get(weights.CHECKED) else None
        for own, model in zip(found, models, strict=True)
    ]


def _end(channel: Channel) -> None:
    again.leave_alone()
    everybodys = None if _failed or not _models else channel.meet("end", _digests(), limit_s=LIMIT_S)
    if not (_failed and launcher.is_elastic()):  # else the others are to find it lost
        channel.close()
    if everybodys is None:
        return
    for number, known in enumerate(_models):
        model = known()
        own = everybodys[0][number] if number < len(everybodys[0]) else None
        for rank, others in enumerate(everybodys):
            theirs = others[number] if number < len(others) else None
            if model is None or own is None or theirs is None or len(own) != len(theirs):
                continue
            differing = next((i for i, (a, b) in enumerate(zip(own, theirs, strict=True)) if a != b), None)
            if differing is not None:
                name = model.trainable_weights[differing].path
                say.line(weights.differs(name, rank, "at the end"))
                sys.stdout.flush()
                os._exit(1)
