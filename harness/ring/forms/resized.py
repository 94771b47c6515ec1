"""Bilinear resizing of 16-bit images from float32.

TensorFlow computes it in float32 anyway, and gives float32. But as XLA compiles its gradient, that of 16-bit images is
float32 too, where the graph says otherwise: TensorFlow 2.21 compiles no step with an `UpSampling2D` in mixed precision
whose gradient goes on. Cast before, the cast's own gradient rounds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..exchange import tf
from ..laid_over import laid_over
from .narrow import wide_type


@contextmanager
def wide() -> Iterator[None]:
    """While it lasts, `tf.image.resize`, which Keras's layers and `keras.ops` call, resizes so."""
    from tensorflow.python.ops import gen_image_ops  # the public function does not tell which way it takes

    own = gen_image_ops.resize_bilinear

    def resize_bilinear(images: Any, *args: Any, **kwargs: Any) -> Any:
        images = tf.convert_to_tensor(images)
        return own(tf.cast(images, wide_type(images.dtype)), *args, **kwargs)

    with laid_over(gen_image_ops, resize_bilinear=resize_bilinear):
        yield
