"""What two ranks with sharded optimizers must train to like one rank on the joined batch. usage: sharded.py OUT RANKS

As joined.py; on one rank nothing is sharded. Each rank writes, by case, its weights, the optimizer's state as it is
saved, and the bytes of that state which it keeps."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from profiles.ground.errors import RingscopeError
from ringscope import ring

ring.init(seed=7)
out, ranks = Path(sys.argv[1]), int(sys.argv[2])
joined = ranks // ring.size()
random = np.random.default_rng(0)
X, Y = random.normal(size=(96, 4)).astype("float32"), random.normal(size=(96, 1)).astype("float32")
LABELS = random.integers(0, 2, (96, 1))
WORDS = random.integers(0, 30, (96, 6))

Case = Callable[[str], dict[str, Any]]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__.replace("_", " ")] = function
    return function


def adam(**options: Any) -> Any:
    return keras.optimizers.Adam(0.01, epsilon=1e-3, **options)


def made(optimizer: Any, loss: str = "mse") -> keras.Model:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), layers.Dense(7, activation="tanh"), layers.Dense(1)])
    model.compile(optimizer, loss)
    return model


def saved(model: keras.Model) -> list[Any]:
    """What is written of the optimizer, by any rank."""
    ring.gather(model)
    store: dict[str, Any] = {}
    model.optimizer.save_own_variables(store)
    return [np.asarray(value, float).tolist() for value in store.values()]


def facts(model: keras.Model) -> dict[str, Any]:
    inner = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    return {
        "weights": [np.asarray(w, float).tolist() for w in model.trainable_weights],
        "state": saved(model),
        "bytes": sum(4 * int(np.prod(v.shape)) for v in inner.variables if v.shape.rank),
    }


def fitted(model: keras.Model, step: str, *data: Any, epochs: int = 2, **options: Any) -> dict[str, Any]:
    callbacks = options.pop("callbacks", None)
    ring.distribute(model, step=step, sharded=True, **options)
    model.fit(*(data or (X, Y)), epochs=epochs, batch_size=8 * joined, shuffle=False, verbose=0, callbacks=callbacks)
    return facts(model)


@case
def momentum(step: str) -> dict[str, Any]:
    return fitted(made(keras.optimizers.SGD(0.05, momentum=0.9)), step)


@case
def no_state(step: str) -> dict[str, Any]:
    return fitted(made(keras.optimizers.SGD(0.05)), step)


@case
def moments(step: str) -> dict[str, Any]:
    return fitted(made(adam(amsgrad=True)), step)


@case
def decay_of_some_weights(step: str) -> dict[str, Any]:
    optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.3, epsilon=1e-3)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return fitted(made(optimizer), step)


@case
def a_schedule(step: str) -> dict[str, Any]:
    return fitted(made(keras.optimizers.RMSprop(keras.optimizers.schedules.ExponentialDecay(0.01, 5, 0.5))), step)


@case
def a_number_of_the_step(step: str) -> dict[str, Any]:
    """The product of Nadam's rates."""
    return fitted(made(keras.optimizers.Nadam(0.01, epsilon=1e-3)), step)


@case
def clipped_by_the_norm_of_all(step: str) -> dict[str, Any]:
    return fitted(made(keras.optimizers.SGD(0.05, momentum=0.9, global_clipnorm=0.2)), step)


@case
def clipped_by_the_norm_of_each(step: str) -> dict[str, Any]:
    return fitted(made(keras.optimizers.SGD(0.05, momentum=0.9, clipnorm=0.1)), step)


@case
def clipped_by_value(step: str) -> dict[str, Any]:
    return fitted(made(keras.optimizers.SGD(0.05, momentum=0.9, clipvalue=0.05)), step)


@case
def sums_of_steps(step: str) -> dict[str, Any]:
    """One rank sums as many: the mean of a sum is that of the joined batches."""
    return fitted(made(adam()), step, aggregate=2)


@case
def rows_of_an_embedding_and_a_weight_without_a_gradient(step: str) -> dict[str, Any]:
    keras.utils.set_random_seed(1)
    words = keras.Input((6,))
    model = keras.Model(words, layers.Dense(1)(layers.Flatten()(layers.Embedding(30, 5)(words))))
    model.unused = layers.Dense(3)
    model.unused.build((None, 2))
    model.compile(keras.optimizers.AdamW(0.01, weight_decay=0.1, epsilon=1e-3), "mse")
    return fitted(model, step, WORDS, Y)


