"""Ranges, with name and line, around the parts of a script that TensorFlow calls: bodies of tf.py_function, and
generators of from_generator. It also remembers the lines at which a script adds stages to a tf.data pipeline, or makes
all functions eager."""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from types import ModuleType
from typing import Any, Final

from .laid import each, replace
from .ranges import Place
from .whose import Where, caller, defined, framework

made_eager: list[Where | None] = []  # lines that called tf.config.run_functions_eagerly


def _eager_functions(eager_function_run: ModuleType) -> None:
    """Remember the lines that call tf.config.run_functions_eagerly, which makes steps eager although their model does
    not say so."""

    def made(own: Callable[..., Any]) -> Callable[..., Any]:
        def run_functions_eagerly(run_eagerly: bool) -> None:
            own(run_eagerly)
            made_eager.append(caller())

        return run_functions_eagerly

    replace(eager_function_run, "run_functions_eagerly", made)


def functions_run_eagerly() -> bool:
    """True if tf.config.run_functions_eagerly(True) holds now."""
    run = sys.modules.get("tensorflow.python.eager.polymorphic_function.eager_function_run")
    return run is not None and bool(run.functions_run_eagerly())


def _python_functions(script_ops: ModuleType) -> None:
    """Put ranges around the bodies of tf.py_function and tf.numpy_function, all of which TensorFlow calls through one
    registry."""
    places: dict[Any, Place | None] = {}

    def made(own: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, token: Any, device: Any, args: Any) -> Any:
            if token not in places:
                function = self.get(token)
                inner = getattr(function, "_func", function)
                where = defined(inner) if inner is not None else None
                places[token] = Place("py_function", where.function, where) if where else None
            with places[token] or nullcontext():
                return own(self, token, device, args)

        return call

    replace(script_ops.FuncRegistry, "__call__", made)


_STAGE: Final = "_ringscope_stage"
_STAGES: Final = ("map", "flat_map", "interleave")
_iterators: deque[weakref.ref[Any]] = deque(maxlen=16)


def _datasets(dataset_ops: ModuleType) -> None:
    """Remember the line that adds each stage with a user's function to a tf.data pipeline, and put ranges around the
    generators of from_generator."""

    def staged(own: Callable[..., Any], name: str) -> Callable[..., Any]:
        def stage(self: Any, *arguments: Any, **options: Any) -> Any:
            made = own(self, *arguments, **options)
            by = framework(sys._getframe(1).f_code.co_filename)
            where = None if by in ("tensorflow", "ringscope") else caller()  # from_generator itself calls flat_map
            if where is not None:
                function = next(iter([*arguments, *options.values()]))
                kind = "parallel-map" if "Parallel" in type(made).__name__ else "map"
                called = f"Dataset.{name} of {getattr(function, '__name__', type(function).__name__)}"
                made.__dict__[_STAGE] = Place(kind, called, where)
            return made

        return stage

    def generated(own: Callable[..., Any]) -> Callable[..., Any]:
        def init(self: Any, generator: Callable[..., Any]) -> None:
            own(self, lambda *arguments: each(iter(generator(*arguments))))

        return init

    for name in _STAGES:
        replace(dataset_ops.DatasetV2, name, partial(staged, name=name))
    replace(dataset_ops.DatasetV2._GeneratorState, "__init__", generated)


def _data_iterators(iterator_ops: ModuleType) -> None:
    def made(own: Callable[..., Any]) -> Callable[..., Any]:
        def create(self: Any, dataset: Any) -> None:
            own(self, dataset)
            _iterators.append(weakref.ref(self))

        return create

    replace(iterator_ops.OwnedIterator, "_create_iterator", made)


def pipeline() -> Place | None:
    """The stage that most likely delays the pipeline iterated last: the sequential map nearest to the source, or else
    the parallel map nearest to the source."""
    for reference in reversed(_iterators):
        if (iterator := reference()) is not None and (stages := list(_stages(iterator._dataset))):
            return next((one for one in reversed(stages) if one.kind == "map"), stages[-1])
    return None


def _stages(dataset: Any) -> Iterator[Place]:
    """The stages from the last one back to the source, or to a cache."""
    if type(dataset).__name__ == "CacheDataset":
        return
    if (stage := vars(dataset).get(_STAGE)) is not None:
        yield stage
    for one in dataset._inputs():
        yield from _stages(one)


# Module -> the function that puts ranges around the module's functions once it is imported.
PARTS: Final[Mapping[str, Callable[[ModuleType], None]]] = {
    "tensorflow.python.ops.script_ops": _python_functions,
    "tensorflow.python.data.ops.dataset_ops": _datasets,
    "tensorflow.python.data.ops.iterator_ops": _data_iterators,
    "tensorflow.python.eager.polymorphic_function.eager_function_run": _eager_functions,
}


def lay() -> None:
    """Put ranges around functions of the TensorFlow modules that are imported already; a second call does nothing."""
    for name, part in PARTS.items():
        if (module := sys.modules.get(name)) is not None:
            part(module)
