"""What becomes of scripts that are out of the ordinary, found out by two ranks. usage: odd_facts.py OUT"""

import json
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from asked import refused

from ringscope import ring

ring.init()
out, rank = Path(sys.argv[1]), ring.rank()
facts: dict[str, object] = {}
random = np.random.default_rng(0)
x, y = random.normal(size=(64, 4)).astype("float32"), random.integers(0, 3, 64)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def compiled(*, built: bool = True, **options: object) -> keras.Model:
    keras.utils.set_random_seed(rank)
    model = keras.Sequential([*([keras.Input((4,))] if built else []), keras.layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.1), loss_of)
    return ring.distribute(model, **options)


def weights(model: keras.Model) -> list[object]:
    return [weight.numpy().tolist() for weight in model.trainable_weights]


# What crosses between ranks, most shortly: facts.py has more of it.
keras.utils.set_random_seed(rank)
begun = keras.Sequential([keras.Input((4,)), keras.layers.BatchNormalization(), keras.layers.Dense(3)])
begun.compile("sgd", loss_of)
facts["own weights"] = weights(begun)
facts["distributed weights"] = weights(ring.distribute(begun))
facts["gradients"] = {
    compression: ring.average_gradients([tf.fill([3], 1.0 + 2 * rank)], compression=compression)[0].numpy().tolist()
    for compression in ring.COMPRESSIONS
}
logs = {"loss": float(rank), "accuracy": 0.5}
ring.average_logs(logs)
facts["logs"] = logs
for weight in begun.non_trainable_weights:
    weight.assign(tf.fill(weight.shape, 1.0 + 2 * rank))
ring.average_statistics(begun)
facts["statistics"] = [weight.numpy().tolist() for weight in begun.non_trainable_weights]

# An optimizer in parts of the ranks, and a whole one: what both come to, and save.
for name in ("whole", "in parts"):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile(keras.optimizers.Adam(0.01, epsilon=1e-3, global_clipnorm=0.1), loss_of)
    ring.distribute(model, sharded=name == "in parts")
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    ring.gather(model)
    saved: dict[str, object] = {}
    model.optimizer.save_own_variables(saved)
    state = [np.asarray(value, float).ravel().tolist() for value in saved.values()]
    facts[f"optimizer {name}"] = {"weights": weights(model), "state": state}


class Own(keras.Model):
    """A loss of the model's own, which Keras knows nothing of."""

    take: object

    def compute_loss(
        self, x: object, y: object, y_pred: object, sample_weight: object = None, training: bool = True
    ) -> object:
        return self.take(keras.ops.square(y_pred - keras.ops.cast(y, "float32")[:, None]))


