"""Call a function as soon as a module has been imported, without importing that module earlier than the user's
script."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def once_imported(names: Sequence[str], then: Callable[[ModuleType], object]) -> None:
    """Call `then` with each of the modules `names`: now if it has been imported, else as soon as it is."""
    sys.meta_path.insert(0, AfterImport(names, then))
    for name in names:
        if name in sys.modules:
            then(sys.modules[name])


class AfterImport(importlib.abc.MetaPathFinder):
    """A finder for `sys.meta_path` that calls `then` with each of the modules `names` once it has been imported."""

    def __init__(self, names: Sequence[str], then: Callable[[ModuleType], object]) -> None:
        self._names, self._then = set(names), then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name not in self._names:
            return None
        self._names.discard(name)  # otherwise the search below would come back here, directly or through another finder
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._names.add(name)
        if spec is None or spec.loader is None:
            return spec
        execute, then = spec.loader.exec_module, self._then

        def exec_module(module: ModuleType) -> None:
            self._names.discard(name)  # only now: TensorFlow calls find_spec just to see if keras exists
            execute(module)
            then(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
