"""Keras's list of callbacks, changed: it fetches a step's logs from the device only for callbacks that read them.

The progress bar gets the logs only when it draws, in a thread of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import keras
from keras.src.utils.python_utils import pythonify_logs

from .. import say
from ..elastic.resume import FitPart
from ..internals.frameworks import hvd
from ..models import kept

_OWN_SHARE = (
    "the callback {} reads the logs of a batch, which are of each rank's own samples. If it changes the training by "
    "them, for example a weight of the loss, let it take ring.mean(logs[...]) on all ranks"
)
DRAW_EVERY_S = 0.05  # seconds between two drawings of the bar, as in Keras


def _after_fetching(own: Callable[..., Any]) -> Callable[..., Any]:
    """The method of `dict`, called once the logs are fetched."""

    def method(self: Logs, *arguments: Any, **values: Any) -> Any:
        self._fetched()
        return own(self, *arguments, **values)

    return method


class Logs(dict[str, Any]):
    """A step's logs for its callbacks, fetched from the device when a value is first read; all callbacks of a step
    share it."""

    def __init__(self, fetch: Callable[[], dict[str, Any]], names: list[str]) -> None:
        super().__init__(dict.fromkeys(names))
        self._fetch: Callable[[], dict[str, Any]] | None = fetch
        self.read = False  # True if the callback that has the logs now has read a value

    def _fetched(self) -> None:
        self.read = True
        if self._fetch is not None:
            fetch, self._fetch = self._fetch, None
            dict.update(self, fetch())

    def __iter__(self) -> Iterator[str]:  # makes dict(logs) and {**logs} read the values one by one, by __getitem__
        return super().__iter__()

    __getitem__ = _after_fetching(dict.__getitem__)
    __setitem__ = _after_fetching(dict.__setitem__)
    get = _after_fetching(dict.get)
    items = _after_fetching(dict.items)
    values = _after_fetching(dict.values)
    copy = _after_fetching(dict.copy)
    pop = _after_fetching(dict.pop)
    update = _after_fetching(dict.update)
    setdefault = _after_fetching(dict.setdefault)
    __eq__ = _after_fetching(dict.__eq__)
    __hash__ = None
    __repr__ = _after_fetching(dict.__repr__)

    def __reduce__(self) -> Any:
        return dict, (dict(self.items()),)


def lazily(logs: Any) -> Logs:
    raw = logs or {}
    nested = any(isinstance(value, dict) for value in raw.values())
    found = Logs(lambda: dict(pythonify_logs(raw)), [] if nested else sorted(raw))
    if nested:  # the logs' names are known only once they are flattened
        found._fetched()
    return found


@contextmanager
def listed(model: Any, around: Callable[[Any], list[Any]], part: FitPart | None) -> Iterator[None]:
    """Within this context, Keras's `fit` of this model uses `Callbacks` as its list of callbacks.

    Code between the script and Keras's `fit` (a model's own `fit`, an experiment tracker) still gets the script's list,
    and may add to it. around: the script's list -> the callbacks to call.
    """
    _list_here()
    kept(model).listing = around, part
    try:
        yield
    finally:
        kept(model).listing = None


def _list_here() -> None:
    """Make Keras's list of callbacks a `Callbacks` when it is created for the `fit` of a distributed model."""
    kind = keras.callbacks.CallbackList
    if "__new__" not in vars(kind):
        kind.__new__ = staticmethod(_new)


def _new(kind: Any, callbacks: Any = None, add_history: bool = False, *args: Any, **options: Any) -> Any:
    model = options.get("model")
    ours = add_history and isinstance(model, keras.Model) and kept(model).listing is not None
    return object.__new__(Callbacks if ours and kind is keras.callbacks.CallbackList else kind)


class Callbacks(keras.callbacks.CallbackList):
    """Keras's list of callbacks, with the same arguments."""

    def __init__(self, callbacks: Any = None, *args: Any, model: Any = None, **options: Any) -> None:
        around, self._part = kept(model).listing
        super().__init__(around(callbacks), *args, model=model, **options)
        verbose = options.get("verbose")
        self._training = [each for each in self.callbacks if _is_asked(each, "on_train_batch_end")]
        self._testing = [each for each in self.callbacks if _is_asked(each, "on_test_batch_end")]
        self._draws = self._progbar is not None and verbose in (1, "auto")
        self._drawer: ThreadPoolExecutor | None = None
        self._drawing: Future[None] | None = None
        self._drawn_s = 0.0

    def on_train_begin(self, logs: Any = None) -> None:
        first = self._part is None or self._part.first
        with self._only([] if first else [self._history], everybody=first):
            super().on_train_begin(logs)
        if self._part is not None:
            self._part.train_begins()

    @contextmanager
    def _only(self, callbacks: list[Any], *, everybody: bool) -> Iterator[None]:
        """Within this context the list holds only `callbacks`, because the others have begun already or do not end yet.
        everybody: keep the whole list."""
        known: list[Any] = self.callbacks
        self.callbacks: list[Any] = known if everybody else callbacks
        try:
            yield
        finally:
            self.callbacks = known

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_begin(epoch, logs)
        if self._part is not None:
            self._part.epoch_begins()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        shared = lazily(logs)
        for callback in self._training:
            if callback is self._progbar:
                self._draw(batch, logs)
                continue
            shared.read = False
            callback.on_train_batch_end(batch, logs=shared)
            if shared.read and hvd.size() > 1 and _is_of_the_script(callback):
                say.once(_OWN_SHARE.format(type(callback).__name__))
        if self._part is not None:
            self._part.batch_ended(batch + 1)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        shared = lazily(logs)
        for callback in self._testing:
            if callback is not self._progbar:  # the bar prints nothing for evaluation within `fit`
                callback.on_test_batch_end(batch, logs=shared)

    def _draw(self, batch: int, logs: Any) -> None:
        """Draw the bar in its thread, unless it was drawn a moment ago or is being drawn."""
        self._progbar.seen = batch + 1
        idle = self._drawing is None or self._drawing.done()
        if not self._draws or not idle or time.monotonic() - self._drawn_s < DRAW_EVERY_S:
            return
        self._drawn_s = time.monotonic()
        self._drawer = self._drawer or ThreadPoolExecutor(1, "progress-bar")
        self._drawing = self._drawer.submit(lambda: self._progbar.on_train_batch_end(batch, pythonify_logs(logs)))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._drawn()
        super().on_epoch_end(epoch, logs)
        if self._part is not None:
            self._part.epoch_ended(epoch, self._history)

    def on_train_end(self, logs: Any = None) -> None:
        self._drawn()
        last = self._part is None or self._part.last or self._part.model.stop_training
        with self._only([], everybody=last):
            super().on_train_end(logs)
        if self._drawer is not None:
            self._drawer.shutdown()
            self._drawer = None

    def _drawn(self) -> None:
        if self._drawing is not None:
            self._drawing.result()
            self._drawing = None


def _is_of_the_script(callback: Any) -> bool:
    """False for the callbacks of Keras and of ring, except for one that calls a function of the script."""
    room = type(callback).__module__.partition(".")[0]
    return room not in ("keras", "ringscope") or isinstance(callback, keras.callbacks.LambdaCallback)


def _is_asked(callback: Any, name: str) -> bool:
    """True if the callback does something after a batch; Keras marks the empty methods of its base class."""
    return not (
        keras.src.utils.is_default(getattr(callback, name)) and keras.src.utils.is_default(callback.on_batch_end)
    )
