"""Ranges, with name and line, around the parts of a script that Keras calls: callbacks' hooks, an eager train_step,
code that makes batches, validation and saving."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any, Final

from . import of_tensorflow
from .laid import LAID, called, each, replace, timed
from .ranges import Place
from .whose import Where, caller, defined

_BATCH: Final = ("batch", "train_batch", "test_batch", "predict_batch")
HOOKS: Final = tuple(
    f"on_{what}_{when}" for what in ("epoch", "train", "test", "predict", *_BATCH) for when in ("begin", "end")
)
_MADE_AT, _EAGER = "_ringscope_made_at", "_ringscope_eager"


def lay(keras: ModuleType) -> None:
    """Put ranges around the functions of this Keras; a second call does nothing."""
    if getattr(keras, LAID, False):
        return
    setattr(keras, LAID, True)
    for part in (_callbacks, _models, _datasets, _generators):
        try:
            part(keras)
        # this release of Keras lacks the function: samples still show these parts
        except (AttributeError, KeyError, StopIteration):
            continue


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

    replace(base, "__init__", made)
    replace(listed, "__init__", listed_here)


def _lay_over_hooks(callback: Any, base: type) -> None:
    for hook in HOOKS:
        if callable(own := vars(callback).get(hook)):  # a LambdaCallback holds a function, a method, or a partial
            if not hasattr(own, LAID):
                place = Place("callback", f"{type(callback).__name__}.{hook}", defined(own) or _made_at(callback))
                callback.__dict__[hook] = _in_place(own, place)
            continue
        owner = next((one for one in type(callback).__mro__ if hook in vars(one)), base)
        if owner not in (base, object) and not _made_for_it(owner):
            replace(owner, hook, functools.partial(_hook, name=hook))


def _made_for_it(owner: type) -> bool:
    """True for lists of callbacks, History and ring's own callbacks: they get no range, because users cannot change
    them."""
    return owner.__name__ in ("CallbackList", "History") or owner.__module__.startswith("ringscope.")


def _in_place(own: Callable[..., Any], place: Place) -> Callable[..., Any]:
    @functools.wraps(own)
    def call(*arguments: Any, **options: Any) -> Any:
        with place:
            return own(*arguments, **options)

    setattr(call, LAID, True)
    return call


def _hook(own: Callable[..., Any], name: str) -> Callable[..., Any]:
    where = defined(own, name)
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
    """The line at which a callback was created, or else the call of `fit`; None if neither is known."""
    made: Where | None = callback.__dict__.get(_MADE_AT)
    return made or getattr(callback.__dict__.get("_model"), _MADE_AT, None)


def _models(keras: ModuleType) -> None:
    model = keras.Model
    trainer = next(one for one in model.__mro__ if "train_step" in vars(one) and "fit" in vars(one))
    for owner, name, kind in (
        (trainer, "evaluate", "validation"),
        (next(one for one in model.__mro__ if "save" in vars(one)), "save", "saving"),
        (next(one for one in model.__mro__ if "save_weights" in vars(one)), "save_weights", "saving"),
    ):
        replace(owner, name, functools.partial(called, kind=kind, name=f"Model.{name}", made_at=_MADE_AT))
    for owner, name in ((trainer, "fit"), (model, "train_on_batch")):
        replace(next(one for one in owner.__mro__ if name in vars(one)), name, _trains)
    _lay_over_run_eagerly(next(one for one in trainer.__mro__ if "run_eagerly" in vars(one)))


def _trains(own: Callable[..., Any]) -> Callable[..., Any]:
    def train(self: Any, *arguments: Any, **options: Any) -> Any:
        if (where := caller()) is not None:
            self.__dict__[_MADE_AT] = where
        for name in ("train_step", "test_step"):
            owner = next(one for one in type(self).__mro__ if name in vars(one))
            replace(owner, name, functools.partial(_eager, name=name))
        return own(self, *arguments, **options)

    return train


def _lay_over_run_eagerly(trainer: type) -> None:
    """Remember the line that sets `run_eagerly`, directly or by `compile`."""
    own = vars(trainer)["run_eagerly"]

    def set_it(self: Any, value: bool) -> None:
        own.fset(self, value)
        self.__dict__[_EAGER] = caller()

    trainer.run_eagerly = property(own.fget, set_it, doc=own.__doc__)  # type: ignore[attr-defined]


def _eager(own: Callable[..., Any], name: str) -> Callable[..., Any]:
    def step(self: Any, *arguments: Any, **options: Any) -> Any:
        if self.run_eagerly:
            where = self.__dict__.get(_EAGER)
        elif of_tensorflow.functions_run_eagerly():
            where = next(reversed(of_tensorflow.made_eager), None)
        else:
            return own(self, *arguments, **options)
        with Place("eager", f"{type(self).__name__}.{name}", where or self.__dict__.get(_MADE_AT)):
            return own(self, *arguments, **options)

    return step


def _datasets(keras: ModuleType) -> None:
    """Put ranges around `__getitem__` of the user's PyDatasets, also of classes defined later, and around waits for
    their workers."""
    base = keras.utils.PyDataset

    def lay_over(kind: type) -> None:
        own = vars(kind).get("__getitem__")
        where = defined(own) if isinstance(own, FunctionType) else None
        if where is not None:
            place = Place("dataset", f"{kind.__name__}.__getitem__", where)
            replace(kind, "__getitem__", functools.partial(_in_place, place=place))

    def subclassed(kind: type, /, **options: Any) -> None:
        super(base, kind).__init_subclass__(**options)
        lay_over(kind)

    base.__init_subclass__ = classmethod(subclassed)
    for kind in _below(base):
        lay_over(kind)
    module = sys.modules["keras.src.trainers.data_adapters.py_dataset_adapter"]
    replace(module.OrderedEnqueuer, "get", _waited_for)


def _below(kind: type) -> Iterator[type]:
    below: list[type] = kind.__subclasses__()
    for one in below:
        yield one
        yield from _below(one)


def _waited_for(own: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def get(self: Any) -> Iterator[Any]:
        whole = self.py_dataset
        while hasattr(whole, "_whole"):  # with ring this is a rank's part (py_datasets.Part) of the user's PyDataset
            whole = whole._whole
        where = defined(type(whole).__getitem__)
        return timed(own(self), Place("dataset-wait", f"{type(whole).__name__}.__getitem__", where))

    return get


def _generators(keras: ModuleType) -> None:
    module = sys.modules["keras.src.trainers.data_adapters.generator_data_adapter"]

    def made(own: Callable[..., Any]) -> Callable[..., Any]:
        def init(self: Any, generator: Any) -> None:
            own(self, each(generator))

        return init

    replace(module.GeneratorDataAdapter, "__init__", made)
