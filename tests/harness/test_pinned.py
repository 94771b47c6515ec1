"""The staging of batches on plain memory; on a GPU the feed itself, which reads back what the source made."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from harness.pinned import BUFFERS, staged


def _batches(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [(rng.integers(0, 256, (4, 3), np.uint8), rng.integers(0, 9, 4, np.int32)) for _ in range(count)]


def _stage(batches: list[tuple[np.ndarray, np.ndarray]], seen: list[int]):  # type: ignore[no-untyped-def]
    def to_device(tensors: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        seen.append(tensors[0].ctypes.data)
        return tuple(tensor.copy() for tensor in tensors)

    return staged(
        iter(batches), allocate=lambda n: memoryview(bytearray(n)), to_tensor=lambda v: v, to_device=to_device
    )


def test_batches_arrive_in_order_and_unharmed_though_their_buffers_are_used_again() -> None:
    batches, seen = _batches(20), list[int]()
    got = list(islice(_stage(batches, seen), 15))
    assert len(set(seen)) == BUFFERS
    for (x, y), (want_x, want_y) in zip(got, batches, strict=False):
        np.testing.assert_array_equal(x, want_x)
        np.testing.assert_array_equal(y, want_y)


class _Tensor:
    """A tensor that keeps what was copied of it to a device, as TensorFlow's do."""

    def __init__(self, view: np.ndarray) -> None:
        self.view = view
        self.mirror: np.ndarray | None = None

    def on_device(self) -> np.ndarray:
        if self.mirror is None:
            self.mirror = self.view.copy()
        return self.mirror


def test_a_tensor_that_keeps_its_copy_on_the_device_does_not_make_batches_stale() -> None:
    batches = _batches(12)
    feed = staged(
        iter(batches),
        allocate=lambda n: memoryview(bytearray(n)),
        to_tensor=_Tensor,
        to_device=lambda tensors: tuple(tensor.on_device() for tensor in tensors),
    )
    for (x, y), (want_x, want_y) in zip(islice(feed, 8), batches, strict=False):
        np.testing.assert_array_equal(x, want_x)
        np.testing.assert_array_equal(y, want_y)


def test_a_source_that_fails_fails_the_step_that_wanted_its_batch() -> None:
    def source():  # type: ignore[no-untyped-def]
        yield from _batches(2)
        raise OSError("disk gone")

    feed = _stage(source(), [])  # type: ignore[arg-type]
    next(feed)
    next(feed)
    with pytest.raises(OSError, match="disk gone"):
        next(feed)


def test_on_a_gpu_the_feed_delivers_what_the_source_made() -> None:
    tf = pytest.importorskip("tensorflow")
    if not tf.config.list_physical_devices("GPU"):
        pytest.skip("no GPU here")
    from harness.feeds import pinned
    from harness.models import MODELS
    from harness.sources import Synthetic

    source = Synthetic(MODELS["cnn_cifar"].spec, 64, dtype="uint8")
    for (x, y), (want_x, want_y) in zip(islice(pinned(source, "/GPU:0"), 12), source.arrays(), strict=False):
        assert "GPU" in x.device
        np.testing.assert_array_equal(x.numpy(), want_x)
        np.testing.assert_array_equal(y.numpy(), want_y)
