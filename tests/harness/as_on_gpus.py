"""What `fit` does on GPUs, as far as that can be had without one: batches are staged, int32 as another type of its
width, and `step="auto"` compiles."""

from __future__ import annotations


def begin() -> None:
    """From here on, in this process."""
    from harness.ring import feed
    from harness.ring.feed.slots import host_pool
    from harness.ring.step import choose

    feed.slots = lambda: host_pool
    choose.has_gpu = lambda: True


def begin_between_hosts() -> None:
    """The same where an exchange takes long: gradients leave during the backward pass, one or few at a time."""
    from harness.ring.step import overlap, packing

    begin()
    overlap.seconds_per_byte = lambda: 1.0  # type: ignore[assignment]
    overlap.BUCKET_BYTES, packing.LARGE_BYTES = 256, 64
