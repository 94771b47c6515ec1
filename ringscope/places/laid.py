"""Put ranges around functions of frameworks' classes and modules, by replacing the functions for good.

A range costs some 2 us, and nothing is written unless a profiler records.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, Final

from .ranges import Place
from .whose import USER, Where, caller, defined, owner, shown

LAID: Final = "_ringscope_laid"  # attribute that marks a function as replaced


def replace(owner: Any, name: str, made: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace a function by the result of `made`, unless it was replaced before."""
    own = vars(owner)[name]
    if isinstance(own, FunctionType) and not hasattr(own, LAID):
        function = functools.wraps(own)(made(own))
        setattr(function, LAID, True)
        setattr(owner, name, function)


def beneath(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that `replace` has put a range around; else the function itself."""
    return function.__wrapped__ if hasattr(function, LAID) else function  # type: ignore[attr-defined]


def called(own: Callable[..., Any], kind: str, name: str, made_at: str = "") -> Callable[..., Any]:
    """A function with a range around it. The range is named after the line that calls the function, or else after the
    attribute `made_at` of the function's object."""

    def call(*arguments: Any, **options: Any) -> Any:
        where = caller() or (vars(arguments[0]).get(made_at) if made_at else None)
        with Place(kind, name, where):
            return own(*arguments, **options)

    return call


def timed(items: Iterator[Any], place: Place) -> Iterator[Any]:
    """Yield the items, with a range around the making of each."""
    while True:
        with place:
            try:
                item = next(items)
            except StopIteration:
                return
        yield item


def each(items: Any) -> Any:
    """The items. If the user's generator or iterator makes them, a range is put around the making of each."""
    where = _made_by(items)
    return timed(items, Place("generator", where.function, where)) if where else items


def _made_by(items: Any) -> Where | None:
    """The definition of the user's code that makes the items. For a generator that only passes on another generator's
    items, the definition of the inner one."""
    if not inspect.isgenerator(items):
        return defined(step) if (step := getattr(type(items), "__next__", None)) else None
    code = items.gi_code
    if owner(code.co_filename) == USER:
        return Where(shown(code.co_filename), code.co_firstlineno, items.__qualname__.replace(".<locals>", ""))
    if code is timed.__code__:  # this iterator already makes ranges
        return None
    held = [one for one in inspect.getgeneratorlocals(items).values() if inspect.isgenerator(one)]
    return _made_by(held[0]) if held else None
