"""Callbacks that ring adds around the user's in `fit`, so that ranks agree on weights, statistics and when to stop."""

from __future__ import annotations

from typing import Any

import keras

from ..alike import horovod_names, weights
from ..alike.begin import broadcast
from ..data.py_datasets import PyDatasetPart
from ..exchange import average_logs, from_rank, reduced_on_host
from ..global_batch.moving_statistics import average_statistics
from ..gradients.zero.parts import gather, saves_epochs
from ..internals.frameworks import hvd
from ..models import kept

# These callbacks write files, which ranks would overwrite for each other.
WRITERS = (
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.CSVLogger,
    keras.callbacks.TensorBoard,
    keras.callbacks.BackupAndRestore,
)
# These print if they are told to (`verbose`).
TALKERS = (
    keras.callbacks.EarlyStopping,
    keras.callbacks.LearningRateScheduler,
    keras.callbacks.ReduceLROnPlateau,
)


def around(model: Any, data: Any, given: Any) -> list[Any]:
    """The user's callbacks for this rank, with ring's callbacks around them. data: the training data."""
    given = list(given) if isinstance(given, (list, tuple)) else [given] if given else []
    horovod_names.check_left_over(given)
    saves = saves_epochs(model, [each for each in given if isinstance(each, WRITERS)])
    if hvd.rank() != 0:
        given = [callback for callback in given if not isinstance(callback, WRITERS)]
        for callback in given:
            if isinstance(callback, TALKERS):
                callback.verbose = 0
    for i, callback in enumerate(given):
        if type(callback) is keras.callbacks.TerminateOnNaN:
            given[i] = TerminateOnNaN()
            vars(given[i]).update(vars(callback))
    backups = [callback for callback in given if isinstance(callback, keras.callbacks.BackupAndRestore)]
    # After an epoch Agree comes first, so that later callbacks (checkpoints, early stopping) see the averages.
    own: list[Any] = [Epochs(data)] if isinstance(data, PyDatasetPart) and data.epoch is not None else []
    if (warm_up := kept(model).warm_up) is not None and not warm_up.is_over:
        own.append(warm_up)
    return [Restore(backups), Begin(), Agree(saves=saves), *own, *given, StopTogether()]


class Agree(keras.callbacks.Callback):
    """Averages moving statistics before anything reads them, and compares weights after each epoch.

    It has no method for batches, because Keras would then fetch a loss after each step. saves: True if rank 0 saves the
    model after each epoch, for which it needs the whole state of a sharded optimizer.
    """

    async_safe = True

    def __init__(self, *, saves: bool) -> None:
        super().__init__()
        self._saves = saves

    def on_test_begin(self, logs: Any = None) -> None:
        average_statistics(self.model)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        average_statistics(self.model)
        after_last_step = kept(self.model).watch.weights
        weights.check_weights(self.model, after_last_step, f"after epoch {epoch + 1}")
        if self._saves:
            gather(self.model)

    def on_train_end(self, logs: Any = None) -> None:
        average_statistics(self.model)
        gather(self.model)


class Begin(keras.callbacks.Callback):
    """Runs last before the first step: sends rank 0's state, whether restored from a backup or not, to all ranks."""

    async_safe = True

    def on_train_begin(self, logs: Any = None) -> None:
        broadcast(self.model)
        self.model._initial_epoch = from_rank(0, self.model._initial_epoch)


class Epochs(keras.callbacks.Callback):
    """Tells a rank's share of a PyDataset which epoch begins."""

    async_safe = True

    def __init__(self, part: PyDatasetPart) -> None:
        super().__init__()
        self._part = part
        self._first: int | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._first = epoch if self._first is None else self._first
        self._part.begin_epoch(epoch - self._first)


class Restore(keras.callbacks.Callback):
    """Restores backups here, before rank 0's weights are sent; BackupAndRestore itself then restores nothing."""

    async_safe = True

    def __init__(self, backups: list[Any]) -> None:
        super().__init__()
        self._backups = backups
        for backup in backups:
            backup.__dict__["on_train_begin"] = lambda logs=None: None

    def on_train_begin(self, logs: Any = None) -> None:
        for backup in self._backups:
            backup.set_model(self.model)
            type(backup).on_train_begin(backup, logs)


class StopTogether(keras.callbacks.Callback):
    """Runs last after an epoch: if a callback stops the training on one rank, say at a certain time, all ranks stop."""

    async_safe = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        together = bool(reduced_on_host(float(self.model.stop_training), hvd.Max, "stop") > 0)
        kept(self.model).watch.stop_after_epoch(together)
        if together:  # never set to False, because another thread may just have asked to stop
            self.model.stop_training = True


class TerminateOnNaN(keras.callbacks.TerminateOnNaN):
    """Keras's callback, which sees the loss averaged over ranks: otherwise only the rank with the NaN would stop, and
    others would wait for it."""

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        logs = {"loss": logs["loss"]} if logs and "loss" in logs else {}
        average_logs(logs)  # an average with a NaN is NaN
        super().on_batch_end(batch, logs)
