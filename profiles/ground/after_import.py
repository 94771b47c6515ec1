"""Call a function once a module has been imported, without importing it before the user's script does."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls `then` with each of the modules `names` once it has been imported: a finder for `sys.meta_path`."""

    def __init__(self, names: Sequence[str], then: Callable[[ModuleType], None]) -> None:
        self._names, self._then = set(names), then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name not in self._names:
            return None
        self._names.discard(name)  # else the search below, and any finder that asks all others, would come back here
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._names.add(name)
        if spec is None or spec.loader is None:
            return spec
        execute, then = spec.loader.exec_module, self._then

        def exec_module(module: ModuleType) -> None:
            self._names.discard(name)  # not earlier, as TensorFlow calls find_spec only to see if keras exists
            execute(module)
            then(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
