"""Ranges around parts of the user's code, for the profiler that records: NVTX ranges in domain `ringscope`, or those of
TensorFlow, JAX or PyTorch.

A range inside another one gets the outer range's name and line, but keeps its kind: saving within a callback counts as
that callback's saving.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import cache, lru_cache
from types import ModuleType
from typing import Any, Final, Protocol

from profiles.model import marks

from .whose import Where

_NAMES: Final = 1024  # number of names kept for the next range of the same name; names of steps never come again


class Writer(Protocol):
    """Writes ranges of the calling thread into a recording."""

    def begin(self, name: str) -> Any: ...

    def end(self, begun: Any) -> None: ...


class _Nvtx:
    """Writes NVTX ranges; without a profiler the domain does nothing."""

    def __init__(self) -> None:
        import nvtx

        domain = nvtx.get_domain(marks.DOMAIN)
        self._push, self._pop = domain.push_range, domain.pop_range
        attributes = lru_cache(_NAMES)(lambda name: domain.get_event_attributes(message=name))
        self._attributes: Callable[[str], Any] = attributes

    def begin(self, name: str) -> None:
        self._push(self._attributes(name))

    def end(self, begun: Any) -> None:
        self._pop()


class _TensorFlow:
    """Writes TensorFlow's own ranges (TraceMe), which its profiler records."""

    def __init__(self, traceme: ModuleType) -> None:
        self._made, self._enabled = traceme.TraceMe, traceme.traceme_enabled

    def begin(self, name: str) -> Any:
        return self._made(name) if self._enabled() else None

    def end(self, begun: Any) -> None:
        if begun is not None:
            begun.Stop()


class _Jax:
    """Writes JAX's own ranges (TraceAnnotation), which its profiler records."""

    def __init__(self, profiler: ModuleType) -> None:
        self._made = profiler.TraceAnnotation

    def begin(self, name: str) -> Any:
        begun = self._made(name)
        begun.__enter__()
        return begun

    def end(self, begun: Any) -> None:
        begun.__exit__(None, None, None)


class _PyTorch:
    """Writes PyTorch's own ranges (`user_annotation`), which its profiler records."""

    def __init__(self, profiler: ModuleType) -> None:
        self._profiler = profiler

    def begin(self, name: str) -> Any:
        if not self._profiler._is_profiler_enabled:
            return None
        begun = self._profiler.record_function(name)
        begun.__enter__()
        return begun

    def end(self, begun: Any) -> None:
        if begun is not None:
            begun.__exit__(None, None, None)


class _Nothing:
    def begin(self, name: str) -> None:
        pass

    def end(self, begun: Any) -> None:
        pass


# A framework -> its module that makes ranges, and the class that writes them.
_WRITERS: Final[dict[str, tuple[str, Callable[[ModuleType], Writer]]]] = {
    "tensorflow": ("tensorflow.python.profiler.internal._pywrap_traceme", _TensorFlow),
    "pytorch": ("torch.autograd.profiler", _PyTorch),
    "jax": ("jax.profiler", _Jax),
}
_by_framework = False  # True if a framework's own profiler records
_framework: str | None = None
_kept: Writer | None = None
_opened = threading.local()


def for_framework(name: str | None) -> None:
    """Write ranges of this framework's own kind, because its profiler records no others. name: a key of _WRITERS; None:
    the framework is not known yet, and nothing is written until it is."""
    global _by_framework, _framework, _kept
    _by_framework, _framework, _kept = True, name, None


@cache
def nvtx() -> Writer:
    """The object that writes NVTX ranges; it writes nothing if the package nvtx is not installed."""
    try:
        return _Nvtx()
    except ImportError:
        return _Nothing()


def writer() -> Writer:
    """The object that writes ranges. It writes nothing if NVTX is not installed, or, for a framework's ranges, until
    the script has imported the framework: a range may begin anywhere, and must import nothing."""
    global _kept
    if _kept is None:
        name, own = _WRITERS.get(_framework or "", ("", None))
        module = sys.modules.get(name)
        if _by_framework and module is None:
            return _Nothing()
        try:
            _kept = nvtx() if own is None or module is None else own(module)
        except AttributeError:
            _kept = _Nothing()
    return _kept


OUTERMOST: Final = ("callback",)  # kinds of ranges that are not written inside another one


class Place:
    """A part of the user's code; use it as `with place:`. One object serves all threads and any nesting."""

    def __init__(self, kind: str, name: str, where: Where | None) -> None:
        self.kind, self.name, self.where = kind, name, where
        self._told = marks.place(kind, name, where.file, where.line) if where else None

    def __enter__(self) -> None:
        try:
            stack = _opened.stack
        except AttributeError:
            stack = _opened.stack = []
        outer, told = self, self._told
        if stack:
            outer = stack[-1][0]
            told = None if self.kind in OUTERMOST else _within(self.kind, outer)
        stack.append((outer, None if told is None else writer().begin(told), told))

    def __exit__(self, *_: object) -> None:
        _, begun, told = _opened.stack.pop()
        if told is not None:
            writer().end(begun)


def _within(kind: str, outer: Place) -> str | None:
    where = outer.where
    return marks.place(kind, outer.name, where.file, where.line) if where else None
