"""What would train wrongly in silence, raise or hang elsewhere, asked of two ranks. usage: guards.py OUT"""

import contextlib
import io
import json
import random as pythons
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import scipy.sparse
import tensorflow as tf
from asked import refused
from keras import layers

from ringscope import ring
from ringscope.ring import say
from ringscope.ring.alike import data as agreement
from ringscope.ring.data import samples, seeds
from ringscope.ring.internals.frameworks import hvd

backend = keras.config.backend
keras.config.backend = lambda: "torch"  # which is not installed here
of_torch = refused(ring.init)
keras.config.backend = backend
ring.init()
out, rank = Path(sys.argv[1]), ring.rank()
elastic = hvd.elastic
facts: dict[str, Any] = {"of torch": of_torch, "hvd.elastic.run": refused(lambda: elastic.run(print))}
facts["hvd's elastic state"] = refused(lambda: elastic.TensorFlowState([]))
facts["of another kind"] = refused(lambda: ring.distribute(layers.Dense(1)))
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
MODES = ("fit", "compiled")


def classifier(step: str = "fit", *inner: layers.Layer, **options: Any) -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), *inner, layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.1), loss_of)
    return ring.distribute(model, step=step, **options)


def digest(model: keras.Model) -> list[float]:
    return [float(np.sum(np.square(weight.numpy()), dtype=np.float64)) for weight in model.trainable_weights]


