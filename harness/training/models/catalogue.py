"""The models by name, and the shape of their input."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from profiles.runs.records import Cell


@dataclass(frozen=True, slots=True)
class Spec:
    """A model's input and output: samples of this shape, and integer labels below `classes` (1: a binary label, 0 or
    1)."""

    input_shape: tuple[int, ...]
    classes: int


# The network of each model is the function in networks.py that has its name.
MODELS = {
    "mlp": Spec((256,), 10),
    "dense2": Spec((100,), 2),
    "dense41m": Spec((8000,), 1),
    "cnn_cifar": Spec((32, 32, 3), 10),
    "resnet50": Spec((224, 224, 3), 1000),
    "inception3": Spec((299, 299, 3), 1000),
    "vgg16": Spec((224, 224, 3), 1000),
    "transformer": Spec((256, 64), 10),
    "lstm": Spec((128, 64), 10),
    "lstm_generic": Spec((128, 64), 10),
    "gru": Spec((128, 64), 10),
    "gru_generic": Spec((128, 64), 10),
}


def build(name: str, *, input_dtype: str = "float32", precision: str = "float32", seed: int = 0) -> Any:
    """A Keras model with its weights, not compiled, with float32 logits; equal arguments give equal weights. uint8
    input is scaled to -1..1 inside the model, so that only a quarter of the bytes are copied to the GPU."""
    import keras

    from . import networks

    spec = MODELS[name]
    keras.utils.set_random_seed(seed)
    keras.mixed_precision.set_dtype_policy(precision)
    inputs = keras.Input(spec.input_shape, dtype=input_dtype)
    scaled = keras.layers.Rescaling(1 / 127.5, offset=-1.0)(inputs) if input_dtype == "uint8" else inputs
    features = getattr(networks, name)(scaled)
    logits = keras.layers.Dense(spec.classes, dtype="float32", name="logits")(features)
    return keras.Model(inputs, logits, name=name)


def of_cell(cell: Cell, *, jit_compile: bool = False) -> Any:
    """The cell's model, compiled with its loss and the cell's optimizer."""
    model = build(cell.model, input_dtype=cell.input_dtype, precision=cell.precision, seed=cell.seed)
    compile_model(model, MODELS[cell.model], optimizer=optimizer(cell), jit_compile=jit_compile)
    return model


def loss_for(spec: Spec) -> Any:
    """The loss function for the spec's labels; the model gives logits."""
    import keras

    if spec.classes == 1:
        return keras.losses.BinaryCrossentropy(from_logits=True)
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def compile_model(model: Any, spec: Spec, *, optimizer: Any | None = None, jit_compile: bool = False) -> None:
    """Compile with the loss for the spec, and SGD with momentum unless another optimizer is given."""
    import keras

    model.compile(
        optimizer=optimizer or keras.optimizers.SGD(0.01, momentum=0.9), loss=loss_for(spec), jit_compile=jit_compile
    )


def optimizer(cell: Cell) -> Any:
    """The cell's optimizer: `sgd` with momentum, `adam` with an epsilon so large that rounding does not grow where
    gradients are near 0, or `lamb`. The cell's `rate_rule` scales the learning rate for several ranks, but for
    `warm-up` ring scales it."""
    import keras

    factor = {"linear": cell.ranks, "sqrt": math.sqrt(cell.ranks)}.get(cell.rate_rule, 1)
    name = dict(cell.options).get("optimizer", cell.optimizer)
    if name == "adam":
        return keras.optimizers.Adam(1e-3 * factor, epsilon=1e-3)
    if name == "lamb":
        return keras.optimizers.Lamb(1e-3 * factor)
    return keras.optimizers.SGD(0.01 * factor, momentum=0.9)
