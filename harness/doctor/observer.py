"""Observe a rank of a script from inside its process: `ringscope doctor -- COMMAND`.

The script is not changed. Hooks in Keras's optimizers see when weights are updated; hooks in TensorFlow's functions and
data set iterators see the samples of a step (samples.py). Each rank writes what it saw to a file (observations.py).
of_torch.py observes PyTorch, and of_jax.py Keras on JAX.

Nothing is imported before the script imports it, so that environment variables set by the script still work.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from profiles.ground.after_import import once_imported
from profiles.ground.hooked import after, before

from ..launch import users_launcher
from ..machine import joined, ranks
from . import hooks
from .observations import Told
from .of_jax import OfJax
from .of_torch import OfTorch
from .samples import Batches, rows_of, values_of

FOLDER, STEPS, PATHS = "RINGSCOPE_OBSERVED", "RINGSCOPE_OBSERVED_STEPS", "RINGSCOPE_OBSERVED_PATHS"
BY_SCRIPT = "by_script"  # a file that is there once ranks are known to start ranks themselves
REDUCES = ("allreduce", "allgather", "reducescatter", "grouped_allreduce", "grouped_allgather", "grouped_reducescatter")
EXCHANGES = (*REDUCES, "alltoall")

_tells: Told | None = None  # what this process tells, or the one that it was forked from


def begin() -> None:
    """Observe this process if it is a rank. A process that it starts is observed once the script makes it a rank."""
    if "RINGSCOPE_RANK" not in os.environ and not users_launcher.is_rank():
        return
    folder, steps = os.environ.pop(FOLDER, None), os.environ.pop(STEPS, "0")
    paths = os.environ.pop(PATHS, "")
    if folder is None:
        return
    if paths:
        os.environ["PYTHONPATH"] = paths
    else:
        os.environ.pop("PYTHONPATH", None)
    rank = int(os.environ.get("RINGSCOPE_RANK", ranks.rank()))
    _observe(Path(folder), int(steps), rank, ranks.size())
    joined.watch(__name__, [folder, steps, str(ranks.size())])


def has_joined(rank: int, size: int, words: Sequence[str]) -> None:
    """Observe this process, which the script has made rank `rank` of `size`. words: the folder, the number of steps,
    and the number of ranks that a launcher has started. Where it has started several, and each starts all ranks of the
    script, that is only noted."""
    folder, steps, launched = words
    if launched == "1":
        _observe(Path(folder), int(steps), rank, size)
    elif size > int(launched) or _tells is None or not _tells.is_here():
        (Path(folder) / BY_SCRIPT).touch()


def _observe(folder: Path, steps: int, rank: int, size: int) -> None:
    global _tells
    if _tells is not None:
        _tells.begin(rank, size)
        return
    told = _tells = Told(folder, steps)
    told.begin(rank, size)
    torch = OfTorch(told)
    observer = Observer(told, {"torch": torch, "jax": OfJax(told)})
    torch.watch()

    def on_jax(_: Any) -> None:
        if "keras" not in sys.modules:  # Keras tells its backend itself
            told.write({"kind": "backend", "backend": "jax"})

    once_imported(["jax"], on_jax)
    once_imported(["keras"], observer.keras_is_there)
    once_imported(["horovod.tensorflow.mpi_ops"], observer.horovod_is_there)


class Observer:
    """Observes the training of one process, on the thread that trains."""

    def __init__(self, told: Told, others: Mapping[str, OfTorch | OfJax]) -> None:
        """others: backend of Keras -> the observer of its training."""
        self._told, self._others = told, others
        self._lock, self._within = threading.RLock(), threading.local()
        self._optimizers: dict[int, Any] = {}
        self._began: dict[int, int] = {}  # id of an optimizer -> its iterations when first seen
        self._variables: dict[int, Any] = {}
        self._step = 0
        self._exchanged = 0
        self._workers = 1  # number of processes or threads that make the batches
        self._fed: weakref.WeakSet[Batches] = weakref.WeakSet()
        self._drawn: list[str] | None = None

    # ---- hooks

    def keras_is_there(self, keras: Any) -> None:
        backend = keras.backend.backend()
        self._told.write({"kind": "backend", "backend": backend})
        if backend != "tensorflow":
            if backend in self._others:
                steps = f"steps of Keras on {'PyTorch' if backend == 'torch' else 'JAX'}"
                hooks.lay(self._told, steps, self._others[backend].keras_is_there)
            return
        hooks.lay(self._told, "steps of Keras on TensorFlow", self._keras_on_tensorflow)

    def _keras_on_tensorflow(self) -> None:
        import tensorflow as tf
        from keras.src.backend.tensorflow.trainer import TFEpochIterator
        from keras.src.optimizers.base_optimizer import BaseOptimizer
        from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter
        from tensorflow.python.data.ops.iterator_ops import OwnedIterator

        apply, call = BaseOptimizer.apply, type(tf.function(lambda: None)).__call__

        @functools.wraps(apply)
        def applied(optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
            grads, variables = list(grads), trainable_variables and list(trainable_variables)
            self._meet(optimizer, variables)
            result = apply(optimizer, grads, variables)
            if tf.executing_eagerly():
                self._look(None)
            return result

        def called(function: Any, *args: Any, **kwargs: Any) -> Any:
            if getattr(self._within, "function", False) or not tf.executing_eagerly():
                return call(function, *args, **kwargs)
            self._within.function = True
            try:
                result = call(function, *args, **kwargs)
            finally:
                self._within.function = False
            self._look((args, kwargs))
            return result

        def started(_: None, iterator: Any, *args: Any, **kwargs: Any) -> None:
            if isinstance(iterator._distributed_dataset, tf.data.Dataset):
                batches = Batches(iterator._distributed_dataset)
                iterator._get_iterator = lambda: batches
                self._fed.add(batches)

        def adapted(adapter: Any, x: Any, *args: Any, **kwargs: Any) -> None:
            self._workers = max(self._workers, x.workers)

        def followed(element: Any, iterator: Any) -> None:
            self._drawn = rows_of(tf.nest.flatten(element, expand_composites=True))

        before(PyDatasetAdapter, "__init__", adapted)
        BaseOptimizer.apply = applied
        type(tf.function(lambda: None)).__call__ = called
        after(TFEpochIterator, "__init__", started)
        # No iterator is made to get the class, because devices may not be set up yet.
        after(OwnedIterator, "__next__", followed)

    def horovod_is_there(self, operations: Any) -> None:
        """Count the elements that Horovod exchanges in each call."""
        library = getattr(operations, "MPI_LIB", None)
        for name in EXCHANGES:
            own = getattr(library, f"horovod_{name}", None)
            if own is not None:
                setattr(library, f"horovod_{name}", self._counting(own))

    def _counting(self, own: Callable[..., Any]) -> Callable[..., Any]:
        from tensorflow import autograph

        @functools.wraps(own)
        def counted(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            for each in tensors if isinstance(tensors, (list, tuple)) else [tensors]:
                self._exchanged += getattr(getattr(each, "shape", None), "num_elements", lambda: 0)() or 0
            return own(tensors, *args, **kwargs)

        return cast(Callable[..., Any], autograph.experimental.do_not_convert(counted))

    def _meet(self, optimizer: Any, variables: Sequence[Any] | None) -> None:
        """Remember an optimizer and its variables, mostly while TensorFlow traces the step."""
        with self._lock:
            known = id(optimizer) in self._optimizers
            if not known:
                self._optimizers[id(optimizer)] = optimizer
                self._began[id(optimizer)] = _count(optimizer)
            # ring shards this optimizer: its own variables are only parts of the weights
            if (parts := getattr(optimizer, "parts_by_ring", None)) is not None:
                variables = parts.variables
            new = [v for v in variables or optimizer._trainable_variables if id(v) not in self._variables]
            self._variables |= {id(v): v for v in new}
            if new and self._step == 0:
                self._told.write(self._line(0, None))

    def _look(self, arguments: Any) -> None:
        """Record the weights and the samples of the steps since the last call, if there were any."""
        with self._lock:
            steps = max((_count(o) - self._began[key] for key, o in self._optimizers.items()), default=0)
            if steps <= self._step:
                return
            line = self._line(steps, self._rows(arguments, steps - self._step))
            self._step = steps
            self._told.stepped(line)

    def _line(self, step: int, rows: list[str] | None) -> dict[str, Any]:
        weights = [[_name(v), *_told(v)] for v in self._variables.values()]
        return {
            "kind": "step",
            "step": step,
            "weights": [each for each in weights if len(each) > 1],
            "elements": sum(_elements(v) for v in self._variables.values()),
            "exchanged": self._exchanged,
            "rows": rows,
            "workers": self._workers,
            "cores": sorted(os.sched_getaffinity(0)),
            "replicas": _replicas(self._variables.values()) | {"of": self._strategies["replicas"]},
            "exchanges_unseen": self._strategies["exchange"],
            "ring": "ringscope.ring" in sys.modules,
            "horovod": "horovod.tensorflow" in sys.modules,
            "horovods_optimizer": any(hasattr(o, "_allreduce_grads") for o in self._optimizers.values()),
        }

    @functools.cached_property
    def _strategies(self) -> dict[str, Any]:
        """replicas: number in this process, for the largest tf.distribute strategy; exchange: True if a strategy spans
        processes."""
        import tensorflow as tf

        kinds = (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy)
        made = [each for each in gc.get_objects() if issubclass(type(each), kinds)]
        here = {each: len(each.extended.worker_devices) for each in made}
        return {
            "replicas": max(here.values(), default=1),
            "exchange": any(each.num_replicas_in_sync > here[each] for each in made),
        }

    def _rows(self, arguments: Any, steps: int) -> list[str] | None:
        """Digests of the samples of the last `steps` steps; None if doctor cannot see the samples."""
        import tensorflow as tf

        leaves = tf.nest.flatten(arguments) if arguments is not None else []
        for leaf in leaves:
            for batches in self._fed:
                if batches.iterator is leaf:
                    return batches.take(steps)
        return rows_of(tf.nest.flatten(leaves, expand_composites=True)) or self._drawn


def _count(optimizer: Any) -> int:
    import tensorflow as tf

    with tf.init_scope():
        return int(optimizer.iterations.numpy())


def _name(variable: Any) -> str:
    return str(getattr(variable, "path", None) or variable.name)


def _elements(variable: Any) -> int:
    import numpy as np

    return int(np.prod(variable.shape))


def _replicas(variables: Iterable[Any]) -> dict[str, Any]:
    """{"count": devices on which a tf.distribute strategy mirrors the variables, 1 without one; "apart": [variable,
    replica, difference] of the first variable whose replicas differ, None if all are equal}."""
    import numpy as np
    import tensorflow as tf

    count, apart = 1, None
    for variable in variables:
        mirrored = getattr(getattr(variable, "_value", variable), "values", ())
        if not isinstance(mirrored, tuple) or len(mirrored) < 2:
            continue
        count = max(count, len(mirrored))
        with tf.init_scope():
            first, *others = (np.asarray(one.numpy(), np.float64) for one in mirrored)
        for replica, other in enumerate(others, start=1):
            if apart is None and not np.array_equal(first, other):
                apart = [_name(variable), replica, float(np.abs(first - other).max())]
    return {"count": count, "apart": apart}


def _told(variable: Any) -> list[Any]:
    """[digest of the bits, values at fixed places]; empty for a variable that exists only inside a traced function."""
    import numpy as np
    import tensorflow as tf

    try:
        with tf.init_scope():
            values = np.asarray(variable.numpy())
    except Exception:  # TensorFlow does not say which error `numpy()` raises there
        return []
    return values_of(values)