# 1. One seed; what a script draws itself is the same on all ranks.
permutation = np.random.permutation(64)
facts["permutation"] = permutation.tolist()
random = np.random.default_rng(0)  # no guard asks what the numbers are
x, y = random.normal(size=(64, 4)).astype("float32"), random.integers(0, 3, 64)
classifier().fit(x[permutation], y[permutation], batch_size=8, verbose=0)
state = np.random.get_state()[1].tolist()
seeds.sow(False, rank, lambda value: value)
facts["left alone"] = state == np.random.get_state()[1].tolist()
much = np.zeros((agreement.LOOKED_AT_BYTES // 4 + 1000, 1), "float32")
told = agreement.digest(much)
much[-1] = 1
facts["told of much"] = [told == agreement.digest(np.zeros_like(much)), told == agreement.digest(much)]
facts["noise"] = [tf.random.normal([3]).numpy().tolist(), keras.random.normal([3]).numpy().tolist()]
drawn = tf.data.Dataset.range(16).shuffle(16)
facts["shuffle"] = [int(value) for value in drawn]
own = np.random.default_rng(rank).permutation(64)  # a generator of the script's own
facts["another order"] = refused(lambda: classifier().fit(x[own], y[own], verbose=0))
facts["another order, its own share"] = refused(lambda: classifier().fit(x[own], y[own], verbose=0, shard=False))
words = layers.TextVectorization(vocabulary=["a", "b", "c"] if rank == 0 else ["c", "b", "a"])
texts = tf.data.Dataset.from_tensor_slices((np.array(["a b", "c a"] * 16), y[:32])).map(
    lambda text, label: (words(text), label)
)


def reader() -> keras.Model:
    model = keras.Sequential([layers.Embedding(9, 3), layers.GlobalAveragePooling1D(), layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.1), loss_of)
    return ring.distribute(model, step="fit")


facts["another vocabulary"] = refused(lambda: reader().fit(texts.batch(4), verbose=0))
facts["an unequal source"] = refused(
    lambda: classifier().fit(tf.data.Dataset.from_tensor_slices((x + rank, y)).batch(8), verbose=0)
)
rows = tf.data.Dataset.from_tensor_slices((x, y)).shard(2, rank).shuffle(64).batch(8)
facts["cut by shard()"] = refused(lambda: classifier().fit(rows, verbose=0))
facts["cut by shard(), its own share"] = refused(lambda: classifier().fit(rows, verbose=0, shard=False))


# 2. Updates that pass by the distributed optimizer.
class ByHand(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(3)
        self.sub = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
        self.sub.compile(keras.optimizers.SGD(0.1))

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.dense(inputs)


class Assigns(ByHand):
    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(data[1], self(data[0]))
        for variable, gradient in zip(
            self.dense.trainable_variables, tape.gradient(loss, self.dense.trainable_variables), strict=True
        ):
            variable.assign(variable - 0.1 * gradient)
        return {"loss": loss}


class OfAPart(ByHand):
    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(data[1], self.sub(data[0]))
        variables = self.sub.trainable_variables
        self.sub.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"loss": loss}


class ByAnotherOptimizer(ByHand):
    def __init__(self) -> None:
        super().__init__()
        self.made: list[Any] = []

    def train_step(self, data: Any) -> Any:
        if not self.made:
            self.made.append(keras.optimizers.SGD(0.1))
        with tf.GradientTape() as tape:
            loss = loss_of(data[1], self(data[0]))
        variables = self.dense.trainable_variables
        self.made[0].apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"loss": loss}


class Noisy(ByHand):
    """A train step that draws noise, of TensorFlow and of Keras, as GANs and diffusion models do."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = [self.add_weight(shape=(3,), initializer="zeros", trainable=False) for _ in range(2)]

    def train_step(self, data: Any) -> Any:
        self.seen[0].assign(tf.random.normal([3]))
        self.seen[1].assign(keras.random.normal([3]))
        return super().train_step(data)


for step in ("fit", "compiled"):
    keras.utils.set_random_seed(11)  # on all ranks alike, as scripts do
    model = Noisy()
    model(x[:1])
    model.compile(keras.optimizers.SGD(0.1), loss_of)
    ring.distribute(model, step=step)
    drawn_noise: list[Any] = []
    keep = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs, model=model, drawn=drawn_noise: drawn.append(
            [v.numpy().tolist() for v in model.seen]
        )
    )
    model.fit(x, y, batch_size=16, verbose=0, callbacks=[keep])
    facts[f"noise of a step, {step}"] = drawn_noise


# The session cleared between models: what Keras draws stays apart, and layers begin as without ring.
keras.backend.clear_session()
model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
model.compile(keras.optimizers.SGD(0.1), loss_of)
numbers = pythons.getstate()
ring.distribute(model, step="fit")
facts["noise after a cleared session"] = keras.random.normal([3]).numpy().tolist()
facts["numbers after a cleared session"] = numbers == pythons.getstate()


class Follows(keras.Model):
    """A teacher of its own follows the weights, after they have been updated."""

    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher = (keras.Sequential([keras.Input((4,)), layers.Dense(3)]) for _ in range(2))
        self.teacher.trainable = False

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.student(inputs)

    def train_step(self, data: Any) -> Any:
        logs = super().train_step(data)
        for own, followed in zip(self.teacher.weights, self.student.weights, strict=True):
            own.assign(0.5 * own + 0.5 * followed)
        return logs


def following(step: str) -> None:
    model = Follows()
    model(x[:1])
    model.compile(keras.optimizers.SGD(0.1), loss_of)
    ring.distribute(model, step=step).fit(x, y, batch_size=8, verbose=0)


for step in MODES:
    facts[f"weights used after the update, {step}"] = refused(lambda step=step: following(step))


class Kept(keras.metrics.Metric):
    """Begins at 0, and is no sum: the largest error, or that of the last batch."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.kept = self.add_variable((), "zeros", name="kept")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        found = tf.reduce_max(tf.abs(tf.cast(y_true, tf.float32)[:, None] - y_pred))
        kept = {"largest": lambda: tf.maximum(self.kept, found), "last": lambda: found, "noisy": self.noise}
        self.kept.assign(kept[self.name]() if self.name in kept else self.kept + found)

    def noise(self) -> Any:
        return tf.random.uniform([])

    def result(self) -> Any:
        return self.kept


def counting(name: str, step: str) -> None:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.1), loss_of, metrics=[Kept(name)])
    ring.distribute(model, step="fit" if step == "evaluated" else step)
    (model.evaluate if step == "evaluated" else model.fit)(x, y, batch_size=8, verbose=0)


