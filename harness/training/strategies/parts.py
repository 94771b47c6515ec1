"""A training step in parts: the batch is cut along its samples, the model along its layers; each piece (a part of the
batch in a stage of the model) has a device.

The strategy `replicas` puts parts of the batch on different devices, with the whole model as one stage. `split` puts
stages of the model on different devices, through which the parts pass. The loss is computed on the joined outputs, so
the backward pass begins after the last forward pass (GPipe's schedule, Huang et al. 2019, arXiv:1811.06965).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

Exchange = Callable[[list[Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class Piece:
    """The forward pass of one part through one stage: its input (`entered`), its output (`left`) and the gradient
    tape."""

    tape: Any
    entered: Any
    left: Any


@dataclass(frozen=True, slots=True)
class Plan:
    """The devices of all pieces. places[part][stage]: a device. A stage's variables are on the device of its first
    part."""

    stages: Sequence[Any]  # Keras models; the output of one is the input of the next
    places: Sequence[Sequence[str]]

    def forward(self, x: Any) -> list[list[Piece]]:
        """The forward pass of each part through all stages."""
        return [self._through(part, places) for part, places in zip(self._cut(x), self.places, strict=True)]

    def _cut(self, x: Any) -> list[Any]:
        return list(tf.split(x, len(self.places)))

    def _through(self, value: Any, places: Sequence[str]) -> list[Piece]:
        pieces: list[Piece] = []
        for stage, place in zip(self.stages, places, strict=True):
            with tf.device(place):
                entered = tf.identity(value)  # transfers the value to this device
                with tf.GradientTape() as tape:
                    if pieces:
                        tape.watch(entered)
                    value = stage(entered, training=True)
            pieces.append(Piece(tape, entered, value))
        return pieces

    def backward(self, pieces: Sequence[Sequence[Piece]], gradient: Any) -> list[list[Any]]:
        """Gradients of each stage's variables, summed over the parts, on the device of the variables.

        gradient: the loss's gradient with respect to the joined outputs. Without explicit devices TensorFlow would run
        the backward pass of every stage on the first device.
        """
        with tf.device(self.places[0][-1]):
            cut = self._cut(gradient)
        parts = [self._back(way, places, part) for way, places, part in zip(pieces, self.places, cut, strict=True)]
        summed = []
        for number in range(len(self.stages)):
            with tf.device(self.places[0][number]):
                summed.append([tf.add_n(each) for each in zip(*(part[number] for part in parts), strict=True)])
        return summed

    def _back(self, way: Sequence[Piece], places: Sequence[str], gradient: Any) -> list[list[Any]]:
        found: list[list[Any]] = []
        for number in reversed(range(len(self.stages))):
            piece, variables = way[number], self.stages[number].trainable_variables
            wanted = [v.value for v in variables] + ([piece.entered] if number else [])
            if not wanted:  # the first stage may have no weights, for example if it only scales its input
                found.insert(0, [])
                break
            with tf.device(places[number]):
                gradients = piece.tape.gradient(piece.left, wanted, output_gradients=tf.identity(gradient))
            found.insert(0, gradients[: len(variables)])
            gradient = gradients[-1]
        return found


def update_in_place(optimizer: Any) -> None:
    """Compute each variable's update on the device that holds it; by default TensorFlow computes all on the first
    device."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    update_step = inner.update_step

    def on_its_device(gradient: Any, variable: Any, learning_rate: Any) -> None:
        with tf.device((variable.value if isinstance(variable, keras.Variable) else variable).device):
            update_step(gradient, variable, learning_rate)

    inner.update_step = on_its_device


def train_step(model: Any, plan: Plan, loss: Any, exchange: Sequence[Exchange] | None = None) -> Callable[[Any], Any]:
    """A function (x, y) -> logs that makes one update of `model`, whose weights are the weights of the plan's
    stages, in order. exchange: for each stage a function from its gradients to the gradients to apply."""
    last = [places[-1] for places in plan.places]
    update_in_place(model.optimizer)

    @tf.function(autograph=False)
    def step(batch: Any) -> Any:
        x, y = batch
        pieces = plan.forward(x)
        with tf.device(last[0]):
            joined = tf.concat([way[-1].left for way in pieces], axis=0)
            with tf.GradientTape() as tape:
                tape.watch(joined)
                value = loss(y, joined)
                scaled = model.optimizer.scale_loss(value)
            gradient = tape.gradient(scaled, joined)
        gradients = plan.backward(pieces, gradient)
        for number, change in enumerate(exchange or ()):
            with tf.device(plan.places[0][number]):
                gradients[number] = change(gradients[number])
        model.optimizer.apply([each for stage in gradients for each in stage], model.trainable_variables)
        model._loss_tracker.update_state(value)
        return model.get_metrics_result()

    return step  # type: ignore[no-any-return]
