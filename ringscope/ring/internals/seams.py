"""Whether the Keras, TensorFlow and Horovod at hand have the private names that ring touches (seam_table.py).

`ring.init` looks all of them up, in about a millisecond, in the modules that are loaded by then; `ringscope doctor`
loads the others too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dis import opmap
from functools import cache
from importlib import import_module
from inspect import unwrap
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

from profiles.ground.errors import RingscopeError

from . import versions
from .seam_table import FORM, NEEDED, NICETY, SEAMS, Seam

STORE = opmap["STORE_ATTR"]


class Missing(NamedTuple):
    seam: Seam
    names: tuple[str, ...]  # module.name

    @property
    def line(self) -> str:
        """What is lacking and what becomes of it."""
        package = versions.installed()[self.names[0].partition(".")[0]]
        what = f"{package.package} {package.version} has no {', '.join(self.names)}"
        if self.seam.kind == NEEDED:
            return f"{what}, which ring needs for {self.seam.name}: {package.remedy}"
        left = f"the form {self.seam.name!r} is" if self.seam.kind == FORM else f"{self.seam.name}:"
        return f"{what}; {left} left out ({package.remedy})"


def lacks() -> str | None:
    """The line about something that is missing and that ring needs; None where all of it is there."""
    return next((one.line for one in look() if one.seam.kind == NEEDED), None)


def check() -> list[str]:
    """Lines about niceties that are left out and releases that ring was not tried with. Raises RingscopeError where
    something is missing that ring needs."""
    if (line := lacks()) is not None:
        raise RingscopeError(line)
    return [*versions.outside(), *(one.line for one in look() if one.seam.kind == NICETY)]


def unmet(name: str, what: str) -> str:
    """Of a name that is there, but that this release no longer calls where ring has laid a function over it."""
    package = versions.installed()[name.partition(".")[0]]
    return f"{package.package} {package.version} does not call {name}, which ring needs for {what}: {package.remedy}"


def has(name: str, kind: str = NICETY) -> bool:
    """True if all names of this nicety, or form, are there."""
    return missing(name, kind) is None


def missing(name: str, kind: str) -> Missing | None:
    """What this seam lacks. Only its own names are looked up: forms ask while a step is traced."""
    found = (_missing(seam) for seam in SEAMS if (seam.name, seam.kind) == (name, kind))
    return next((one for one in found if one is not None), None)


def count() -> int:
    """How many names the table holds."""
    return sum(len(names) for seam in SEAMS for names in seam.touches.values())


def look(*, load: bool = False) -> tuple[Missing, ...]:
    """The seams that this Keras, TensorFlow and Horovod lack names of. load: import what is not loaded yet."""
    found = (_missing(seam, load=load) for seam in SEAMS)
    return tuple(one for one in found if one is not None)


def _missing(seam: Seam, *, load: bool = False) -> Missing | None:
    names = tuple(_absent(seam, load=load))
    return Missing(seam, names) if names else None


def _absent(seam: Seam, *, load: bool) -> Iterator[str]:
    for module, names in seam.touches.items():
        found = sys.modules.get(module) or _loaded(module, load=load)
        if found is None:
            if not _is_file(module):
                yield module
            continue
        for name in names:
            if not _has(found, name):
                yield f"{module}.{name}"


def _loaded(module: str, *, load: bool) -> Any:
    if not load:
        return None
    try:
        return import_module(module)
    except ImportError:
        return None


@cache
def _is_file(module: str) -> bool:
    """True if a module that is not loaded could be. A package that is not loaded may hold anything."""
    package, _, name = module.rpartition(".")
    places = getattr(sys.modules.get(package), "__path__", None)
    if places is None:
        return True
    return any((Path(place) / f"{name}{ending}").exists() for place in places for ending in ("", ".py", ".so"))


def _has(held: Any, name: str) -> bool:
    first, _, rest = name.partition(".")
    if hasattr(held, first):
        return not rest or _has(getattr(held, first), rest)
    return isinstance(held, type) and any(_sets(one, first) for kind in held.__mro__ for one in _functions(kind))


@cache
def _functions(kind: type) -> tuple[FunctionType, ...]:
    """Those that it defines itself, without what decorates them."""
    return tuple(one for value in vars(kind).values() if isinstance(value, FunctionType) for one in (unwrap(value),))


def _sets(function: FunctionType, name: str) -> bool:
    """True if it sets an attribute of that name, by its code: a list of (operation, number of a name) bytes."""
    code = function.__code__
    if name not in code.co_names:
        return False
    wanted, at = bytes([STORE, code.co_names.index(name) & 255]), -1
    while (at := code.co_code.find(wanted, at + 1)) % 2:
        if at < 0:
            return False
    return True
