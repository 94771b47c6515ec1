"""Observe a training by Keras on JAX inside a rank's process: `ringscope doctor -- COMMAND`.

A step of Keras on JAX is a function from one state to the next, and the model's variables are empty while `fit` runs.
So doctor looks at each step's batch and at the state that the step returns.

A weight is one array over all devices of its layout, also over those of other processes. Each process sees only the
parts on its own devices. Copies of one part must be equal to the bit, and a weight that is whole on each device is also
compared between ranks.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

from .observations import Told
from .samples import rows_of, values_of


class OfJax:
    """Observes the training of one process by Keras on JAX."""

    def __init__(self, told: Told) -> None:
        self._told, self._steps = told, 0

    def keras_is_there(self) -> None:
        from keras.src.models.model import Model

        trains = next(kind for kind in Model.__mro__ if "make_train_function" in vars(kind))
        make = trains.make_train_function

        @functools.wraps(make)
        def made(trainer: Any, force: bool = False) -> None:
            make(trainer, force)
            if not hasattr(trainer.train_function, "__wrapped__"):
                trainer.train_function = self._seen(trainer, trainer.train_function)

        trains.make_train_function = made

    def _seen(self, trainer: Any, own: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(own)
        def step(state: Any, batches: Iterator[Any]) -> Any:
            taken: list[Any] = []
            if not self._steps:
                self._told.write(self._line(trainer, state[0], []))
            logs, state = own(state, _kept(batches, taken))
            self._steps += len(taken)
            told = {name: float(_parts(value)[0][1]) for name, value in logs.items() if not getattr(value, "shape", ())}
            self._told.stepped(self._line(trainer, state[0], taken) | {"logs": told})
            return logs, state

        return step

    def _line(self, trainer: Any, weights: list[Any], taken: list[Any]) -> dict[str, Any]:
        import jax

        leaves = [[leaf for leaf in jax.tree.leaves(batch) if getattr(leaf, "shape", ())] for batch in taken]
        rows = [rows_of([_joined(leaf) for leaf in batch]) or [] for batch in leaves]
        named = [(v.path, array) for v, array in zip(trainer.trainable_variables, weights, strict=True)]
        whole = [(name, array) for name, array in named if array.is_fully_replicated]
        used = {device for _, array in named for device in array.sharding.device_set}
        return {
            "kind": "step",
            "step": self._steps,
            "weights": [[name, *values_of(_parts(array)[0][1])] for name, array in whole],
            "sharded": len(named) - len(whole),
            "elements": sum(array.size for _, array in whole),
            # An array over several processes belongs to one program, so XLA exchanged its gradients.
            "exchanged": sum(array.size for _, array in whole if not array.is_fully_addressable),
            "rows": [row for each in rows for row in each] if taken else None,
            "part": _part(leaves[-1][0]) if leaves and leaves[-1] else None,
            "workers": 1,
            "cores": sorted(os.sched_getaffinity(0)),
            "replicas": _replicas(named),
            "ring": False,
            "horovod": False,
            "horovods_optimizer": False,
            "jax": {
                "processes": jax.process_count(),
                "here": jax.local_device_count(),
                "used": len([device for device in used if device.process_index == jax.process_index()]),
                "parts": len(set(_places(leaves[-1][0]).values())) if leaves and leaves[-1] else None,
            },
        }


def _kept(batches: Iterator[Any], taken: list[Any]) -> Iterator[Any]:
    while (batch := next(batches, None)) is not None:
        taken.append(batch)
        yield batch


def _parts(array: Any) -> list[tuple[str, Any]]:
    """(index of the part in the whole array, the part's values) for each device of this process."""
    import numpy as np

    if not hasattr(array, "sharding"):
        return [("", np.asarray(array))]
    places = array.sharding.addressable_devices_indices_map(array.shape)
    if len(places) == 1:  # some releases of JAX have no `addressable_shards` if each process has one device
        return [(str(index), np.asarray(array.addressable_data(0))) for index in places.values()]
    return [(str(shard.index), np.asarray(shard.data)) for shard in array.addressable_shards]


def _joined(array: Any) -> Any:
    """The rows of the array that lie on this process's devices, without copies."""
    import numpy as np

    return np.concatenate(list(dict(_parts(array)).values()))


def _places(batch: Any) -> dict[Any, str]:
    """Device, of any process -> the rows that lie on it."""
    if not hasattr(batch, "sharding"):
        return {None: ""}
    return {device: str(index[0]) for device, index in batch.sharding.devices_indices_map(batch.shape).items()}


def _part(batch: Any) -> list[str] | None:
    """The rows of the batch on this process's devices; None if each process has its own batch."""
    if getattr(batch, "is_fully_addressable", True):
        return None
    mine = {index for device, index in _places(batch).items() if device in batch.sharding.addressable_devices}
    return sorted(mine)


def _replicas(weights: list[tuple[str, Any]]) -> dict[str, Any]:
    """{"count": the most copies of one part of a weight on this process's devices, "apart": [weight, copy, difference]
    of the first copy that differs from another, None if all are equal}."""
    import numpy as np

    count, apart = 1, None
    for name, array in weights:
        first: dict[str, Any] = {}
        copies: dict[str, int] = {}
        for index, values in _parts(array):
            other = first.setdefault(index, values)
            copies[index] = copies.get(index, 0) + 1
            if apart is None and other.tobytes() != values.tobytes():
                by = np.abs(np.asarray(other, np.float64) - np.asarray(values, np.float64)).max()
                apart = [name, copies[index] - 1, float(by)]
        count = max(count, *copies.values())
    return {"count": count, "apart": apart}
