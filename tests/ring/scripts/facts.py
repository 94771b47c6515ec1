"""What the seam does, found out by two ranks and written down by each. usage: facts.py OUT"""

import itertools
import json
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring
from ringscope.ring.step import exchange_inside

ring.init()
# Two devices, so that it shows on which of them ranks meet; all but that happens on the first.
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
out, rank = Path(sys.argv[1]), ring.rank()
facts: dict[str, object] = {"size": ring.size(), "threads": ring.threads()}


def classifier(*layers: keras.layers.Layer, rate: float = 0.1, **options: object) -> keras.Model:
    keras.utils.set_random_seed(rank)
    model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(rate), loss, metrics=["accuracy"])
    return ring.distribute(model, **options)


random = np.random.default_rng(0)
x, y = random.normal(size=(64, 4)).astype("float32"), random.integers(0, 3, 64)

# Gradients: dense, none, sparse, dense of another shape; rank 0 holds 1s, rank 1 holds 3s.
value = 1.0 + 2.0 * rank
for kind, compression in itertools.product(("float32", "bfloat16", "float64"), ring.COMPRESSIONS):
    own = [tf.fill([3], value), tf.fill([2, 7], value), tf.fill([2, 2], value)]
    small, large, values = (tf.cast(each, kind) for each in own)
    sparse = tf.IndexedSlices(values, tf.constant([rank, 3]), dense_shape=tf.constant([5, 2]))
    dense, nothing, rows, other = averaged = ring.average_gradients(
        [small, None, sparse, large], compression=compression, groups=2
    )
    facts[f"gradients {compression}, {kind}"] = [
        np.asarray(dense, float).tolist(),
        nothing,
        np.asarray(tf.convert_to_tensor(rows), float).tolist(),
        np.asarray(other, float).tolist(),
        isinstance(rows, tf.IndexedSlices),
        sorted({each.dtype.name for each in averaged if each is not None}),
    ]

with tf.device("CPU:1"):
    there = [tf.fill([3], value), tf.fill([2], value)]
facts["devices"] = {
    compression: [each.device[-5:] for each in ring.average_gradients(there, compression=compression)]
    for compression in ring.COMPRESSIONS
}

# Logs and moving statistics.
logs = {"loss": float(rank), "accuracy": 0.5}
ring.average_logs(logs)
facts["logs"] = logs
normal = classifier(keras.layers.BatchNormalization(), keras.layers.Dropout(0.5))
history = normal.fit(x, y, batch_size=8, epochs=2, validation_data=(x, y), verbose=0).history
facts["history"] = history
facts["statistics"] = [weight.numpy().tolist() for weight in normal.non_trainable_weights]
facts["seeds"] = [v.numpy().tolist() for v in normal.variables if v.path.endswith("seed_generator_state")]
frozen = classifier(keras.layers.Dense(4, trainable=False))
ring.broadcast(frozen)
before = [weight.numpy() for weight in frozen.non_trainable_weights]
ring.average_statistics(frozen)
after = [weight.numpy() for weight in frozen.non_trainable_weights]
facts["frozen weights keep their bits"] = all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))

for weight in normal.non_trainable_weights[:2]:
    weight.assign(tf.fill(weight.shape, value))
ring.average_statistics(normal)
facts["averaged statistics"] = [weight.numpy().tolist() for weight in normal.non_trainable_weights[:2]]


def exchanges(step: str) -> list[str]:
    """The names of Horovod's operations in a step."""
    model = classifier(step=step)
    graph = tf.function(model.train_step).get_concrete_function((tf.constant(x[:8]), tf.constant(y[:8]))).graph
    return [operation.name for operation in graph.get_operations() if operation.type.startswith("Horovod")]


facts["exchanges"] = {step: exchanges(step) for step in ring.STEPS}
is_possible, exchange_inside.is_possible = (
    exchange_inside.is_possible,
    lambda op: False,
)  # as with a Horovod that XLA cannot call
facts["exchanges"]["compiled, in halves"] = exchanges("compiled")
exchange_inside.is_possible = is_possible