# One step: its weights by hand stand in the test.
for take in (keras.ops.sum, keras.ops.mean):
    given = keras.Input((4,))
    own = Own(given, keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")(given))
    own.take = take
    own.compile(keras.optimizers.SGD(0.001))
    ring.distribute(own).fit(x[:16], y[:16], batch_size=8, shuffle=False, verbose=0)
    facts[f"own {take.__name__}"] = {"x": x[:16].tolist(), "y": y[:16].tolist(), "weights": weights(own)}


class Pair(keras.Model):
    """Two models, each with an optimizer of its own: what a GAN is, never called itself."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = (keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)]) for _ in range(2))

    def compile(self) -> None:
        super().compile()
        self.one_optimizer, self.other_optimizer = keras.optimizers.SGD(0.1), keras.optimizers.Adam(0.01)

    def train_step(self, data: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        for part, optimizer in ((self.one, self.one_optimizer), (self.other, self.other_optimizer)):
            with tf.GradientTape() as tape:
                loss = loss_of(data[1], part(data[0]))
            optimizer.apply(tape.gradient(loss, part.trainable_variables), part.trainable_variables)
        return {"loss": loss}


keras.utils.set_random_seed(rank)
pair = Pair()
pair.compile()
facts["two optimizers, compiled"] = refused(lambda: ring.distribute(pair, step="compiled", compression="bf16"))
facts["overlap, two optimizers"] = refused(lambda: ring.distribute(pair, step="compiled", overlap=True))
ring.distribute(pair)
pair.fit(x, y, batch_size=8, epochs=2, verbose=0)
facts["two optimizers"] = weights(pair)

# One batch at a time, each rank its own.
model = compiled()
for i in range(3):
    model.train_on_batch(x[rank :: i + 2], y[rank :: i + 2])
facts["train_on_batch"] = weights(model)
facts["train_on_batch, no weights"] = refused(lambda: compiled(built=False).train_on_batch(x, y))
facts["groups, compiled"] = refused(lambda: compiled(step="compiled", groups=2))
facts["overlap, fit"] = refused(lambda: compiled(step="fit", overlap=True))
facts["overlap, aggregate"] = refused(lambda: compiled(step="compiled", overlap=True, aggregate=2))

# Ranks that would wait for each other.
mine = tf.data.Dataset.from_tensor_slices((x[: 32 - 8 * rank], y[: 32 - 8 * rank])).batch(8)
facts["unequal steps"] = refused(lambda: model.fit(mine, shard=False, verbose=0))
model.fit(mine, shard=False, steps_per_epoch=3, verbose=0)
facts["unequal epochs"] = refused(lambda: model.fit(x, y, epochs=1 + rank, verbose=0))
facts["one validates"] = refused(lambda: model.fit(x, y, validation_data=(x, y) if rank == 0 else None, verbose=0))

bad = x.copy()
bad[0] = np.nan  # the first sample of rank 0's first batch


class Epochs(keras.callbacks.Callback):
    """How many there were; rank 1 alone would stop after the second."""

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        facts["epochs"] = epoch + 1
        if rank == 1 and epoch == 1:
            self.model.stop_training = True


steps = int(model.optimizer.iterations)
model.fit(bad, y, batch_size=8, epochs=3, shuffle=False, verbose=0, callbacks=[keras.callbacks.TerminateOnNaN()])
facts["steps to a NaN"] = int(model.optimizer.iterations) - steps
compiled().fit(x, y, batch_size=8, epochs=5, verbose=0, callbacks=[Epochs()])

# A shuffle that each rank draws for itself: by a seed that differs, by the same, by what ring.init sowed.
facts["shuffled"] = []
for everybodys, own in ((rank, None), (rank, 1), (1, None), (None, None)):
    model = compiled()
    if everybodys is not None:
        tf.random.set_seed(everybodys)
    batches = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(64, seed=own).batch(8).prefetch(1)
    facts["shuffled"].append(refused(lambda model=model, batches=batches: model.fit(batches, verbose=0)))

model = compiled()
model.compile(model.optimizer, loss_of, jit_compile=True)
model.fit(x, y, batch_size=8, verbose=0)
facts["the same optimizer again"] = weights(model)

facts["a sum as bf16"] = refused(lambda: ring.average_gradients([tf.zeros([1])], compression="bf16", op="sum"))
facts["step"] = refused(lambda: compiled(step="fast"))
facts["uncompiled"] = refused(lambda: ring.distribute(keras.Sequential([keras.layers.Dense(1)])))
model = compiled()
facts["generator"] = refused(lambda: model.fit(((x, y) for _ in range(2)), verbose=0))
facts["twice"] = refused(lambda: ring.distribute(model))

# Compiling again brings an optimizer that reduces nothing: refused until it is distributed too.
again = keras.optimizers.SGD(0.1)
model.compile(again, loss_of)
facts["compiled again"] = refused(lambda: model.fit(x, y, verbose=0))
ring.distribute(model, step="compiled").fit(x, y, batch_size=8, verbose=0)
facts["steps after"] = int(again.iterations)
before = weights(model)
model.compile(again, lambda y, p: 0.0 * tf.reduce_mean(p, -1))
model.fit(x, y, batch_size=8, verbose=0)
facts["moved by a loss of 0"] = weights(model) != before

(out / f"rank{rank}.json").write_text(json.dumps(facts))
