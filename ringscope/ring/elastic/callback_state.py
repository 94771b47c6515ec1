"""The memory of callbacks, such as the best loss so far, which is committed with the model and restored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from ..exchange import from_rank

# Only rank 0 calls these two. CSVLogger and BackupAndRestore read their memory from their files instead.
OF_RANK_0 = (keras.callbacks.ModelCheckpoint, keras.callbacks.TensorBoard)
OF_FILES = (keras.callbacks.CSVLogger, keras.callbacks.BackupAndRestore)
NOT_KEPT = ("params", "_model", "model", "validation_data")


def of(callbacks: Sequence[Any]) -> list[dict[str, Any]]:
    """Each callback's numbers, strings, arrays, and lists and dicts of these; for callbacks that write files, rank
    0's."""
    own = [{} if isinstance(each, OF_FILES) else _plain_parts(each) for each in callbacks]
    writers = [i for i, each in enumerate(callbacks) if isinstance(each, OF_RANK_0)]
    for i, state in zip(writers, from_rank(0, [own[i] for i in writers]) if writers else [], strict=True):
        own[i] = state
    return own


def give_back(callbacks: Sequence[Any], states: Sequence[dict[str, Any]]) -> None:
    for callback, state in zip(callbacks, states, strict=False):
        vars(callback).update(state)


def append_to_files(callbacks: Sequence[Any]) -> None:
    for callback in callbacks:
        if isinstance(callback, keras.callbacks.CSVLogger):
            callback.append = True


def _plain_parts(callback: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(callback).items() if name not in NOT_KEPT and _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(_is_plain(each) for pair in value.items() for each in pair)
    return value is None or isinstance(value, (bool, int, float, str, np.generic, np.ndarray))
