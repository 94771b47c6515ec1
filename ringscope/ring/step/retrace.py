"""Trace a step. If one of ring's forms raises an error, trace again without that form: another release of Keras may
need another one."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import TracebackType
from typing import Any

from profiles.ground.errors import RingscopeError

from .. import say
from ..forms import choice

# module of forms/ that is no form by itself -> the form that uses it
USED_BY = dict.fromkeys(("attention_axes", "normalization", "rnn"), "layers") | {"cudnn_dropout": "attention_dropout"}


def traced_without_those_that_raise(trace: Callable[[], Any], anew: Callable[[], None]) -> Any:
    """The result of `trace`. If a form raises an error, the form is dropped and the step is traced again; other
    errors are raised. anew: discards what was traced so far."""
    before = dict(choice.dropped)
    while True:
        try:
            found = trace()
        except Exception as error:
            form = None if isinstance(error, RingscopeError) else _raising(error.__traceback__)
            if form is None:
                choice.dropped.clear()
                choice.dropped.update(before)
                raise
            choice.dropped[form] = f"{type(error).__name__}: {_own_words(error)}"
            anew()
        else:
            for form in choice.dropped.keys() - before.keys():
                say.once(
                    f"layers train without ring's faster form {form!r}, which does not work here "
                    f"({choice.dropped[form]})"
                )
            return found


def _own_words(error: Exception) -> str:
    """An error's message in one line. Keras adds the layer's arguments and prints the message in bold."""
    text = str(error)
    bold = re.search(r"\x1b\[1m(.+?)\x1b\[0m", text, re.DOTALL)
    return (bold[1] if bold else text).partition("\n")[0][:200]


def _raising(traceback: TracebackType | None) -> str | None:
    """The form that raised the error: the innermost one in the traceback that is not dropped yet."""
    found = None
    room = f"{choice.__package__}."
    while traceback is not None:
        module = traceback.tb_frame.f_globals.get("__name__", "")
        if module.startswith(room) and module != choice.__name__:
            name = module.removeprefix(room).partition(".")[0]
            name = USED_BY.get(name, name)
            found = found if name in choice.dropped else name
        traceback = traceback.tb_next
    return found
