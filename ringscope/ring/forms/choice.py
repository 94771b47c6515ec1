"""Forms that are left out: those that the user names, to see what one of them does to a model's numbers or its speed,
and those that this Keras or TensorFlow does not take."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from types import TracebackType
from typing import Any

from profiles.ground.errors import RingscopeError

from .. import say
from ..internals import seams

WITHOUT = "RINGSCOPE_WITHOUT_FORMS"  # an environment variable: names of forms, with commas between them
OF_OTHERS = {"rnn": "layers", "cudnn_dropout": "attention_dropout"}  # modules that a form of another name takes

_dropped: dict[str, str] = {}  # by form: what it raised


def wanted(name: str) -> bool:
    """Whether a form of that name is taken."""
    if name in os.environ.get(WITHOUT, "").split(",") or name in _dropped:
        return False
    for one in seams.look():
        if one.seam.kind == seams.FORM and one.seam.name == name:
            say.once(one.line)
            return False
    return True


def traced_without_those_that_raise(trace: Callable[[], Any], anew: Callable[[], None]) -> Any:
    """What `trace` gives. Where a form raises, whatever it is, that one is dropped, and the step traced again without
    it; an error that comes all the same is the user's. anew: forgets what was traced halfway."""
    before = dict(_dropped)
    while True:
        try:
            found = trace()
        except Exception as error:
            form = None if isinstance(error, RingscopeError) else _raising(error.__traceback__)
            if form is None:
                _dropped.clear()
                _dropped.update(before)
                raise
            _dropped[form] = f"{type(error).__name__}: {_own_words(error)}"
            anew()
        else:
            for form in _dropped.keys() - before.keys():
                say.once(f"the form {form!r} is left out, since it does not work here ({_dropped[form]})")
            return found


def _own_words(error: Exception) -> str:
    """What an error says, in one line: Keras sets it in bold type among the arguments of the layer."""
    text = str(error)
    bold = re.search(r"\x1b\[1m(.+?)\x1b\[0m", text, re.DOTALL)
    return (bold[1] if bold else text).partition("\n")[0][:200]


def _raising(traceback: TracebackType | None) -> str | None:
    """The form that the error comes from: the innermost on the way to it."""
    found = None
    room = f"{__package__}."
    while traceback is not None:
        module = traceback.tb_frame.f_globals.get("__name__", "")
        if module.startswith(room) and module != __name__:
            name = module.removeprefix(room).partition(".")[0]
            name = OF_OTHERS.get(name, name)
            found = found if name in _dropped else name
        traceback = traceback.tb_next
    return found
