"""A script's steps timed from inside, and changes of `fit` that are made where they change no result: real Keras."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.jobs.knobs import apart
from harness.launch.timed_script import SEED, WARM_UP, Turn, changes, seeded
from tests.harness.running import prepared, run_python

pytestmark = pytest.mark.train
tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

STEPS = 30  # of an epoch
BATCH = 4


@pytest.fixture
def patched() -> Iterator[Any]:
    """Keras, whose classes are as before afterwards."""
    kinds = keras.callbacks.CallbackList, keras.Model
    kept = [dict(vars(kind)) for kind in kinds]
    yield keras
    for kind, before in zip(kinds, kept, strict=True):
        for name in set(vars(kind)) - before.keys():
            delattr(kind, name)
        for name, value in before.items():
            if vars(kind)[name] is not value:
                setattr(kind, name, value)


def arrays() -> tuple[Any, Any]:
    x = np.random.default_rng(0).normal(size=(STEPS * BATCH, 3)).astype("float32")
    return x, x.sum(1, keepdims=True)


def model() -> Any:
    keras.utils.set_random_seed(1)
    made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def tried(out: Path, wanted: dict[str, int], x: Any = None, **options: Any) -> dict[str, Any]:
    """What is written of a fit of four epochs."""
    turn = Turn(out, 0, 40, 60.0, wanted)
    turn.watch(keras)
    made, (samples, targets) = model(), arrays()
    given = {"x": samples, "y": targets, "batch_size": BATCH} if x is None else {"x": x}
    made.fit(**given, epochs=4, verbose=0, shuffle=False, **options)
    turn.finish()
    found: dict[str, Any] = json.loads((out / "rank0.tried.json").read_text())
    return found


def means() -> dict[str, float]:
    """The mean squared error of the first steps by NumPy: of each step before it, over the steps so far."""
    weights, bias = (each.numpy() for each in model().weights)
    x, y = arrays()
    losses, found = [], {}
    for step in range(WARM_UP):
        part = slice(step * BATCH, (step + 1) * BATCH)
        error = x[part] @ weights + bias - y[part]
        losses.append(float((error**2).mean()))
        weights = weights - 0.01 * 2 * x[part].T @ error / BATCH
        bias = bias - 0.01 * 2 * error.mean(0)
        found[f"1:{step + 1}"] = sum(losses) / len(losses)
    return found


def test_every_turn_of_ring_begins_with_the_same_numbers(tmp_path: Path) -> None:
    (tmp_path / "my_train.py").write_text(
        "from ringscope import ring; ring.init(); import numpy; print('drawn', numpy.random.random())"
    )
    words = ["-m", "harness.launch.timed_script", str(tmp_path), "1", "1", "{}", str(tmp_path / "my_train.py")]
    done = run_python(*words, prefix=prepared())
    assert done.returncode == 0, done.stderr
    said = done.stdout.split()
    assert float(said[said.index("drawn") + 1]) == np.random.RandomState(SEED).random_sample()


def test_a_seed_that_the_script_gives_stays() -> None:
    given: list[Any] = []
    start: Any = SimpleNamespace(init=lambda *, seed=None, pin=True: given.append((seed, pin)))
    seeded(start)
    start.init(seed=5)
    start.init(seed=False, pin=False)
    start.init(seed=True)
    assert given == [(5, True), (False, False), (SEED, True)]


def test_so_many_steps_are_timed_and_the_losses_are_those_of_the_training(patched: Any, tmp_path: Path) -> None:
    began_s = time.perf_counter()
    seen = tried(tmp_path, {}, validation_data=arrays())
    assert seen["steps"] == 40 and 0 < seen["seconds"] < time.perf_counter() - began_s
    expected = means()
    assert seen["losses"].keys() == expected.keys()
    assert all(seen["losses"][place] == pytest.approx(loss, rel=1e-4) for place, loss in expected.items())
    assert seen["refused"]["steps_per_execution"] == "" and seen["refused"]["workers"] == "the data is not a PyDataset"


def test_steps_in_one_execution_train_the_same(patched: Any, tmp_path: Path) -> None:
    seen = tried(tmp_path, {"steps_per_execution": 8})
    # 16 steps are warm-up; of epochs of 8, 8, 8 and 6 steps, 14 and then 30 are timed.
    assert seen["steps"] == 44 and list(seen["losses"]) == ["1:8", "1:16"]
    own = {f"0:{place}": loss for place, loss in seen["losses"].items()}
    assert apart({f"0:{place}": loss for place, loss in means().items()}, own) == ""


class Reads(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        pass


def test_a_callback_of_each_batch_ends_the_turn_with_the_reason_and_not_the_training(
    patched: Any, tmp_path: Path
) -> None:
    seen = tried(tmp_path, {"steps_per_execution": 8}, callbacks=[Reads()])
    assert seen["steps"] == 0
    assert seen["refused"]["steps_per_execution"] == "Reads.on_train_batch_end would be called once for several batches"


@pytest.mark.parametrize(
    ("callback", "possible"),
    [
        (lambda: keras.callbacks.EarlyStopping(), True),
        (lambda: keras.callbacks.ModelCheckpoint("x.keras"), True),
        (lambda: keras.callbacks.ModelCheckpoint("x.keras", save_freq=5), False),
        (lambda: keras.callbacks.LambdaCallback(on_train_batch_begin=print), False),
        (lambda: keras.callbacks.LambdaCallback(on_epoch_end=print), True),
    ],
)
def test_steps_are_joined_only_where_no_callback_sees_batches(callback: Any, possible: bool) -> None:
    made = changes(keras, {"self": model(), "x": arrays()[0], "callbacks": [callback()]})["steps_per_execution"]
    assert callable(made) is possible


def test_steps_are_joined_only_where_the_data_tells_its_length() -> None:
    """Keras 3.15 takes 31 steps of an unknown 30, and 30 by executions of 8."""
    counted = tf.data.Dataset.range(8).batch(2)
    unknown = counted.filter(lambda _: True)
    for data, steps, possible in (
        (counted, None, True),
        (unknown, None, False),
        (unknown, 4, True),
        (iter([]), 4, True),
    ):
        call = {"self": model(), "x": data, "steps_per_epoch": steps}
        assert callable(changes(keras, call)["steps_per_execution"]) is possible
    assert not callable(changes(keras, {"self": model(), "x": iter([])})["steps_per_execution"])


class Images(keras.utils.PyDataset):
    def __init__(self, *, drawn: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self._drawn = drawn

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> Any:
        x, y = (part[index * BATCH : (index + 1) * BATCH] for part in arrays())
        return (x + np.random.normal(size=x.shape).astype("float32") if self._drawn else x), y


class Turned(Images):
    def on_epoch_end(self) -> None:
        self._drawn = True


def one_by_one() -> Any:
    return tf.data.Dataset.from_generator(lambda: iter(range(8)), output_signature=tf.TensorSpec((), tf.int64))


@pytest.mark.parametrize(
    ("change", "data", "possible"),
    [
        ("prefetch", lambda: tf.data.Dataset.range(8).batch(2), True),
        ("prefetch", lambda: tf.data.Dataset.range(8).batch(2).prefetch(1), False),
        ("prefetch", lambda: one_by_one().batch(2), False),
        ("prefetch", lambda: tf.data.Dataset.range(8).map(lambda i: tf.py_function(int, [i], tf.int64)), False),
        ("workers", Images, True),
        ("workers", lambda: Images(workers=2), False),
        ("workers", lambda: Images(drawn=True), False),
        ("workers", Turned, False),
    ],
)
def test_batches_come_ahead_only_where_nothing_tells_that_they_would_be_others(
    change: str, data: Any, possible: bool
) -> None:
    call = {"self": model(), "x": data()}
    made = changes(keras, call)[change]
    assert callable(made) is possible, made
    if callable(made):
        made(3)
        assert call["x"].workers == 3 if change == "workers" else "Prefetch" in type(call["x"]).__name__


def test_workers_and_prefetch_bring_the_same_batches_to_fit(patched: Any, tmp_path: Path) -> None:
    plain = tried(tmp_path, {})["losses"]
    x, y = arrays()
    for wanted, data in (
        ({"workers": 3}, Images()),
        ({"prefetch": -1}, tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)),
    ):
        assert tried(tmp_path, wanted, data)["losses"] == pytest.approx(plain, rel=1e-6)