for step, name in [(step, name) for step in MODES for name in ("largest", "last", "total")] + [
    ("fit", "noisy"),
    ("evaluated", "largest"),
]:
    facts[f"a metric of the {name}, {step}"] = refused(lambda name=name, step=step: counting(name, step))


def eager() -> None:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.1), loss_of, run_eagerly=True)
    ring.distribute(model, step="compiled")


facts["eager and compiled"] = refused(eager)
with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
    facts["within a strategy"] = refused(classifier)


class DrawsByOperation(keras.Sequential):
    def train_step(self, data: Any) -> Any:
        noise = tf.raw_ops.RandomStandardNormal(shape=[4], dtype=tf.float32)
        return super().train_step((data[0] + noise, data[1]))


model = DrawsByOperation([keras.Input((4,)), layers.Dense(3)])
model.compile(keras.optimizers.SGD(0.1), loss_of)
ring.distribute(model, step="compiled")
facts["noise that XLA draws"] = refused(lambda: model.fit(x, y, batch_size=16, verbose=0))

for name, kind in (
    ("assigned by hand", Assigns),
    ("the optimizer of a part", OfAPart),
    ("another optimizer", ByAnotherOptimizer),
):
    model = kind()
    model(x[:1])
    model.compile(keras.optimizers.SGD(0.1))
    ring.distribute(model, step="fit")
    facts[name] = refused(lambda model=model: model.fit(x, y, batch_size=8, verbose=0))
    facts[f"{name}, weights"] = digest(model)