# The rate: scaled at once, and by warming up.
facts["rate"] = float(classifier(scale_learning_rate=True).optimizer.learning_rate)
warm = classifier(scale_learning_rate=True, warmup_steps=4)
rates = []
for _ in range(6):
    rates.append(float(warm.optimizer.learning_rate))
    warm.fit(x[:8], y[:8], batch_size=4, steps_per_epoch=2, verbose=0)
facts["rates"] = rates

# Data: 7 batches are 3 for each rank; the same decision to stop; files from rank 0 only.
batches = tf.data.Dataset.from_tensor_slices((x[:56], y[:56])).batch(8)
model = classifier()
stop = keras.callbacks.EarlyStopping("loss", patience=1, min_delta=100)
checkpoint = keras.callbacks.ModelCheckpoint(str(out / f"from-rank{rank}.keras"))
stopped = model.fit(batches, epochs=9, callbacks=[stop, checkpoint], verbose=0)
facts["steps"] = int(model.optimizer.iterations)
facts["epochs"] = len(stopped.history["loss"])

unknown = batches.filter(lambda a, b: True)
ends: list[int] = []
count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: ends.append(batch))
model.fit(unknown, verbose=0, callbacks=[count])
facts["steps of an unknown length"] = len(ends)

# Sparse gradients through both steps.
for step in ring.STEPS:
    keras.utils.set_random_seed(rank)
    words = keras.Sequential(
        [keras.Input((6,)), keras.layers.Embedding(50, 4), keras.layers.Flatten(), keras.layers.Dense(3)]
    )
    words.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    ring.distribute(words, step=step)
    words.fit(random.integers(0, 50, (32, 6)), random.integers(0, 3, 32), batch_size=4, shuffle=False, verbose=0)
    facts[f"embedding {step}"] = words.layers[0].embeddings.numpy().tolist()


# Weights of types that Horovod cannot sum or send: all ranks begin with rank 0's, and end with the same.
class Odd(keras.layers.Layer):
    def build(self, shape: object) -> None:
        self.kept = [
            self.add_weight(shape=(3,), dtype=kind, initializer=keras.initializers.Constant(rank + 1), trainable=False)
            for kind in ("uint32", "complex128")
        ]

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs


for step in ("fit", "compiled"):
    keras.utils.set_random_seed(rank)
    kind = keras.dtype_policies.DTypePolicy("bfloat16")
    layers = [keras.layers.Dense(8, activation="tanh", dtype=kind), keras.layers.Dense(3, dtype=kind), Odd()]
    narrow = keras.Sequential([keras.Input((4,)), *layers])
    narrow.compile(keras.optimizers.SGD(0.5), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    ring.distribute(narrow, step=step)
    first = [np.asarray(w, complex) for w in narrow.weights]
    narrow.fit(x, y, batch_size=8, verbose=0)
    last = [np.asarray(w, complex) for w in narrow.weights]
    facts[f"bfloat16 {step}"] = [
        [[str(each) for each in w.ravel()] for w in (*first, *last)],
        [w.dtype for w in narrow.trainable_weights],
        float(max(np.max(np.abs(a - b)) for a, b in zip(first, last, strict=True))),
        narrow.predict(x[:16], batch_size=4, verbose=0).astype(float).tolist(),
        narrow(x[:16]).numpy().astype(float).tolist(),
    ]

# How often a step is traced, told by a layer that counts its calls.
calls: list[bool] = []


class Counting(keras.layers.Layer):
    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        calls.append(True)
        return inputs


for step in ring.STEPS:
    inputs = keras.Input((4,))
    counted = keras.Model(inputs, keras.layers.Dense(3)(Counting()(inputs)))
    for made in (counted, classifier(Counting(), step=step)):
        if made is counted:
            made.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
            ring.distribute(made, step=step)
        calls.clear()
        made.fit(x, y, batch_size=8, verbose=0)
        facts[f"traces {step} {type(made).__name__}"] = len(calls)

(out / f"rank{rank}.json").write_text(json.dumps(facts))
