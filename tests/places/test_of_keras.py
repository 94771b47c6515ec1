"""What Keras calls of the user's is told by name and line."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from profiles.model import marks
from tests.harness.running import prepared, run_python

pytestmark = pytest.mark.train
SCRIPT = Path(__file__).with_name("trains.py")
FILE = "tests/places/trains.py"


@cache
def told() -> Counter[str]:
    done = run_python(str(SCRIPT), prefix=prepared())
    assert done.returncode == 0, done.stderr
    return Counter(json.loads(done.stdout.splitlines()[-1]))


def at(what: str) -> int:
    """The line that ends in this comment."""
    return next(n for n, line in enumerate(SCRIPT.read_text().splitlines(), 1) if line.endswith(f"# {what}"))


@pytest.mark.parametrize(
    ("kind", "name", "line", "count"),
    [
        ("callback", "Norms.on_train_batch_end", "norms", 2),
        ("callback", "More.on_train_batch_end", "more", 2),
        ("callback", "Decorated.on_train_batch_end", "decorated", 2),
        ("gc", "More.on_train_batch_end", "more", 2),  # within, so told by its name
        ("callback", "ModelCheckpoint.on_train_batch_end", "saves", 2),
        ("saving", "ModelCheckpoint.on_train_batch_end", "saves", 1),
        ("callback", "LambdaCallback.on_epoch_end", "lambda", 1),
        ("callback", "LambdaCallback.on_train_batch_end", "method", 2),
        ("callback", "LambdaCallback.on_train_batch_begin", "partial", 2),
        ("callback", "LambdaCallback.on_epoch_end", "object", 1),
        ("validation", "Model.evaluate", "fit", 1),
        ("eager", "Sequential.train_step", "compiled", 1),
        ("eager", "Sequential.train_step", "set later", 1),
        ("eager", "Sequential.train_step", "all eager", 1),
        ("map", "Dataset.map of prepared", "serial", 1),
        ("parallel-map", "Dataset.map of prepared", "parallel", 1),
        ("parallel-map", "Dataset.map of <lambda>", "cached", 1),
        ("py_function", "doubled", "doubled", 3),
        ("py_function", "tripled", "tripled", 3),
    ],
)
def test_each_part_is_a_range_with_its_line(kind: str, name: str, line: str, count: int) -> None:
    assert told()[marks.place(kind, name, FILE, at(line))] == count


@pytest.mark.parametrize(
    ("kind", "name", "line"),
    [
        ("dataset", "Data.__getitem__", "data"),
        ("dataset-wait", "Data.__getitem__", "data"),
        ("generator", "batches", "batches"),
        ("generator", "rows", "rows"),
    ],
)
def test_what_makes_batches_is_told_for_each(kind: str, name: str, line: str) -> None:
    assert told()[marks.place(kind, name, FILE, at(line))] >= 2


def test_nothing_else_is_told() -> None:
    known = {"Norms", "More", "ModelCheckpoint", "LambdaCallback", "Model", "Sequential", "Data", "batches"}
    known |= {"doubled", "tripled", "rows", "Dataset", "Decorated"}
    others = [name for name in told() if name.split(" ")[2].split(".")[0] not in known and " gc " not in name]
    assert not others


UNDER_RING = """
from ringscope import ring
ring.init()
import json, keras, numpy as np
from ringscope.places import ranges
told = []
class Kept:
    begin, end = staticmethod(told.append), staticmethod(lambda begun: None)
ranges.writer = lambda: Kept
class Norms(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.norm = batch
model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
ring.distribute(model)
model.fit(np.zeros((4, 3)), np.zeros((4, 1)), batch_size=2, verbose=0, callbacks=[Norms()])
print(json.dumps(told))
"""


def test_ring_writes_them_for_any_profiler(tmp_path: Path) -> None:
    pytest.importorskip("horovod")
    script = tmp_path / "my_train.py"
    script.write_text(UNDER_RING)
    done = run_python(str(script), prefix=prepared())
    assert done.returncode == 0, done.stderr
    line = next(n for n, text in enumerate(UNDER_RING.splitlines(), 1) if "def on_train_batch_end" in text)
    hooks = [name for name in json.loads(done.stdout.splitlines()[-1]) if f"my_train.py:{line})" in name]
    assert hooks == 2 * [next(iter(hooks))] and hooks[0].startswith("place callback Norms.on_train_batch_end")