class Late(keras.callbacks.Callback):
    """Changes rank 1's weights after the last step of an epoch of four: the third has been looked at by then."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if rank == 1 and batch == 3:
            self.model.layers[0].kernel.assign_add(tf.ones((4, 3)))


facts["changed on one rank late"] = refused(
    lambda: classifier().fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=[Late()])
)


# What is compared of data that cannot be looked through; what only may differ.
def batches_of(make: Callable[[], Any], **options: Any) -> str:
    return refused(lambda: classifier().fit(make().batch(8), verbose=0, **options))


rows = tf.data.Dataset.from_tensor_slices((x, y))
facts["another type"] = batches_of(lambda: rows.map(lambda a, b: (tf.cast(a, tf.float64 if rank else tf.float32), b)))
facts["another length"] = batches_of(lambda: rows.take(64 - 16 * rank))
spec = (tf.TensorSpec((4,)), tf.TensorSpec((), tf.int64))
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    made = tf.data.Dataset.from_generator(lambda: ((x[i] + rank, y[i]) for i in range(64)), output_signature=spec)
    facts["made by a generator"] = batches_of(lambda: made)
facts["a generator"] = refused(lambda: classifier().fit((each for each in [(x[:8], y[:8])]), verbose=0))
for name, no_data in (("an iterator", iter([(x[:8], y[:8])])), ("lists", x.tolist())):  # which Keras refuses
    try:
        classifier().fit(no_data, verbose=0)
    except ValueError as error:
        facts[name] = str(error)
facts["warned"] = [str(each.message) for each in warned if "differs" in str(each.message)]
shared = keras.optimizers.SGD(0.1)
for _ in range(2):
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    model.compile(shared, loss_of)
    facts["one optimizer, two models"] = refused(lambda model=model: ring.distribute(model))

# 6. A script that evaluates on rank 0 alone does not hang; batches are said once.
model = classifier()
if rank == 0:
    facts["evaluated alone"] = model.evaluate(x, y, verbose=0)
model.fit(x, y, batch_size=8, verbose=0)

# Arrays of unlike lengths: the ranks' rows of them could be as many.
plain = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
plain.compile(keras.optimizers.SGD(0.1), loss_of)
ways: dict[str, Callable[[keras.Model], object]] = {
    "fit": lambda model: model.fit(x[:63], y[:62], batch_size=8, verbose=0),
    "weights of fit": lambda model: model.fit(x, y, sample_weight=np.ones(65), batch_size=8, verbose=0),
    "validation": lambda model: model.fit(x, y, validation_data=(x, y[:48]), batch_size=8, verbose=0),
    "evaluate": lambda model: model.evaluate(x, y[:48], batch_size=8, verbose=0),
    "evaluate fewer": lambda model: model.evaluate(x[:48], y, batch_size=8, verbose=0),
    "weights of evaluate": lambda model: model.evaluate(x, y, sample_weight=np.ones(65), batch_size=8, verbose=0),
}
facts["unlike lengths"] = {}
for what, way in ways.items():
    facts["unlike lengths"][what] = []
    for asked_of in (plain, model):
        try:
            facts["unlike lengths"][what].append(f"no error: {way(asked_of)}")
        except ValueError as error:
            facts["unlike lengths"][what].append(str(error))

# What raised where plain Keras trains.
sparse = scipy.sparse.random(64, 4, 0.5, "csr", dtype="float32", random_state=0)
ragged = tf.ragged.constant([[1, 2, 3][: 1 + i % 3] for i in range(64)])
for step in MODES:
    model = classifier(step)
    model.fit(sparse, y, batch_size=8, verbose=0)
    facts[f"scipy, {step}"] = digest(model)
model = classifier()
model.fit(tf.sparse.from_dense(x), y, batch_size=8, verbose=0)
facts["sparse"] = digest(model)
facts["ragged"] = [samples.length(ragged), samples.every(ragged, rank, 2).to_list()[:3]]


class Built(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(3)

    def build(self, shape: Any) -> None:
        self.dense.build(shape)
        self.built = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.dense(inputs)


class ByTensorFlow(keras.Sequential):
    """Its tape has watched TensorFlow's variables, and those are updated."""

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.compute_loss(data[0], data[1], self(data[0], training=True))
        variables = tape.watched_variables()
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"loss": loss}


for step in MODES:
    model = Built()
    model.build((None, 4))
    model.compile(keras.optimizers.SGD(0.1), loss_of)
    ring.distribute(model, step=step)
    model.train_on_batch(x[rank::2], y[rank::2])
    model.fit(x, y, batch_size=8, verbose=0)
    facts[f"built by its shape, {step}"] = digest(model)
    model = ByTensorFlow([keras.Input((4,)), layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.1), loss_of)
    ring.distribute(model, step=step).fit(x, y, batch_size=8, verbose=0)
    facts[f"TensorFlow's variables, {step}"] = digest(model)
    frozen = layers.Dense(4, trainable=False)
    model = classifier(step, frozen)
    frozen.trainable = True
    model.fit(x, y, batch_size=8, verbose=0)
    facts[f"unfrozen, {step}"] = digest(model)

model = classifier()
model.fit(x, y, batch_size=8, verbose=0, callbacks=[keras.callbacks.TensorBoard(str(out / "board"))])
facts["tensorboard"] = digest(model)

backup = out / "backup"
for epochs in (2, 4):  # the second goes on from the first's third epoch
    model = classifier("fit", layers.Dense(4))
    if rank:
        model.layers[0].kernel.assign_add(tf.ones_like(model.layers[0].kernel))
    began: list[int] = []
    callbacks = [
        keras.callbacks.BackupAndRestore(str(backup), delete_checkpoint=epochs == 4),
        keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs, began=began: began.append(epoch)),
    ]
    model.fit(x, y, batch_size=8, epochs=epochs, verbose=0, callbacks=callbacks)
    facts[f"backup of {epochs}"] = [began, digest(model)]


# What scripts from Horovod leave in.
import horovod.keras as hvd  # noqa: E402

