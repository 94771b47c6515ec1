"""Import TensorFlow, Keras and Horovod once. An error says which of them is missing."""

from __future__ import annotations

import os
from typing import Any

from profiles.ground.errors import MissingLibrary

from . import seams
from .garbage import uncollected

__all__ = ["backend_ops", "defining", "has_gpu", "hvd", "keras", "tf", "traced_for_each_model"]

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

try:
    with uncollected():
        import tensorflow as tf
except ImportError as error:
    raise MissingLibrary(
        f"TensorFlow does not load here ({error}); in a clone of ringscope `make setup` makes an environment with it,"
        " or: pip install '.[train]' && python scripts/build_horovod.py"
    ) from error
try:
    with uncollected():
        import keras
except ImportError as error:
    raise MissingLibrary(f"Keras does not load here ({error}); ring needs KERAS_BACKEND=tensorflow") from error
try:
    import horovod.tensorflow as hvd
except ImportError as error:
    raise MissingLibrary(
        f"Horovod is not installed or does not load ({error}); `python scripts/build_horovod.py` builds it with"
        " the edits that the release on PyPI needs for today's TensorFlow"
    ) from error
if (lacking := seams.lacks()) is not None:  # now, before another module of ring imports a name that is missing
    raise MissingLibrary(lacking)

# Keras's modules `nn`, `numpy` and `image`, whose functions its layers call; since Keras 3.16 they are in a package.
backend_ops: Any = getattr(keras.src.backend, "ops", keras.src.backend)


def defining(method: str) -> Any:
    """The class that defines this method of Keras's models: its name and module depend on the release."""
    return next(kind for kind in keras.Model.__mro__ if method in vars(kind))


def has_gpu() -> bool:
    """True if this process trains on a GPU."""
    return bool(tf.config.get_visible_devices("GPU"))


def traced_for_each_model(function: Any) -> None:
    """Suppress TensorFlow's warning about frequent retracing for this function, which is traced once per model."""
    function._omit_frequent_tracing_warning = True
