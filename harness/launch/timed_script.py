"""Run a Python script for some steps, with a change that cannot alter its result, and write down how long the steps
took.

python -m harness.launch.timed_script DIR STEPS SECONDS CHANGES SCRIPT|-m MODULE ...

STEPS and SECONDS: how many steps to time, and the time after which no more are timed. CHANGES: a JSON object, argument
of `fit` -> number.

`ringscope record --apply` puts this before a command. Each rank writes `rank<k>.tried.json` (`Seen`) as soon as it has
timed enough steps, and trains on until ringscope ends it. Ringscope sets environment variables itself; this module
changes arguments of `fit`, except where something in the script suggests that the change may alter the result.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

from profiles.ground.after_import import once_imported
from profiles.ground.files import write_whole
from profiles.ground.hooked import before

from . import script
from .steps import KERAS

WARM_UP = 16  # untimed steps at the start, in which programs are compiled; their losses are compared
LEAST_S = 1.0  # seconds that are timed at least, however short the steps are
SEED = 1  # seed of every turn, unless the script sets one
Change = Callable[[int], None]
BATCH_HOOKS = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")
# these Keras callbacks need no hook for each batch if save_freq is "epoch"
BY_EPOCH = ("ModelCheckpoint", "BackupAndRestore")
PYTHON = (b"PyFunc", b"GeneratorDataset")  # operations of a data set's graph that run Python


@dataclass(slots=True)
class Seen:
    """One rank's report of a turn. refused: for each change of `fit` the reason why it cannot be made; "" if it can."""

    rank: int
    steps: int = 0
    seconds: float = 0.0
    # "epoch:steps" -> the first metric's mean over the epoch so far
    losses: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


class Turn:
    """Times the training steps of this process: `steps` of them, more until `least_s` have passed, but none after
    `seconds`. out: the folder of the report. wanted: change of `fit` -> the number to set."""

    def __init__(
        self, out: Path, rank: int, steps: int, seconds: float, wanted: dict[str, int], least_s: float = 0.0
    ) -> None:
        self.seen, self._wanted, self._least_s = Seen(rank), wanted, least_s
        self._out, self._steps, self._seconds = out, steps, seconds
        self._epoch = self._total = self._count = self._at = 0
        self._began_s: float | None = None
        self._done = False

    def watch(self, keras: ModuleType) -> None:
        """Hook into this Keras, to time its steps and to make the changes in `fit`."""
        keras.utils.set_random_seed(SEED)
        listed = keras.callbacks.CallbackList
        before(listed, "on_epoch_begin", lambda *_, **__: self._epoch_begins())
        before(listed, "on_train_batch_begin", lambda known, *_, **__: self._ended(known, goes_on=True))
        for name in ("on_test_begin", "on_epoch_end", "on_train_end"):
            before(listed, name, lambda known, *_, **__: self._ended(known, goes_on=False))
        before(listed, "on_train_begin", lambda known, *_, **__: self._hear_ends(type(known)))
        fit = keras.Model.fit

        @wraps(fit)
        def changed(*args: Any, **options: Any) -> Any:
            bound = inspect.signature(fit).bind(*args, **options).arguments
            if not self._done:
                self._change(changes(keras, bound))
            rest = bound.pop("kwargs", {})
            return fit(**bound, **rest)

        keras.Model.fit = changed

    def _change(self, possible: dict[str, Change | str]) -> None:
        """Make the wanted changes. The script's first `fit` tells which changes are possible; if a wanted one is not,
        the turn ends."""
        first = not self.seen.refused
        if first:
            self.seen.refused = {name: made if isinstance(made, str) else "" for name, made in possible.items()}
        for name, number in self._wanted.items():
            made = possible[name]
            if not isinstance(made, str):
                made(number)
            elif first:
                self._write()

    def finish(self) -> None:
        """Write the report at the end of the script, unless it is written already."""
        if not self._done:
            self._write()

    def _hear_ends(self, kind: Any) -> None:
        """Hook into `on_train_batch_end` of this class of callback lists, because a subclass may override it."""
        if getattr(kind.on_train_batch_end, "tried_by", None) is not self:
            before(kind, "on_train_batch_end", self._batch_ends).tried_by = self

    def _epoch_begins(self) -> None:
        self._epoch += 1
        self._at = 0

    def _batch_ends(self, known: Any, batch: int, *_: Any, **__: Any) -> None:
        end = min(batch + 1, _steps(known) or batch + 1)  # an epoch's last execution may have fewer steps
        self._count, self._at = end - self._at, end
        if self._total < WARM_UP and (loss := _loss(known.model)) is not None:
            self.seen.losses[f"{self._epoch}:{self._at}"] = loss

    def _ended(self, known: Any, *, goes_on: bool) -> None:
        """Count the steps that just ended, if any had begun. Restart the clock if training `goes_on`."""
        if self._done:
            return
        if self._began_s is not None:
            if self._total >= WARM_UP:
                self.seen.steps += self._count
                enough_s = self._least_s if self.seen.steps >= self._steps else self._seconds
                last = self._elapsed_s() >= enough_s
                if last:
                    _loss(known.model)  # reading the loss waits for the GPU, which no timed step may do
                self.seen.seconds = self._elapsed_s()
                if last:
                    self._write()
            self._total += self._count
        self._count = 0
        self._began_s = time.perf_counter() if goes_on else None

    def _elapsed_s(self) -> float:
        assert self._began_s is not None
        return self.seen.seconds + time.perf_counter() - self._began_s

    def _write(self) -> None:
        self._done = True
        write_whole(self._out / f"rank{self.seen.rank}.tried.json", json.dumps(asdict(self.seen)))