facts["hvd.DistributedOptimizer"] = refused(lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
import horovod.tensorflow.keras.elastic  # noqa: E402

facts["hvd.SyncBatchNormalization"] = refused(lambda: horovod.tensorflow.SyncBatchNormalization())
facts["hvd.load_model"] = refused(lambda: hvd.load_model("a.keras"))
facts["hvd's checkpoint"] = refused(hvd.callbacks.BestModelCheckpoint)
facts["hvd.callbacks"] = refused(lambda: hvd.callbacks.BroadcastGlobalVariablesCallback(0))
facts["hvd's elastic state of a model"] = refused(lambda: elastic.TensorFlowKerasState(model))
facts["hvd.keras's elastic state"] = refused(lambda: horovod.tensorflow.keras.elastic.KerasState(model))
facts["hvd.broadcast_global_variables"] = refused(lambda: horovod.tensorflow.broadcast_global_variables(0))
facts["hvd.broadcast_variables"] = refused(lambda: horovod.tensorflow.broadcast_variables(model.variables, 0))
facts["adasum"] = refused(lambda: classifier(op="adasum"))
facts["bf16 of a sum"] = refused(lambda: classifier(op="sum", compression="bf16"))


class Product(keras.metrics.Metric):
    """It begins at 1, which a sum over ranks would count once a rank."""

    def __init__(self) -> None:
        super().__init__(name="product")
        self.total = self.add_weight(name="total", initializer="ones")

    def reset_state(self) -> None:
        self.total.assign(1.0)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.total.assign(self.total * 2)

    def result(self) -> Any:
        return self.total


def measured() -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.1), loss_of, metrics=[Product()])
    return ring.distribute(model, step="fit")


facts["a metric that is no sum"] = refused(lambda: measured().fit(x, y, verbose=0))


def of_strings() -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.1), lambda names, scores: loss_of(tf.strings.length(names) * 0, scores))
    return ring.distribute(model, step="compiled")


letters = tf.constant([["a"], ["b"]] * 32)
facts["strings, compiled"] = refused(lambda: of_strings().fit(x, letters, batch_size=8, verbose=0))


# Losses that join the samples of a batch with each other: said, and trained.
def dice(y_true: Any, y_pred: Any) -> Any:
    return 1 - 2 * tf.reduce_sum(y_true * y_pred) / (tf.reduce_sum(y_true) + tf.reduce_sum(y_pred))


def contrastive(y_true: Any, y_pred: Any) -> Any:
    """Each sample against all of its batch, one number a sample."""
    likeness = tf.matmul(y_pred, y_pred, transpose_b=True)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(tf.shape(y_pred)[0]), likeness)


class Spread(layers.Layer):
    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        self.add_loss(tf.reduce_max(inputs) - tf.reduce_min(inputs))
        return inputs


class Pairs(keras.Model):
    def compute_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None, training: bool = True) -> Any:
        return tf.reduce_mean(contrastive(y, y_pred))


class Beside(keras.Model):
    def compute_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None, training: bool = True) -> Any:
        return super().compute_loss(x, y, y_pred, sample_weight) + 0.01 * tf.reduce_sum(tf.abs(y_pred))


class Around(keras.Model):
    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        return super().compute_loss(*args, **kwargs)


class Opaque(keras.Model):
    def call(self, inputs: Any, training: bool = False) -> Any:
        self.kept = super().call(inputs)
        return self.kept

    def compute_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None, training: bool = True) -> Any:
        return tf.reduce_mean(tf.abs(y - self.kept))


class Everybodys(keras.Model):
    """Takes the samples of all ranks for negatives; XLA compiles no exchange."""

    def compute_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None, training: bool = True) -> Any:
        others = horovod.tensorflow.allgather(tf.stop_gradient(y_pred))
        return tf.reduce_mean(tf.square(tf.matmul(y_pred, others, transpose_b=True) - 1))


