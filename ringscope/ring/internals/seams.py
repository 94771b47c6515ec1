"""Look up whether the installed Keras, TensorFlow and Horovod have the private names that ring uses (seam_table.py).

`ring.init` looks up all of them in the modules loaded so far: the first time in some 10 ms, again in less than one.
`ringscope doctor` imports the other modules, too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dis import get_instructions
from functools import cache
from importlib import import_module
from inspect import unwrap
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from profiles.ground.errors import RingscopeError

from . import versions
from .seam_table import FORM, NEEDED, NICETY, SEAMS, Seam

_SHOWN = 3  # of the names that a release lacks, those that a line shows


class Missing(NamedTuple):
    seam: Seam
    names: tuple[str, ...]  # the names, each as module.name

    @property
    def package(self) -> versions.Tried:
        return versions.installed()[self.names[0].partition(".")[0]]

    @property
    def line(self) -> str:
        """A line that says which names are missing, and what ring does without them."""
        package = self.package
        more = f" and {len(self.names) - _SHOWN} more" if len(self.names) > _SHOWN else ""
        what = f"{package.package} {package.version} has no {', '.join(self.names[:_SHOWN])}{more}"
        if self.seam.kind == NEEDED:
            return f"{what}, which ring needs for {self.seam.name}: {package.remedy}"
        left = f"{self.seam.name}: left out"
        if self.seam.kind == FORM:
            left = f"ring's form {self.seam.name!r} is left out of compiled steps, whose numbers stay the same"
        return f"{what}; {left}" + ("" if package.is_last else f" ({package.remedy})")


def lacks() -> str | None:
    """The line about a missing name that ring needs; None if there is none."""
    return next((one.line for one in look() if one.seam.kind == NEEDED), None)


def check() -> list[str]:
    """Lines about niceties that are left out, and about untested releases. Raises RingscopeError if a release lacks a
    name that ring needs."""
    if (line := lacks()) is not None:
        raise RingscopeError(line)
    return [*versions.outside(), *(one.line for one in look() if one.seam.kind == NICETY)]


def unmet(name: str, what: str) -> str:
    """The error text for a function that exists, but that this release no longer calls, so that ring's replacement
    never runs."""
    package = versions.installed()[name.partition(".")[0]]
    return f"{package.package} {package.version} does not call {name}, which ring needs for {what}: {package.remedy}"


def has(name: str, kind: str = NICETY) -> bool:
    """True if all names of this nicety, or form, exist."""
    return missing(name, kind) is None


def missing(name: str, kind: str) -> Missing | None:
    """The missing names of a seam; None if none is missing. Looks up this seam alone, because forms call it while a
    step is traced."""
    found = (_missing(seam) for seam in SEAMS if (seam.name, seam.kind) == (name, kind))
    return next((one for one in found if one is not None), None)


def count() -> int:
    """The number of names in the table."""
    return sum(len(names) for seam in SEAMS for names in seam.touches.values())


def look(*, load: bool = False) -> tuple[Missing, ...]:
    """The seams with names that this Keras, TensorFlow or Horovod lacks. load: True to import modules that are not
    loaded yet."""
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
            if not any(_has(found, each) for each in name.split("|")):
                yield f"{module}.{name.partition('|')[0]}"


def _loaded(module: str, *, load: bool) -> Any:
    if not load:
        return None
    try:
        return import_module(module)
    except ImportError:
        return None


@cache
def _is_file(module: str) -> bool:
    """True if a module that is not loaded may exist. A package that is not loaded may contain any module."""
    package, _, name = module.rpartition(".")
    places = getattr(sys.modules.get(package), "__path__", None)
    if places is None:
        return True
    return any((Path(place) / f"{name}{ending}").exists() for place in places for ending in ("", ".py", ".so"))


def _has(held: Any, name: str) -> bool:
    first, _, rest = name.partition(".")
    if hasattr(held, first):
        return not rest or _has(getattr(held, first), rest)
    return isinstance(held, type) and any(_sets(code, first) for kind in held.__mro__ for code in _codes(kind))


@cache
def _codes(kind: type) -> tuple[CodeType, ...]:
    """The code of the functions that a class itself defines, without their decorators."""
    functions = (unwrap(value) for value in vars(kind).values() if isinstance(value, FunctionType))
    return tuple(one.__code__ for one in functions if isinstance(one, FunctionType))


def _sets(code: CodeType, name: str) -> bool:
    """True if the code sets an attribute of that name."""
    return name in code.co_names and name in _stored(code)


@cache
def _stored(code: CodeType) -> frozenset[str]:
    """The names of the attributes that this code sets, kept because reading bytecode takes most of a look-up."""
    return frozenset(each.argval for each in get_instructions(code) if each.opname == "STORE_ATTR")
