"""Rules about the loop of `model.fit`: what it costs beside the steps, for a model with short steps."""

from __future__ import annotations

import contextlib
import os
import pty
import sys
import threading
from typing import Any

import numpy as np
import tensorflow as tf

from ..models import MODELS, build, loss_for
from .ways import Subject, Way, Ways

MODEL, BATCH = "mlp", 32
TOGETHER = 16  # steps per execution of the way that follows the advice


def steps_per_execution(on: Subject) -> Ways:
    return Ways(fitting(1, 0), fitting(TOGETHER, 0), f"model.fit of {MODEL}, {BATCH} samples")


def quiet(on: Subject) -> Ways:
    screen()
    return Ways(fitting(1, 1), fitting(1, 2), f"model.fit of {MODEL}, {BATCH} samples, on a terminal")


def fitting(together: int, verbose: int) -> Way:
    """A way that runs one epoch of `model.fit` with `together` steps per execution; the number of steps is rounded up
    to a multiple of TOGETHER."""
    made, spec = build(MODEL), MODELS[MODEL]
    made.compile(optimizer="sgd", loss=loss_for(spec), steps_per_execution=together, jit_compile=False)
    generator = np.random.default_rng(0)
    x = generator.random((BATCH * TOGETHER, *spec.input_shape), dtype=np.float32)
    y = generator.integers(0, spec.classes, len(x))
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True).cache().repeat()

    def take(steps: int) -> int:
        whole = -(-steps // TOGETHER) * TOGETHER
        made.fit(data, steps_per_epoch=whole, epochs=1, verbose=verbose, shuffle=False)
        return whole * BATCH

    return take


def screen() -> None:
    """Redirect stdout to a pseudo-terminal whose output is dropped, because Keras draws a progress bar only on a
    terminal."""
    ours, theirs = pty.openpty()

    def drop() -> None:
        with contextlib.suppress(OSError):  # the pseudo-terminal is closed
            while os.read(ours, 65536):
                pass

    threading.Thread(target=drop, daemon=True).start()
    shown: Any = os.fdopen(theirs, "w", buffering=1)
    sys.stdout = shown
