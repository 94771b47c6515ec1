"""A real cluster in which worker 0 holds its update back until worker 1 has made three; prints a line of JSON."""

from __future__ import annotations

import json

import keras
import tensorflow as tf

from harness.training.strategies.parameter_server import Asynchronous, Cluster, update_of
from ringscope import ring

OTHERS = 3


def main() -> None:
    ring.init(pin=False)
    cluster = Cluster.of(2, "/CPU:0")
    only_first = tf.VariableAggregation.ONLY_FIRST_REPLICA
    with cluster.strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile(keras.optimizers.SGD(0.5))
        model.optimizer.build(model.trainable_variables)
        updates, begun = (tf.Variable(0, dtype=tf.int64, trainable=False, aggregation=only_first) for _ in range(2))

    def reached(variable: object, least: int) -> tf.Tensor:
        (done,) = tf.while_loop(lambda seen: seen < least, lambda _: (variable.read_value(),), (variable.read_value(),))
        return tf.cast(done, tf.float32)

    def late(y: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """y is the worker's number: 0 lets the other begin and waits for its updates, 1 waits for 0 to have begun."""

        def hold() -> tf.Tensor:
            with tf.control_dependencies([begun.assign_add(1, read_value=True)]):
                return reached(updates, OTHERS)

        waited = tf.cond(y[0] == 0, hold, lambda: reached(begun, 1))
        return tf.reduce_mean(outputs) + 0 * waited

    def batches() -> tf.data.Dataset:
        number = tf.distribute.coordinator.experimental_get_current_worker_index()
        return tf.data.Dataset.from_tensors((tf.ones((1, 1)), tf.reshape(tf.cast(number, tf.int64), [1]))).repeat()

    own = iter(cluster.coordinator.create_per_worker_dataset(batches))
    step = update_of(cluster.strategy, model, late, updates)
    run = Asynchronous(
        lambda: cluster.coordinator.schedule(step, args=(own,)), cluster.coordinator, 1 + OTHERS, cluster.check
    )
    run.turn()
    run.settle()
    weights = [float(v.numpy().ravel()[0]) for v in model.trainable_variables]
    print(json.dumps(run.facts(0) | {"weights": weights, "updates": int(updates.numpy())}))


if __name__ == "__main__":
    main()
