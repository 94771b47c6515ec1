"""What `fit` does on GPUs, as far as that can be had without one: batches are staged, int32 as another type of its
width, and `step="auto"` compiles."""

from __future__ import annotations


def begin() -> None:
    """From here on, in this process."""
    from ringscope.ring import feed
    from ringscope.ring.step import choose
    from tests.harness.host_slots import host_pool

    feed.slots = lambda: host_pool
    choose.has_gpu = lambda: True


def begin_between_hosts() -> None:
    """The same where an exchange takes long: gradients leave during the backward pass, one or few at a time."""
    from ringscope.ring.gradients import packing
    from ringscope.ring.gradients.overlap import buckets

    begin()
    buckets.seconds_per_byte = lambda: 1.0  # type: ignore[assignment]
    buckets.BUCKET_BYTES, packing.LARGE_BYTES = 256, 64
