"""Train combinations one after the other: train.py OUT SEED [plain] NUMBER..., on one rank or two; `plain`: by Keras
without ring.

Writes OUT/NUMBER.RANKS.RANK.npz: what it began and ended with, and the history; or .txt, the refusal."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from profiles.ground.errors import RingscopeError
from ringscope import ring
from tests.fuzz.trainings.between import asked, between
from tests.fuzz.trainings.combination import draw
from tests.fuzz.trainings.made import inputs_of, loss_of, metric_of, model_of, optimizer_of, target_of, weights_of

ring.init(seed=11)
RANKS = 2


def leading(data: Any, samples: int) -> Any:
    return None if data is None else keras.tree.map_structure(lambda a: a[:samples], data)


class Batches(keras.utils.PyDataset):
    def __init__(self, parts: Any, batch: int) -> None:
        super().__init__()
        self.parts, self.batch = parts, batch
        self.samples = len(keras.tree.flatten(parts)[0])

    def __len__(self) -> int:
        return -(-self.samples // self.batch)

    def __getitem__(self, i: int) -> Any:
        return keras.tree.map_structure(lambda a: a[i * self.batch : (i + 1) * self.batch], self.parts)


def data_of(drawn: dict[str, Any], x: Any, y: Any, weights: Any) -> dict[str, Any]:
    """Arguments for `fit`: the same samples, in batches that are those of all ranks together where there is one."""
    kind, batch, samples = drawn["data"], drawn["batch"], drawn["samples"]
    joined = batch * RANKS // ring.size()
    if kind == "arrays":
        used = samples // RANKS * RANKS
    elif kind in ("whole batches", "repeated"):
        used = samples // (batch * RANKS) * batch * RANKS
    else:
        used = min(samples, -(-samples // batch) // RANKS * RANKS * batch)
    none_left_over = used == samples
    if ring.size() > 1:  # what is left over they leave out themselves
        used = samples
    if kind == "arrays":
        own = {"x": leading(x, used), "y": leading(y, used), "sample_weight": leading(weights, used)}
        return own | {"batch_size": joined} | ({"validation_split": 0.25} if drawn["validation"] == "split" else {})
    parts = tuple(leading(part, used) for part in (x, y, weights) if part is not None)
    if kind == "py dataset":
        return {"x": Batches(parts, joined)}
    if kind == "generator":  # of a rank's own part

        def forever() -> Any:
            batches = Batches(parts, joined)
            while True:
                yield from (
                    batches[i] for i in range(ring.rank(), len(batches) // ring.size() * ring.size(), ring.size())
                )

        return {"x": forever(), "steps_per_epoch": 3} | ({"shard": False} if ring.size() > 1 else {})
    data = tf.data.Dataset.from_tensor_slices(parts)
    if kind == "repeated":
        steps = samples // (batch * RANKS) * ring.size()
        data = data.take(samples // (batch * RANKS) * batch * RANKS)
        return {"x": data.repeat().batch(joined), "steps_per_epoch": steps}
    counted = {}
    if kind == "unknown length":
        data = data.filter(lambda *_: True)
        counted = {"unknown_length": "count"} if drawn["counted"] and ring.size() > 1 else {}
        none_left_over = none_left_over and not drawn["counted"]  # who counts goes on with another order
    if drawn["kept"]:
        data = data.map(lambda *each: each).cache()
        data = data.shuffle(samples, seed=drawn["number"]) if none_left_over else data
    data = data.batch(joined, drop_remainder=kind == "whole batches")
    return {"x": data} | counted


def callback_of(drawn: dict[str, Any], folder: str) -> Any:
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 2:
                self.model.stop_training = True

    monitored = "val_loss" if drawn["validation"] in ("data", "split") else "loss"
    return {
        "none": lambda: [],
        "early stopping": lambda: [keras.callbacks.EarlyStopping(monitored, min_delta=0.05, restore_best_weights=True)],
        "plateau": lambda: [keras.callbacks.ReduceLROnPlateau(monitored, patience=0, min_delta=0.1)],
        "rate by epoch": lambda: [keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / (1 + epoch))],
        "checkpoint": lambda: [
            keras.callbacks.ModelCheckpoint(f"{folder}/{{epoch}}.weights.h5", save_weights_only=True)
        ],
        "terminate on NaN": lambda: [keras.callbacks.TerminateOnNaN()],
        "stop in an epoch": lambda: [Stop()],
    }[drawn["callback"]]()


def compiled(model: keras.Model, drawn: dict[str, Any]) -> None:
    loss: Any = loss_of(drawn)
    metrics: Any = [metric_of(name) for name in drawn["metrics"]]
    if drawn["model"] == "two outputs":
        loss, metrics = {"one": loss, "two": "mse"}, {"one": metrics}
    model.compile(
        optimizer_of(drawn),
        loss,
        loss_weights={"one": 1.0, "two": 0.3} if drawn["model"] == "two outputs" else None,
        steps_per_execution=drawn["steps_per_execution"],
        run_eagerly=drawn["run_eagerly"],
        **{"weighted_metrics" if drawn["weighted metrics"] else "metrics": metrics},
    )


def train(drawn: dict[str, Any], *, plain: bool) -> dict[str, Any]:
    rng = np.random.default_rng(drawn["number"])
    keras.utils.set_random_seed(5)
    keras.config.set_dtype_policy(drawn["policy"])
    x, y, weights = inputs_of(drawn, rng), target_of(drawn, rng), None
    if drawn["weights"] in ("samples", "some of 0") or drawn["overflow"]:
        weights = weights_of(drawn, rng)

    def new() -> keras.Model:
        made = model_of(drawn)
        if not made.built:
            made(leading(x, 2))
        return made

    def ready(made: keras.Model) -> None:
        if not made.compiled or drawn["between"] != "loaded":
            compiled(made, drawn)
        if not plain:
            ring.distribute(made, step=drawn["step"], sharded=drawn["sharded"], **drawn["distribute"])

    model = new()
    if drawn["frozen"]:
        model.layers[-2].trainable = False
    trains = [any(v is each for each in model.trainable_variables) for v in model.weights]
    found: dict[str, Any] = {f"began {i}": v.numpy() for i, v in enumerate(model.weights) if trains[i]}
    ready(model)
    with tempfile.TemporaryDirectory() as folder:
        for again in range(1 + drawn["again"]):
            if again:
                model = between(model, drawn, (x, y, weights), folder, new, ready)
            options: dict[str, Any] = data_of(drawn, x, y, weights)
            if drawn["validation"] != "none":
                options["validation_batch_size"] = drawn["batch"]
            if drawn["validation"] in ("data", "every second epoch"):
                options["validation_data"] = tuple(leading(part, 25) for part in (x, y, weights) if part is not None)
                options["validation_freq"] = 2 if drawn["validation"] == "every second epoch" else 1
            if drawn["weights"] == "classes":
                options["class_weight"] = {0: 0.5, 1: 2.0, 2: 1.0}
            callbacks = callback_of(drawn, folder)
            history = model.fit(**options, epochs=drawn["epochs"], shuffle=False, verbose=0, callbacks=callbacks)
            found |= {f"history {again} {name}": np.array(values) for name, values in history.history.items()}
        found |= asked(model, drawn, (x, y, weights))
    found |= {f"ended {i}": v.numpy() for i, v in enumerate(model.weights) if trains[i]}
    moving = [v for v in model.non_trainable_variables if not v.path.endswith("seed_generator_state")]
    found |= {f"moving {i}": v.numpy() for i, v in enumerate(moving)}
    state: dict[str, Any] = {}
    model.optimizer.save_own_variables(state)  # whole, also where each rank has a part of it
    found |= {f"optimizer {i}": value for i, value in state.items()}
    if drawn["policy"] == "mixed_float16":
        found["scale"] = model.optimizer.dynamic_scale.numpy()
    return found


def main() -> None:
    out, seed = Path(sys.argv[1]), int(sys.argv[2])
    plain = sys.argv[3] == "plain"
    for number in sys.argv[3 + plain :]:
        path = out / f"{number}.{ring.size()}.{ring.rank()}"
        print(f"training {number}", flush=True)
        try:
            found = train(draw(int(number), seed), plain=plain)
            # NumPy knows no bfloat16 in a file.
            found = {name: v.astype(np.float32) if v.dtype.kind == "V" else v for name, v in found.items()}
            np.savez(path.with_name(path.name + ".npz"), **found)
        except (RingscopeError, ValueError, TypeError, IndexError, tf.errors.OpError) as error:
            path.with_name(path.name + ".txt").write_text(f"{type(error).__name__}: {error}")
        keras.backend.clear_session(free_memory=False)
        keras.config.set_dtype_policy("float32")


if __name__ == "__main__":
    main()