class TakenByHand(keras.Model):
    def train_step(self, data: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.abs(data[1] - self(data[0], training=True)))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class ComparedByHand(keras.Model):
    def train_step(self, data: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(contrastive(data[1], self(data[0], training=True)))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class ByKeras(keras.Model):
    def train_step(self, data: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = self.compute_loss(*data, self(data[0], training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class ComparedBeside(keras.Model):
    def train_step(self, data: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            given = self(data[0], training=True)
            loss = self.compute_loss(*data, given) + tf.reduce_mean(contrastive(data[1], given))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class Clips(keras.Model):
    def train_step(self, data: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = self.compute_loss(*data, self(data[0], training=True))
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, self.trainable_variables), 1.0)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


class ScalesAndAdds(keras.Model):
    def train_step(self, data: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = self.compute_loss(*data, self(data[0], training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        gradients = [
            (g - tf.reduce_mean(g)) / 2.0 + 0.01 * v for g, v in zip(gradients, self.trainable_variables, strict=True)
        ]
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


facts["said of models"] = {}
for step in MODES:
    for kind in (
        Pairs,
        Beside,
        Around,
        Opaque,
        TakenByHand,
        ComparedByHand,
        ByKeras,
        ComparedBeside,
        Clips,
        ScalesAndAdds,
        *([Everybodys] if step == "fit" else []),
    ):
        said = io.StringIO()
        say._said.clear()
        with contextlib.redirect_stderr(said):
            inputs = keras.Input((4,))
            model = kind(inputs, layers.Dense(3, activation="sigmoid")(inputs))
            model.compile(keras.optimizers.SGD(0.1), "mse")
            ring.distribute(model, step=step)
            model.fit(x, np.eye(3, dtype="float32")[y], batch_size=8, verbose=0)
        lines = [line for line in said.getvalue().splitlines() if kind.__name__ in line]
        facts["said of models"][f"{kind.__name__}, {step}"] = lines

facts["said of a loop"] = {}
for step in MODES:
    said = io.StringIO()
    say._said.clear()
    with contextlib.redirect_stderr(said):
        model = classifier(step)
        model.fit(x, y, batch_size=8, verbose=0)
        model.train_on_batch(x[rank::2], y[rank::2])
        print("the loop begins", file=sys.stderr)
        for _ in range(2):
            with tf.GradientTape() as tape:
                loss = loss_of(y[rank::2], model(x[rank::2]))
            model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    facts["said of a loop"][step] = [part.count("own loop") for part in said.getvalue().split("the loop begins")]

facts["said"] = {}
for step in MODES:
    said = io.StringIO()
    say._said.clear()  # each is said once a process
    with contextlib.redirect_stderr(said):
        for name in (dice, contrastive, "mse", "binary_crossentropy", keras.losses.Dice(), keras.losses.Huber()):
            model = keras.Sequential([keras.Input((4,)), Spread(), layers.Dense(3, activation="sigmoid")])
            model.compile(keras.optimizers.SGD(0.1), name)
            ring.distribute(model, step=step)
            model.fit(x, np.eye(3, dtype="float32")[y], batch_size=8, verbose=0)
            facts.setdefault(f"joining losses, {step}", []).extend(digest(model))
    facts["said"][step] = [line for line in said.getvalue().splitlines() if "not a mean" in line]
for step in MODES:
    for name, options in {
        "sum": {"op": "sum"},
        "predivided": {"predivide_factor": 2.0},
        "dense": {"sparse_as_dense": True},
    }.items():
        keras.utils.set_random_seed(5)
        model = classifier(step, **options)
        model.fit(x, y, batch_size=8, verbose=0, shuffle=False)
        facts[f"{name}, {step}"] = digest(model)
    keras.utils.set_random_seed(5)
    model = classifier(step)
    model.fit(x, y, batch_size=8, verbose=0, shuffle=False)
    facts[f"average, {step}"] = digest(model)


def told_of_optimizers(train: Callable[[], Any]) -> list[str]:
    """The lines on optimizers without a model of `ring.distribute` that this training prints."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        train()
    return [line for line in said.getvalue().splitlines() if "the optimizer '" in line]


def loop(optimizer: keras.optimizers.Optimizer, model: keras.Model) -> None:
    """Two steps of a loop of the script's own, in a graph and without one."""
    for step in (tf.function(one_step), one_step):
        step(optimizer, model)


def one_step(optimizer: keras.optimizers.Optimizer, model: keras.Model, averaged: Callable[..., Any] = list) -> None:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(loss_of(y, model(x)))
    optimizer.apply(averaged(tape.gradient(loss, model.trainable_variables)), model.trainable_variables)


def compiled_with(optimizer: Any, **options: Any) -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    model.compile(optimizer, loss_of)
    return ring.distribute(model, **options) if options else model


scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))
facts["optimizers of loops"] = {
    "forgotten": told_of_optimizers(lambda: loop(forgotten := keras.optimizers.SGD(0.1), compiled_with(forgotten))),
    "scaled": told_of_optimizers(lambda: loop(scaled, compiled_with(scaled, step="fit"))),
    "distributed": told_of_optimizers(
        lambda: loop(given := keras.optimizers.SGD(0.1), compiled_with(given, step="fit"))
    ),
    "averaged by hand": told_of_optimizers(
        lambda: one_step(hands := keras.optimizers.SGD(0.1), compiled_with(hands), ring.average_gradients)
    ),
    "alone": told_of_optimizers(lambda: loop(alone := keras.optimizers.SGD(0.1), compiled_with(alone, reduce=False))),
    "named by fit": told_of_optimizers(lambda: compiled_with("sgd").fit(x, y, verbose=0)),
}


class Warmed(keras.optimizers.schedules.LearningRateSchedule):
    """Rises for `steps`, and stays."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        return 0.1 * tf.minimum(tf.cast(step, tf.float32) / self.steps, 1.0)


def schedules_of(steps: int) -> dict[str, keras.optimizers.schedules.LearningRateSchedule]:
    """Schedules that end after so many steps, and two that do not end."""
    of_keras = keras.optimizers.schedules
    return {
        "cosine": of_keras.CosineDecay(0.1, steps - 2, warmup_target=0.2, warmup_steps=2),
        "polynomial": of_keras.PolynomialDecay(0.1, steps),
        "pieces": of_keras.PiecewiseConstantDecay([steps // 2, steps * 3 // 4], [0.1, 0.01, 0.001]),
        "own": Warmed(steps),
        "exponential": of_keras.ExponentialDecay(0.1, steps, 0.9),
        "restarts": of_keras.CosineDecayRestarts(0.1, steps),
    }


for steps in (8, 16, 64):  # fit makes 2 epochs of 4 steps
    for name, schedule in schedules_of(steps).items():
        said = io.StringIO()
        model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
        model.compile(keras.optimizers.SGD(schedule), loss_of)
        ring.distribute(model)
        with contextlib.redirect_stderr(said):
            model.fit(x, y, batch_size=8, epochs=2, verbose=0)
        facts[f"{name} of {steps} steps"] = [line for line in said.getvalue().splitlines() if "fit ends at" in line]


class Most(layers.Layer):
    """Keeps the largest value that it has seen."""

    def build(self, shape: Any) -> None:
        self.most = self.add_weight(shape=(), initializer="zeros", trainable=False, name="most")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        self.most.assign(keras.ops.maximum(self.most, keras.ops.max(inputs)))
        return inputs


class Counts(layers.Layer):
    """Counts steps, samples (as a sum, and over all ranks) and numbers above 0."""

    def build(self, shape: Any) -> None:
        self.steps = self.add_weight(shape=(), initializer="zeros", trainable=False, name="steps")
        self.samples = self.add_weight(
            shape=(), initializer="zeros", trainable=False, aggregation="sum", dtype="float32", name="samples"
        )
        self.everybodys = self.add_weight(shape=(), initializer="zeros", trainable=False, name="everybodys")
        self.above = self.add_weight(shape=(), initializer="zeros", trainable=False, dtype="int32", name="above")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        samples = tf.cast(tf.shape(inputs)[0], tf.float32)
        self.steps.assign_add(1.0)
        self.samples.assign_add(samples)
        self.everybodys.assign_add(ring.sum(samples))
        self.above.assign_add(tf.reduce_sum(tf.cast(inputs > 0, tf.int32)))
        return inputs


odd = np.ones_like(x)
odd[0, 0] = 0  # 255 numbers above 0: two ranks never count as many
for step in MODES:
    said, counted = io.StringIO(), Counts()
    model = classifier(step, counted)
    with contextlib.redirect_stderr(said):
        model.fit(odd, y, batch_size=8, verbose=0)
    facts[f"counted by a layer, {step}"] = {
        "lines": [line for line in said.getvalue().splitlines() if "has counted" in line],
        "over all ranks": float(counted.everybodys),
        "steps": float(counted.steps),
        "samples": float(counted.samples),
    }
said = io.StringIO()
with contextlib.redirect_stderr(said):
    classifier("fit", Most(), layers.BatchNormalization()).fit(x, y, batch_size=8, verbose=0)
facts["kept by a layer"] = [line for line in said.getvalue().splitlines() if "its own batches" in line]


class Reads(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        assert logs["loss"] > 0


class Counts(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        assert "loss" in logs


said = io.StringIO()
with contextlib.redirect_stderr(said):
    for _ in range(2):
        classifier().fit(x, y, batch_size=8, verbose=0, callbacks=[Counts(), keras.callbacks.TerminateOnNaN(), Reads()])
facts["read logs of a batch"] = [line for line in said.getvalue().splitlines() if "reads the logs of a batch" in line]


class Rows(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return x[index * 8 : index * 8 + 8], y[index * 8 : index * 8 + 8]


said = io.StringIO()
with contextlib.redirect_stderr(said):
    model = classifier()
    model.fit(Rows(workers=2), verbose=0)
    if rank == 1:
        model.trainable_weights[0].assign_add(keras.ops.ones_like(model.trainable_weights[0]))
    model.fit(Rows(workers=200), verbose=0)
facts["parted before fit"] = [line for line in said.getvalue().splitlines() if "before fit" in line]
facts["more workers than cores"] = [line for line in said.getvalue().splitlines() if "data-loading workers" in line]
# One rank has made more models, so Keras has given its layers and variables other names.
if rank == 0:
    keras.Sequential([keras.Input((4,)), layers.BatchNormalization(synchronized=True), layers.Dense(3)])
for step in MODES:
    keras.utils.set_random_seed(5)
    model = classifier(step, layers.BatchNormalization(synchronized=True))
    model.fit(x, y, batch_size=8, verbose=0, shuffle=False)
    facts[f"otherwise named, {step}"] = digest(model)
ids = random.integers(0, 9, (64, 5))
model = reader()  # whose gradient is one of rows
model.fit(ids, y, batch_size=8, verbose=0)
facts["otherwise named, rows"] = digest(model)
model = classifier(scale_learning_rate=True, warmup_epochs=2)
rates: list[float] = []
asks = keras.callbacks.LambdaCallback(
    on_train_batch_begin=lambda batch, logs: rates.append(float(model.optimizer.learning_rate))
)
lowers = keras.callbacks.ReduceLROnPlateau("loss", factor=0.1, patience=1, min_delta=100)
model.fit(x, y, batch_size=8, epochs=4, callbacks=[lowers, asks], verbose=0)
facts["rates while warming up"] = rates
(out / f"rank{rank}.json").write_text(json.dumps(facts))
