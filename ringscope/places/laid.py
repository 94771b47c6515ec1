"""Functions laid over those of the classes and modules that define them, once and for good: a range costs some 2 us,
and nothing is written unless a profiler records."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, Final

from .ranges import Place
from .whose import USER, Where, caller, defined, owner, shown

LAID: Final = "_ringscope_laid"  # an attribute of what lies over another


def replace(owner: Any, name: str, made: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Put what `made` makes of a function in its place; nothing where that was done before."""
    own = vars(owner)[name]
    if isinstance(own, FunctionType) and not hasattr(own, LAID):
        function = functools.wraps(own)(made(own))
        setattr(function, LAID, True)
        setattr(owner, name, function)


def called(own: Callable[..., Any], kind: str, name: str, made_at: str = "") -> Callable[..., Any]:
    """A function that takes long, told by the line that calls it, else by what its object keeps as `made_at`."""

    def call(*arguments: Any, **options: Any) -> Any:
        where = caller() or (vars(arguments[0]).get(made_at) if made_at else None)
        with Place(kind, name, where):
            return own(*arguments, **options)

    return call


def timed(items: Iterator[Any], place: Place) -> Iterator[Any]:
    """The same items, each of them made in a range."""
    while True:
        with place:
            try:
                item = next(items)
            except StopIteration:
                return
        yield item


def each(items: Any) -> Any:
    """The same items, each of them made in a range, if a generator or an iterator of the user's makes them."""
    where = _made_by(items)
    return timed(items, Place("generator", where.function, where)) if where else items


def _made_by(items: Any) -> Where | None:
    """The definition of what makes them; if a generator only hands on another generator's items, of the other one."""
    if not inspect.isgenerator(items):
        return defined(step) if (step := getattr(type(items), "__next__", None)) else None
    code = items.gi_code
    if owner(code.co_filename) == USER:
        return Where(shown(code.co_filename), code.co_firstlineno, items.__qualname__.replace(".<locals>", ""))
    if code is timed.__code__:  # has its range
        return None
    held = [one for one in inspect.getgeneratorlocals(items).values() if inspect.isgenerator(one)]
    return _made_by(held[0]) if held else None
