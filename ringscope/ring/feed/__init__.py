"""Bring batches of `model.fit` to the device: through pinned buffers to a GPU, unchanged on a CPU."""

from .carriers import Carried, opened
from .feeds import as_feed, feed

__all__ = ["Carried", "as_feed", "feed", "opened"]
