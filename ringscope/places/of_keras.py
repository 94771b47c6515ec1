"""The parts of a script that Keras calls, each in a range with its name and line: callbacks' hooks, train_step where it
runs eagerly, what makes batches, bodies of tf.py_function, validation and saving.

Functions are laid over those of the classes that define them, once and for good: a range costs some 2 us, and nothing
is written unless a profiler records.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any, Final

from .ranges import Place
from .whose import Where, caller, defined

_BATCH: Final = ("batch", "train_batch", "test_batch", "predict_batch")
HOOKS: Final = tuple(
    f"on_{what}_{when}" for what in ("epoch", "train", "test", "predict", *_BATCH) for when in ("begin", "end")
)
_MADE_AT, _LAID = "_ringscope_made_at", "_ringscope_laid"


def lay(keras: ModuleType) -> None:
    """Lay the ranges over this Keras's functions; a second time does nothing."""
    if getattr(keras, _LAID, False):
        return
    setattr(keras, _LAID, True)
    for part in (_callbacks, _models, _datasets, _generators):
        try:
            part(keras)
        except (AttributeError, KeyError, StopIteration):  # a Keras of another make: samples tell of it
            continue


def _replace(owner: Any, name: str, made: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    own = vars(owner)[name]
    if isinstance(own, FunctionType) and not hasattr(own, _LAID):
        function = functools.wraps(own)(made(own))
        setattr(function, _LAID, True)
        setattr(owner, name, function)


def _callbacks(keras: ModuleType) -> None:
    base, listed = keras.callbacks.Callback, keras.callbacks.CallbackList

    def made(own: Callable[..., Any]) -> Callable[..., Any]:
        def init(self: Any, *arguments: Any, **options: Any) -> None:
            own(self, *arguments, **options)
            if (where := caller()) is not None:
                self.__dict__[_MADE_AT] = where

        return init

    def listed_here(own: Callable[..., Any]) -> Callable[..., Any]:
        def init(self: Any, *arguments: Any, **options: Any) -> None:
            own(self, *arguments, **options)
            for one in self.callbacks:
                _lay_over_hooks(one, base)

        return init

    _replace(base, "__init__", made)
    _replace(listed, "__init__", listed_here)


def _lay_over_hooks(callback: Any, base: type) -> None:
    for hook in HOOKS:
        if isinstance(own := vars(callback).get(hook), FunctionType):  # a LambdaCallback's
            place = Place("callback", f"{type(callback).__name__}.{hook}", defined(own) or _made_at(callback))
            if not hasattr(own, _LAID):
                callback.__dict__[hook] = _in_place(own, place)
            continue
        owner = next((one for one in type(callback).__mro__ if hook in vars(one)), base)
        if owner not in (base, object) and not _made_for_it(owner):
            _replace(owner, hook, functools.partial(_hook, name=hook))


def _made_for_it(owner: type) -> bool:
    """A list of callbacks, what only keeps numbers, or ring's own, whose work nobody can move: no place of its own."""
    return owner.__name__ in ("CallbackList", "History") or owner.__module__.startswith("ringscope.")


def _in_place(own: Callable[..., Any], place: Place) -> Callable[..., Any]:
    @functools.wraps(own)
    def call(*arguments: Any, **options: Any) -> Any:
        with place:
            return own(*arguments, **options)

    setattr(call, _LAID, True)
    return call


def _hook(own: Callable[..., Any], name: str) -> Callable[..., Any]:
    where = defined(own)
    places: dict[tuple[type, Where | None], Place] = {}

    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        key = type(self), None if where else _made_at(self)
        place = places.get(key)
        if place is None:
            place = places[key] = Place("callback", f"{key[0].__name__}.{name}", where or key[1])
        with place:
            return own(self, *arguments, **options)

    return call


def _made_at(callback: Any) -> Where | None:
    """The place in which a Keras callback was made, else the call of `fit`; None: neither is known."""
    made: Where | None = callback.__dict__.get(_MADE_AT)
    return made or getattr(callback.__dict__.get("_model"), _MADE_AT, None)


def _models(keras: ModuleType) -> None:
    model = keras.Model
    trainer = next(one for one in model.__mro__ if "train_step" in vars(one) and "fit" in vars(one))
    compiled = next(one for one in model.__mro__ if "compile" in vars(one))
    _replace(compiled, "compile", _compile)
    for owner, name, kind in (
        (trainer, "evaluate", "validation"),
        (next(one for one in model.__mro__ if "save" in vars(one)), "save", "saving"),
        (next(one for one in model.__mro__ if "save_weights" in vars(one)), "save_weights", "saving"),
    ):
        _replace(owner, name, functools.partial(_called, kind=kind, name=f"Model.{name}"))
    _replace(trainer, "fit", _fit)


def _fit(own: Callable[..., Any]) -> Callable[..., Any]:
    def fit(self: Any, *arguments: Any, **options: Any) -> Any:
        if (where := caller()) is not None:
            self.__dict__[_MADE_AT] = where
        return own(self, *arguments, **options)

    return fit


def _compile(own: Callable[..., Any]) -> Callable[..., Any]:
    def compile(self: Any, *arguments: Any, **options: Any) -> Any:
        found = own(self, *arguments, **options)
        if self.run_eagerly:
            for name in ("train_step", "test_step"):
                owner = next(one for one in type(self).__mro__ if name in vars(one))
                _replace(owner, name, functools.partial(_eager, name=name))
            self.__dict__["_ringscope_eager"] = caller()
        else:
            self.__dict__.pop("_ringscope_eager", None)
        return found

    return compile


def _eager(own: Callable[..., Any], name: str) -> Callable[..., Any]:
    def step(self: Any, *arguments: Any, **options: Any) -> Any:
        where = self.__dict__.get("_ringscope_eager")
        if where is None:
            return own(self, *arguments, **options)
        with Place("eager", f"{type(self).__name__}.{name}", where):
            return own(self, *arguments, **options)

    return step


def _called(own: Callable[..., Any], kind: str, name: str) -> Callable[..., Any]:
    """A method that takes long, told by the line that calls it."""

    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        with Place(kind, name, caller() or self.__dict__.get(_MADE_AT)):
            return own(self, *arguments, **options)

    return call


def _datasets(keras: ModuleType) -> None:
    """`__getitem__` of the user's own PyDatasets, also of those to come, and waits for their workers."""
    base = keras.utils.PyDataset

    def lay_over(kind: type) -> None:
        own = vars(kind).get("__getitem__")
        where = defined(own) if isinstance(own, FunctionType) else None
        if where is not None:
            place = Place("dataset", f"{kind.__name__}.__getitem__", where)
            _replace(kind, "__getitem__", lambda own: lambda *arguments: _under(place, own, *arguments))

    def subclassed(kind: type, /, **options: Any) -> None:
        super(base, kind).__init_subclass__(**options)
        lay_over(kind)

    base.__init_subclass__ = classmethod(subclassed)
    for kind in _below(base):
        lay_over(kind)
    module = sys.modules["keras.src.trainers.data_adapters.py_dataset_adapter"]
    _replace(module.OrderedEnqueuer, "get", _waited_for)


def _under(place: Place, own: Callable[..., Any], *arguments: Any) -> Any:
    with place:
        return own(*arguments)


def _below(kind: type) -> Iterator[type]:
    below: list[type] = kind.__subclasses__()
    for one in below:
        yield one
        yield from _below(one)


def _waited_for(own: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def get(self: Any) -> Iterator[Any]:
        whole = self.py_dataset
        while hasattr(whole, "_whole"):  # ring's part of the user's
            whole = whole._whole
        where = defined(type(whole).__getitem__)
        return _timed(own(self), Place("dataset-wait", f"{type(whole).__name__}.__getitem__", where))

    return get


def _timed(items: Iterator[Any], place: Place) -> Iterator[Any]:
    while True:
        with place:
            try:
                item = next(items)
            except StopIteration:
                return
        yield item


def _generators(keras: ModuleType) -> None:
    module = sys.modules["keras.src.trainers.data_adapters.generator_data_adapter"]

    def made(own: Callable[..., Any]) -> Callable[..., Any]:
        def init(self: Any, generator: Any) -> None:
            own(self, in_generator(generator))

        return init

    _replace(module.GeneratorDataAdapter, "__init__", made)


def in_generator(generator: Any) -> Any:
    """The same batches, each made in a range; what is no generator of the user's stays as it is."""
    code = getattr(generator, "gi_code", None)
    where = defined_by(generator) if inspect.isgenerator(generator) and code is not None else None
    return _timed(generator, Place("generator", generator.__qualname__, where)) if where else generator


def defined_by(generator: Any) -> Where | None:
    """The definition of a generator's function; if that only hands on another generator's items, of the other one."""
    from .whose import USER, owner, shown

    code = generator.gi_code
    if owner(code.co_filename) == USER:
        return Where(shown(code.co_filename), code.co_firstlineno, generator.__qualname__)
    held = [one for one in inspect.getgeneratorlocals(generator).values() if inspect.isgenerator(one)]
    return defined_by(held[0]) if held else None


def lay_over_python_functions(script_ops: ModuleType) -> None:
    """Bodies of tf.py_function and tf.numpy_function: TensorFlow calls them all by one registry, of this module."""
    places: dict[Any, Place | None] = {}

    def made(own: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, token: Any, device: Any, args: Any) -> Any:
            if token not in places:
                function = self.get(token)
                inner = getattr(function, "_func", function)
                where = defined(inner) if inner is not None else None
                places[token] = Place("py_function", where.function, where) if where else None
            place = places[token]
            if place is None:
                return own(self, token, device, args)
            with place:
                return own(self, token, device, args)

        return call

    _replace(script_ops.FuncRegistry, "__call__", made)
