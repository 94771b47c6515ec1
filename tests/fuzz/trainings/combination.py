"""What a random training is made of; no TensorFlow."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

MODELS = ("dense", "two outputs", "tokens", "pooled", "recurrent", "conv", "synchronised", "regularised", "subclassed")
TOKENS = ("tokens",)
MASKED = ("tokens", "pooled", "recurrent")
REDUCTIONS = ("sum_over_batch_size", "sum", "none", "mean_with_sample_weight")
LOSSES = {
    "numbers": ("mse", "mae", "huber", "MeanSquaredError", "LogCosh", "a scalar", "one a sample"),
    "binary": ("binary_crossentropy", "BinaryCrossentropy", "Hinge"),
    "classes": ("sparse_categorical_crossentropy", "SparseCategoricalCrossentropy"),
}
METRICS = {
    "numbers": ("mae", "mse", "RootMeanSquaredError", "R2Score"),
    "binary": ("accuracy", "AUC", "Precision", "F1Score"),
    "classes": ("accuracy", "sparse_top_k_categorical_accuracy"),
}
OPTIMIZERS = ("SGD", "SGD with momentum", "RMSprop", "Adam", "AdamW", "Nadam", "Adagrad", "Adamax", "Lion")
# Their updates are no smooth function of a gradient that is nearly 0: rounding would show.
SMOOTH = ("SGD", "SGD with momentum")
RARER = ("Adadelta", "Adafactor", "Ftrl", "Lamb", "Muon", "Adam with amsgrad", "SGD with nesterov")
DATA = ("arrays", "whole batches", "a smaller last batch", "unknown length", "repeated", "py dataset", "generator")
POLICIES = ("float32", "float64", "mixed_bfloat16", "mixed_float16")
# Of the loss in float16: what it begins with, and after how many finite steps it doubles.
SCALES = ({"initial_scale": 64.0}, {"initial_scale": 1.0, "dynamic_growth_steps": 20})
CALLBACKS = ("none", "early stopping", "plateau", "rate by epoch", "checkpoint", "terminate on NaN", "stop in an epoch")
VALIDATION = ("none", "data", "split", "every second epoch")
# Between two calls of fit.
BETWEEN = (
    "nothing",
    "train_on_batch",
    "frozen and compiled",
    "frozen",
    "compiled",
    "another rate",
    "weights loaded",
    "loaded",
    "evaluated",
    "weights set",
)


def draw(number: int, seed: int = 0) -> dict[str, Any]:
    """The settings of training `number`; the same for the same seed."""
    dice = random.Random(f"{seed} {number}")

    def seldom(*usual_first: Any, share: float = 0.3) -> Any:
        return dice.choice(usual_first[1:]) if dice.random() < share else usual_first[0]

    model = dice.choice(MODELS)
    target = dice.choice(("numbers", "classes") if model in TOKENS else tuple(LOSSES))
    policy = seldom(*POLICIES)
    # Keras has no classes for each word.
    kinds = ("none", "samples", "some of 0") if model in TOKENS else ("none", "samples", "some of 0", "classes")
    data, callback = dice.choice(DATA), seldom(*CALLBACKS, share=0.5)
    samples = dice.randint(40, 70)
    validation = seldom(*VALIDATION, share=0.5)
    if validation == "split":  # of arrays; what is trained on is then shared by two ranks without a rest
        data, samples = "arrays", samples // 8 * 8
    drawn = {
        "number": number,
        "model": model,
        "target": target,
        "loss": dice.choice(LOSSES[target]),
        "reduction": dice.choice(REDUCTIONS),
        "weights": seldom(*kinds, share=0.5),
        "metrics": dice.sample(METRICS[target], dice.randint(0, 2)),
        "weighted metrics": dice.random() < 0.3,
        "optimizer": dice.choice(OPTIMIZERS if policy in ("float32", "float64") else SMOOTH),
        "clip": seldom({}, {"clipnorm": 0.5}, {"global_clipnorm": 0.5}, {"clipvalue": 0.1}),
        "further": seldom({}, {"use_ema": True, "ema_overwrite_frequency": 2}, {"gradient_accumulation_steps": 2}),
        "schedule": dice.random() < 0.3 and callback not in ("plateau", "rate by epoch"),
        "data": data,
        "samples": samples,
        "batch": dice.choice((3, 4, 5, 8)),
        "epochs": dice.randint(1, 3),
        "step": dice.choice(("fit", "compiled")),
        "policy": policy,
        "callback": callback,
        "validation": validation,
        "steps_per_execution": seldom(1, 2, 3),
        "run_eagerly": dice.random() < 0.1,  # in `fit`
        "distribute": seldom({}, {"groups": 2}, {"aggregate": 2}, {"sparse_as_dense": True}, {"predivide_factor": 2.0}),
        "again": dice.random() < 0.2,
        "sharded": dice.random() < 0.25,
    }
    # Beside class weights Keras takes no others; what these two callbacks do hangs on the last bits of so large a loss;
    # and of what overflows in an embedding alone Keras does not see rows that come again in the batch.
    may = drawn["weights"] != "classes" and callback not in ("early stopping", "plateau") and model != "pooled"
    overflow = may and policy == "mixed_float16"
    drawn |= {
        "scale": dice.choice(SCALES),
        "overflow": overflow and dice.random() < 0.7,
        "kept": dice.random() < 0.5,  # in a cache, and shuffled where no sample is left over
    }
    return drawn | _more(drawn, seldom)


def _more(drawn: dict[str, Any], seldom: Callable[..., Any]) -> dict[str, Any]:
    """What came later: of some trainings of the kinds above."""
    more = {
        "between": seldom(*BETWEEN, share=0.9) if drawn["again"] else "nothing",
        "added": seldom("nothing", "a sum", "a mean", "of weights", share=0.2),  # by a layer, to the loss
        "frozen": seldom(False, True, share=0.1),  # the first layer, from the beginning
        "constrained": seldom(False, True, share=0.1),
        "decay": seldom(0.0, 0.05, share=0.15),
        "asked": seldom("nothing", "evaluate", "predict", share=0.3),
        "counted": seldom(False, True, share=0.5),  # a data set of unknown length
    }
    weights, optimizer = seldom("float32", "bfloat16", "float16", share=0.2), seldom("usual", *RARER, share=0.2)
    if drawn["policy"] == "float32":
        more |= {"policy": weights} | ({} if weights == "float32" else {"optimizer": "SGD"})
        if weights == "float32" and optimizer != "usual":
            more["optimizer"] = optimizer
    narrow = more.get("policy") in ("bfloat16", "float16")
    # Known to be refused.
    if drawn["run_eagerly"] or "groups" in drawn["distribute"]:
        more["step"] = "fit"
    if narrow or drawn["distribute"] or drawn["further"]:
        more["sharded"] = False
    return more


def tolerance(drawn: dict[str, Any]) -> float:
    """How far weights may be from those of one rank, as a share of how far training moved them: what rounding gives."""
    found = {"float32": 2e-3, "float64": 1e-6, "mixed_bfloat16": 0.15, "mixed_float16": 0.05}
    return (found | {"bfloat16": 0.5, "float16": 0.1})[drawn["policy"]]