def _steps(known: Any) -> int | None:
    steps: int | None = (known.params or {}).get("steps")
    return steps


def _loss(model: Any) -> float | None:
    """The first metric: the loss, unless the model's own train step returns others."""
    metrics = getattr(model, "metrics", None)
    return float(metrics[0].result()) if metrics else None


def changes(keras: ModuleType, call: dict[str, Any]) -> dict[str, Change | str]:
    """The changes that this call of `fit` allows: name -> a function that makes the change with a number, or the reason
    why it cannot be made."""
    return {
        "steps_per_execution": _steps_per_execution(keras, call),
        "prefetch": _prefetch(call),
        "workers": _workers(keras, call),
    }


def _steps_per_execution(keras: ModuleType, call: dict[str, Any]) -> Change | str:
    model, given = call["self"], call.get("callbacks") or []
    if getattr(model, "steps_per_execution", 1) != 1:
        return f"the script sets {model.steps_per_execution} already"
    if model.run_eagerly:
        return "the model runs eagerly"
    if not _has_length(call):
        return "the data has no known length, and Keras would then end an epoch at another step"
    if isinstance(given, keras.callbacks.CallbackList):
        given = given.callbacks
    for callback in given if isinstance(given, (list, tuple)) else [given]:
        if hook := _batch_hook(keras, callback):
            return f"{type(callback).__name__}.{hook} would be called once for several batches"

    def change(number: int) -> None:
        model.steps_per_execution = number

    return change


def _has_length(call: dict[str, Any]) -> bool:
    data, tf = call.get("x"), sys.modules.get("tensorflow")
    if call.get("steps_per_epoch") is not None:
        return True
    if tf is not None and isinstance(data, tf.data.Dataset):
        return int(data.cardinality()) >= 0
    return hasattr(data, "__len__") or hasattr(data, "shape")


def _batch_hook(keras: ModuleType, callback: Any) -> str | None:
    """The first method of the callback that Keras would call for each batch; None if there is none."""
    kind = type(callback)
    if kind.__name__ in BY_EPOCH and kind.__module__.startswith("keras.") and callback.save_freq == "epoch":
        return None
    plain = keras.callbacks.Callback
    for name in BATCH_HOOKS:
        if name in vars(callback) or getattr(kind, name) is not getattr(plain, name):
            return name
    return None


def _prefetch(call: dict[str, Any]) -> Change | str:
    data, tf = call.get("x"), sys.modules.get("tensorflow")
    if tf is None or not isinstance(data, tf.data.Dataset):
        return "the data is not a tf.data.Dataset"
    if "Prefetch" in type(data).__name__:
        return "the data set's pipeline already ends in prefetch"
    try:
        ignored = tf.data.experimental.ExternalStatePolicy.IGNORE
        graph = data._as_serialized_graph(external_state_policy=ignored).numpy()
    except Exception as error:  # TensorFlow does not say which error it raises here
        return f"the graph of the data set cannot be read ({type(error).__name__})"
    if any(word in graph for word in PYTHON):
        return "Python code makes the samples, and may read the state of the training"

    def change(number: int) -> None:
        call["x"] = data.prefetch(number)

    return change


def _workers(keras: ModuleType, call: dict[str, Any]) -> Change | str:
    data = call.get("x")
    if not isinstance(data, keras.utils.PyDataset):
        return "the data is not a PyDataset"
    if data.workers > 1:
        return f"the PyDataset has {data.workers} workers already"
    if type(data).on_epoch_end is not keras.utils.PyDataset.on_epoch_end:
        return f"{type(data).__name__}.on_epoch_end changes the data between epochs"
    first, other, again = data[0], data[1 % len(data)], data[0]
    if not _equal(first, again) or not _equal(other, data[1 % len(data)]):
        return f"{type(data).__name__}.__getitem__ gives different batches when called twice"

    def change(number: int) -> None:
        data.workers = number

    return change


def _equal(one: Any, other: Any) -> bool:
    import numpy as np

    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_equal, one, other))
    return np.array_equal(np.asarray(one), np.asarray(other))


def seeded(start: ModuleType) -> None:
    """Give `ring.init` a fixed seed if the script gives none: turns that start from different weights cannot be
    compared."""
    init = start.init

    @wraps(init)
    def same(*, seed: int | bool | None = None, **options: Any) -> None:
        init(seed=SEED if seed is None or seed is True else seed, **options)

    start.init = same  # type: ignore[attr-defined]


def main() -> None:
    _, out, steps, seconds, wanted, *words = sys.argv
    rank = int(os.environ.get("RINGSCOPE_RANK", "0"))
    turn = Turn(Path(out), rank, int(steps), float(seconds), json.loads(wanted), LEAST_S)
    once_imported(KERAS, turn.watch)
    once_imported(("ringscope.ring.start",), seeded)
    script.run(words)
    turn.finish()


if __name__ == "__main__":
    main()