@case
def dense_layers_over_words(step: str) -> dict[str, Any]:
    """In a batch of any size the gradient of such a kernel has no shape of its own before it is computed."""
    keras.utils.set_random_seed(1)
    words = [keras.Input((6,)), layers.Embedding(30, 5), layers.Dense(4, activation="tanh")]
    model = keras.Sequential([*words, layers.GlobalAveragePooling1D(), layers.Dense(1)])
    model.compile(adam(), "mse")
    return fitted(model, step, WORDS, Y)


@case
def a_loop_of_its_own(step: str) -> dict[str, Any]:
    model = made(adam())
    ring.distribute(model, step=step, sharded=True)
    own = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8).shard(ring.size(), ring.rank())
    if joined > 1:
        own = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8 * joined)

    @tf.function
    def train(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    for batch in own:
        train(*batch)
    return facts(model)


@case
def weights_assigned_between(step: str) -> dict[str, Any]:
    """As EarlyStopping does that restores the best."""
    model = made(adam())
    fitted(model, step)
    model.set_weights([0.5 * w for w in model.get_weights()])
    model.fit(X, Y, batch_size=8 * joined, shuffle=False, verbose=0)
    return facts(model)


@case
def saved_and_loaded(step: str) -> dict[str, Any]:
    """Saved by a callback after an epoch, loaded by all, and trained on: sharded, and saved once more."""
    path = out / f"{ring.size()} {step}.keras"
    fitted(made(adam()), step, callbacks=[keras.callbacks.ModelCheckpoint(path)])
    ring.meet("saved", None)  # rank 0's file is there
    model = keras.models.load_model(path)
    return fitted(model, step)


@case
def restored_on_rank_0(step: str) -> dict[str, Any]:
    """Of a backup, whose weights and state only rank 0 has."""
    backup = keras.callbacks.BackupAndRestore(out / f"{ring.size()} {step} backup", delete_checkpoint=False)
    model = made(adam())
    fitted(model, step, callbacks=[backup])
    model.fit(X, Y, batch_size=8 * joined, shuffle=False, verbose=0)  # on from there, and back to it
    again = keras.callbacks.BackupAndRestore(out / f"{ring.size()} {step} backup", delete_checkpoint=False)
    model.fit(X, Y, batch_size=8 * joined, epochs=3, shuffle=False, verbose=0, callbacks=[again])
    return facts(model)


@case
def float16(step: str) -> dict[str, Any]:
    """The gradients of the third step overflow, on one rank of two; beside the same, not sharded."""
    keras.mixed_precision.set_dtype_policy("mixed_float16")
    try:
        found: list[dict[str, Any]] = []
        targets = Y.copy()
        targets[16 * 2 : 16 * 2 + 8] = 1e5
        for sharded in (True, False):
            optimizer = keras.mixed_precision.LossScaleOptimizer(adam(global_clipnorm=0.5))
            sequence = made(optimizer)
            model = keras.Model(sequence.inputs, sequence.outputs)
            model.compile(optimizer, "mse")
            ring.distribute(model, step=step, sharded=sharded)
            model.fit(X, targets, batch_size=8 * joined, epochs=2, shuffle=False, verbose=0)
            told = {"scale": float(model.optimizer.dynamic_scale), "updates": int(model.optimizer.iterations)}
            found.append(facts(model) | told)
    finally:
        keras.mixed_precision.set_dtype_policy("float32")
    return found[0] | {"plain": found[1]}


def refused(act: Callable[[], Any]) -> str:
    try:
        act()
    except RingscopeError as error:
        return str(error)
    return "nothing was refused"


@case
def refusals(step: str) -> dict[str, Any]:
    def sharded(optimizer: Any, **options: Any) -> str:
        return refused(lambda: ring.distribute(made(optimizer), step=step, sharded=True, **options))

    model = made(adam())
    fitted(model, step)
    model.train_on_batch(X[:8], Y[:8])
    saver = keras.callbacks.ModelCheckpoint(out / "no.keras", save_freq=3)
    bound = made(adam())
    bound.layers[0].kernel.constraint = keras.constraints.MaxNorm()
    return {
        "refused": [
            sharded(keras.optimizers.Lamb()),
            sharded(adam(use_ema=True)),
            sharded(adam(gradient_accumulation_steps=2)),
            sharded(adam(), op="sum"),
            sharded(adam(), reduce=False),
            sharded(adam(), compression="bf16"),
        ],
        "saved by this rank after a step more": refused(lambda: model.save(out / f"rank {ring.rank()}.keras")),
        "saved in between": refused(lambda: model.fit(X, Y, verbose=0, callbacks=[saver])),
        "bound": refused(lambda: fitted(bound, step)),
    }


results = {}
for name, function in CASES.items():
    for step in ("fit", "compiled"):
        results[f"{name}, {step}"] = function(step)
(out / f"{ring.size()}ranks{ring.rank()}.json").write_text(json.dumps(results))
