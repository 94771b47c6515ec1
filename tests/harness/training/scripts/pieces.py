"""Plans of parts and stages on logical CPUs, against the model itself and the schedule; prints a line of JSON."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from functools import partial

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from tensorflow.python.eager import context

from harness.training.models import MODELS, build, compile_model, loss_for
from harness.training.strategies import devices, split, stages
from harness.training.strategies.parts import Plan, train_step

PLACES = ["/CPU:0", "/CPU:1", "/CPU:2"]
SLEEP_S = 0.01
WAYS = ("there", "back")
LIMIT_S = 240.0  # for others to begin what is to be done together


def furthest(first: list[object], second: list[object]) -> float:
    return max(float(np.max(np.abs(a - b))) for a, b in zip(first, second, strict=True))


def difference(name: str, parts: int, count: int) -> dict[str, object]:
    """Outputs and gradients of a model in stages against the whole model's, and where its weights lie."""
    whole = build(name)
    x = tf.random.stateless_uniform((12, *MODELS[name].input_shape), (1, 2))
    y = tf.range(12, dtype=tf.int64) % MODELS[name].classes
    with tf.GradientTape() as tape:
        logits = whole(x, training=True)
        loss = loss_for(MODELS[name])(y, logits)
    of_whole = tape.gradient(loss, [v.value for v in whole.trainable_variables])
    of_logits = tf.nn.softmax(logits) - tf.one_hot(y, logits.shape[-1])
    pieces = stages.cut(whole, PLACES[:count])
    plan = Plan(pieces, [PLACES[:count]] * parts)

    @tf.function
    def both() -> tuple[object, object]:
        way = plan.forward(x)
        return tf.concat([each[-1].left for each in way], 0), plan.backward(way, of_logits / 12)

    outputs, gradients = both()
    return {
        "outputs": furthest([logits], [outputs]),
        "gradients": furthest(of_whole, [g for stage in gradients for g in stage]),
        "places": [sorted({v.value.device[-6:] for v in stage.variables}) for stage in pieces],
        "parameters": [stage.count_params() for stage in pieces],
    }


class Turns:
    """When the stages of a pipeline work: the n-th piece of a stage's work begins only together with those that the
    schedule has at the same time, however slow the machine is; it fails where they are not begun meanwhile."""

    def __init__(self, parts: int, count: int) -> None:
        """Of so many micro-batches through so many stages, once there and back."""
        together = [sum(0 <= turn - stage < parts for stage in range(count)) for turn in range(parts + count - 1)]
        self._meetings = {way: [threading.Barrier(each) for each in together] for way in WAYS}
        self._count, self._done = count, Counter[tuple[str, int]]()
        self.taken: dict[str, set[int]] = {way: set() for way in WAYS}

    def take(self, way: str, stage: int) -> None:
        before = stage if way == "there" else self._count - 1 - stage
        turn = before + self._done[way, stage]
        self._done[way, stage] += 1
        self._meetings[way][turn].wait(LIMIT_S)
        self.taken[way].add(turn)


class Slow(layers.Layer):
    """The same, after a while; its gradient too. As on a GPU's one stream, one thing at a time."""

    def __init__(self, stage: int) -> None:
        super().__init__()
        self._stage, self._busy = stage, threading.Lock()
        self.turns: Turns | None = None

    def call(self, x: object) -> object:
        @tf.custom_gradient
        def slow(x: object) -> tuple[object, object]:
            out = self._late(x, "there")
            return out, lambda gradient: self._late(gradient + 0 * out, "back")

        return slow(x)

    def _late(self, value: tf.Tensor, way: str) -> tf.Tensor:
        # Not stateful: TensorFlow runs operations that are one after the other.
        waited = tf.numpy_function(partial(self._wait, way), [value], value.dtype, stateful=False)
        waited.set_shape(value.shape)
        return waited

    def _wait(self, way: str, value: np.ndarray) -> np.ndarray:
        with self._busy:
            if self.turns is not None:
                self.turns.take(way, self._stage)
            time.sleep(SLEEP_S)
        return value

    def compute_output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape


def pipeline(parts: int, count: int) -> dict[str, object]:
    """The turns that so many micro-batches take through stages, and what `split` says of them."""
    places = PLACES[:count]
    models, slow = [], [Slow(stage) for stage in range(count)]
    for place, layer in zip(places, slow, strict=True):
        with tf.device(place):
            models.append(keras.Sequential([keras.Input((1,)), layers.Dense(1), layer]))
    plan = Plan(models, [places] * parts)
    x, gradient = tf.ones((parts, 1)), tf.ones((parts, 1))

    @tf.function
    def there_and_back() -> object:
        way = plan.forward(x)
        joined = tf.concat([each[-1].left for each in way], 0)
        return plan.backward(way, joined * gradient)

    turns = Turns(parts, count)
    for layer in slow:
        layer.turns = turns
    there_and_back()
    for layer in slow:
        layer.turns = None
    taken = {way: sorted(each) for way, each in turns.taken.items()}
    return {"taken": taken, **split.pipeline_facts(models, places, parts, parts)}


def updated_on() -> dict[str, object]:
    """How many of Adam's square roots each device computes, and how many variables are there."""
    pieces = stages.cut(build("mlp"), PLACES[:2])
    model = keras.Sequential(pieces)
    compile_model(model, MODELS["mlp"], optimizer=keras.optimizers.Adam())
    model.optimizer.build(model.trainable_variables)
    step = train_step(model, Plan(pieces, [PLACES[:2]] * 2), loss_for(MODELS["mlp"]))
    context.enable_run_metadata()
    step((tf.ones((4, 256)), tf.zeros(4, tf.int64)))
    graphs = context.export_run_metadata().partition_graphs
    context.disable_run_metadata()
    roots = Counter(node.device[-5:] for graph in graphs for node in graph.node if node.op == "Sqrt")
    return {"roots": roots, "variables": [len(piece.trainable_variables) for piece in pieces]}


def main() -> None:
    tf.config.threading.set_inter_op_parallelism_threads(16)  # those that wait for a stage compute nothing
    devices.take("/CPU:0", len(PLACES))
    models = {f"{name} {p} x {s}": difference(name, p, s) for name, p, s in (("mlp", 4, 3), ("gru_generic", 2, 2))}
    pipelines = [pipeline(parts, count) for count in (2, 3) for parts in (1, 2, 4)]
    print(json.dumps({"updated_on": updated_on(), "models": models, "pipelines": pipelines, "sleep_s": SLEEP_S}))


if __name__ == "__main__":
    main()
