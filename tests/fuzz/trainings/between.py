"""What a script does between two calls of `fit`, and what it asks of the model at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from ringscope import ring

Ready = Callable[[keras.Model], None]
"""Compile a model, unless it is loaded with all that needs, and distribute it."""


def between(model: keras.Model, drawn: dict[str, Any], data: Any, folder: str, new: Any, ready: Ready) -> keras.Model:
    """The model to go on with. new: () -> another model of the kind, built."""
    x, y, weights = data
    batch, what = drawn["batch"], drawn["between"]
    halved = [weight / 2 for weight in model.get_weights()]
    if what == "train_on_batch":  # each rank on its part of the joined batch
        first, rows = (0, 2 * batch) if ring.size() == 1 else (ring.rank() * batch, batch)
        model.train_on_batch(
            *keras.tree.map_structure(lambda a: a[first : first + rows], (x, y)),
            sample_weight=None if weights is None else keras.tree.map_structure(lambda a: a[first:][:rows], weights),
        )
    elif what.startswith("frozen"):
        model.layers[-2].trainable = not model.layers[-2].trainable
    elif what == "another rate" and not drawn["schedule"]:
        model.optimizer.learning_rate = 0.005
    elif what == "weights set":
        model.set_weights(halved)
    elif what == "weights loaded":
        model.save_weights(f"{folder}/kept.weights.h5")
        model.set_weights(halved)
        model.load_weights(f"{folder}/kept.weights.h5")
    elif what == "evaluated":
        model.evaluate(x, y, sample_weight=weights, batch_size=batch, verbose=0)
    elif what == "loaded" and is_saved_whole(drawn):
        model.save(f"{folder}/kept.keras")
        model = keras.models.load_model(f"{folder}/kept.keras")
    elif what == "loaded":
        kept, model = model, new()
        model.set_weights(kept.get_weights())
    if what in ("compiled", "frozen and compiled", "loaded"):
        ready(model)
    return model


def is_saved_whole(drawn: dict[str, Any]) -> bool:
    """With its optimizer and losses, none of which is a lambda."""
    named = drawn["loss"] not in ("a scalar", "one a sample") and not drawn["loss"].endswith("_crossentropy")
    return named and drawn["model"] != "subclassed" and drawn["added"] == "nothing"


def asked(model: keras.Model, drawn: dict[str, Any], data: Any) -> dict[str, Any]:
    """What it answers, by name."""
    if drawn["asked"] == "evaluate":
        x, y, weights = data
        found = model.evaluate(x, y, sample_weight=weights, batch_size=drawn["batch"], verbose=0, return_dict=True)
        return {f"asked {name}": np.array(value) for name, value in found.items()}
    if drawn["asked"] == "predict":
        outputs = keras.tree.flatten(model.predict(data[0], batch_size=drawn["batch"], verbose=0))
        return {f"asked {i}": np.asarray(output, np.float64) for i, output in enumerate(outputs)}
    return {}
