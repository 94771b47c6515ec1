"""The staging of batches on a device of our own making; DLPack over host memory; on a GPU the feed itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from threading import Event
from typing import Any

import numpy as np
import pytest

from ringscope.ring.feed import dlpack
from ringscope.ring.feed.pinned import SLOTS, WRITERS, Staged, write
from tests.harness.running import environment


def _batches(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [(rng.integers(0, 256, (4, 3), np.uint8), rng.integers(0, 9, 4, np.int64)) for _ in range(count)]


class LateDevice:
    """A device that does a step only when somebody waits for it: as late as a GPU may be."""

    def __init__(self) -> None:
        self.steps: list[LateSlot] = []
        self.read: list[Any] = []

    def run(self, steps: int) -> None:
        """Do all up to the first so many."""
        for slot in self.steps[len(self.read) : steps]:
            self.read.append(slot.memory)


class LateSlot:
    """A ringscope.ring.feed.pinned.Slot."""

    def __init__(self, device: LateDevice) -> None:
        self.device, self.memory, self.host, self.launched_steps = device, (), (), 0

    def fill(self, arrays: tuple[Any, ...]) -> None:
        self.host = tuple(a.copy() for a in arrays)

    def bring(self, number: int) -> None:
        self.wait_until_free()
        self.memory, self.number = self.host, number

    def wait_until_free(self) -> None:
        self.device.run(self.launched_steps)

    def tensors(self) -> LateSlot:
        return self

    def launched(self) -> None:
        self.launched_steps = len(self.device.steps)


def test_a_batch_is_not_written_over_before_the_step_that_was_given_it_has_read_it() -> None:
    batches, device = _batches(20), LateDevice()
    for number, slot in zip(range(15), Staged(iter(batches), [LateSlot(device) for _ in range(SLOTS)]), strict=False):
        assert slot.number == number
        device.steps.append(slot)
    device.run(15)
    for (x, y), (want_x, want_y) in zip(device.read, batches[:15], strict=True):
        np.testing.assert_array_equal(x, want_x)
        np.testing.assert_array_equal(y, want_y)


def test_the_device_is_waited_for_when_it_is_more_than_two_steps_behind() -> None:
    device = LateDevice()
    feed = Staged(iter(_batches(30)), [LateSlot(device) for _ in range(SLOTS)])
    for number in range(12):
        feed.wait_for_room()
        assert len(device.read) >= number - 2
        device.steps.append(next(feed))


def test_a_batch_is_written_whole_however_many_threads_share_it() -> None:
    rng = np.random.default_rng(3)
    arrays = [rng.integers(0, 256, size, np.uint8) for size in (3_000_001, 1 << 20, 17, 2_500_000)]
    into = [np.full(size, 7, np.uint8) for size in (3_000_001, 1 << 20, 17, 2_600_000)]
    with ThreadPoolExecutor(WRITERS) as writers:
        write(into, arrays, writers)
    for mine, theirs in zip(into, arrays, strict=True):
        np.testing.assert_array_equal(mine[: len(theirs)], theirs)
    assert (into[3][2_500_000:] == 7).all()


def test_a_batch_is_written_while_the_one_before_is_brought() -> None:
    second_written = Event()

    class Watched(LateSlot):
        def fill(self, arrays: tuple[Any, ...]) -> None:
            super().fill(arrays)
            if arrays is batches[1]:
                second_written.set()

        def bring(self, number: int) -> None:
            assert second_written.wait(60)
            super().bring(number)

    batches, device = _batches(4), LateDevice()
    first = next(Staged(iter(batches), [Watched(device) for _ in range(SLOTS)]))
    np.testing.assert_array_equal(first.memory[0], batches[0][0])


def test_the_feed_ends_with_its_source() -> None:
    batches = _batches(5)
    got = [slot.memory[0] for slot in Staged(iter(batches), [LateSlot(LateDevice()) for _ in range(SLOTS)])]
    assert [g.tolist() for g in got] == [x.tolist() for x, _ in batches]


def test_a_source_that_fails_fails_the_step_that_wanted_its_batch() -> None:
    def source() -> Iterator[Any]:
        yield from _batches(2)
        raise OSError("disk gone")

    feed = Staged(source(), [LateSlot(LateDevice()) for _ in range(SLOTS)])
    next(feed)
    next(feed)
    with pytest.raises(OSError, match="disk gone"):
        next(feed)


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32", "float16"])
def test_a_tensor_over_memory_is_the_memory(dtype: str) -> None:
    pytest.importorskip("tensorflow")
    memory = np.arange(24, dtype=dtype).reshape(2, 3, 4)
    view = dlpack.View(memory.ctypes.data, memory.shape, memory.dtype, (dlpack.CPU, 0))
    np.testing.assert_array_equal(view.tensor().numpy(), memory)
    memory += 1
    tensor = view.tensor()
    assert tensor.shape == (2, 3, 4)
    assert tensor.dtype == dtype
    np.testing.assert_array_equal(tensor.numpy(), memory)


@pytest.mark.ci
def test_a_tensor_may_outlive_the_view_it_was_made_of() -> None:
    """TensorFlow read a freed deleter and called it: now and then a process died of it."""
    pytest.importorskip("tensorflow")
    code = """if True:
        import numpy as np
        from ringscope.ring.feed import dlpack
        memory = np.zeros(24, np.uint8)
        views = [dlpack.View(memory.ctypes.data, (24,), memory.dtype, (dlpack.CPU, 0)) for _ in range(400)]
        tensors = [view.tensor() for view in views]
        del views
        del tensors
    """
    overwritten = environment() | {"PYTHONMALLOC": "debug"}  # what is freed is
    done = subprocess.run([sys.executable, "-c", code], env=overwritten, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_on_a_gpu_the_feed_delivers_what_the_source_made() -> None:
    tf = pytest.importorskip("tensorflow")
    if not tf.config.list_physical_devices("GPU"):
        pytest.skip("no GPU here")
    from harness.training.feeds.sources import Synthetic
    from harness.training.feeds.to_device import pinned
    from harness.training.models import MODELS

    source = Synthetic(MODELS["cnn_cifar"], 64, dtype="uint8")
    for carried, (want_x, want_y) in zip(islice(pinned(source, "/GPU:0"), 12), source.arrays(), strict=False):
        x, y = carried.data
        assert "GPU" in x.device
        np.testing.assert_array_equal(x.numpy(), want_x)
        np.testing.assert_array_equal(y.numpy(), want_y)
