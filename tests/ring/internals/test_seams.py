"""Private names of Keras, TensorFlow and Horovod: each that ring touches is in one table; without one, it is refused,
or what needs it left out."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.harness.running import ROOT, prepared, run_python

tf = pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")

import keras  # noqa: E402
from keras.src.layers.normalization import batch_normalization  # noqa: E402
from keras.src.losses import loss as keras_losses  # noqa: E402

from profiles.ground.errors import RingscopeError  # noqa: E402
from ringscope.ring.global_batch import losses, normalization  # noqa: E402
from ringscope.ring.internals import seams, versions  # noqa: E402
from ringscope.ring.internals.frameworks import backend_ops  # noqa: E402

RING = ROOT / "ringscope" / "ring"
PRIVATE = (
    "horovod._keras",
    "horovod.keras.callbacks",
    "horovod.runner",
    "horovod.tensorflow.keras",
    "horovod.tensorflow.mpi_ops",
    "keras.src",
    "tensorflow.compiler",
    "tensorflow.core",
    "tensorflow.python",
)
# Of Python's own modules and named tuples, and of XLA's library.
OF_OTHERS = {"_current_frames", "_exit", "_getframe", "_inheriting", "_replace", "_ZN3xla3ffi12GetXlaFfiApiEv"}
ASKED_WITH_A_DEFAULT = {"_keras_logits", "_HAS_AGGREGATE_GRAD", "_allreduce_grads", "_return_attention_scores"}


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(RING.rglob("*.py"))}


@cache
def is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def table() -> dict[str, set[str]]:
    held: dict[str, set[str]] = defaultdict(set)
    for seam in seams.SEAMS:
        for module, names in seam.touches.items():
            held[module] |= {each for name in names for each in name.split("|")}
    return held


def touched() -> set[tuple[str, str]]:
    """(module, name in it, with dots) that ring's sources import from private modules or read of them."""
    found = set()
    for tree in trees().values():
        alias = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and any(one.name == "backend_ops" for one in node.names):
                alias["backend_ops"] = "keras.src.backend"
            if not isinstance(node, ast.ImportFrom) or node.level or not str(node.module).startswith(PRIVATE):
                continue
            for one in node.names:
                if is_module(full := f"{node.module}.{one.name}"):
                    alias[one.asname or one.name] = full
                else:
                    found.add((str(node.module), one.name))
        for node in ast.walk(tree):
            chain: list[str] = []
            while isinstance(node, ast.Attribute):
                chain.insert(0, node.attr)
                node = node.value
            if chain and isinstance(node, ast.Name) and node.id in alias:
                found.add((alias[node.id], ".".join(chain)))
    return found


def own_names() -> set[str]:
    """What ring itself defines, sets or binds."""
    names = set()
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
                names.add(node.attr)
    return names


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def private_attributes() -> set[str]:
    """Names with one underscore that ring reads of objects which are not its own, also by `getattr` and `hasattr`."""
    found = set()
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr", "setattr"):
                found |= {str(given.value) for given in node.args[1:2] if isinstance(given, ast.Constant)}
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


def test_every_name_of_a_private_module_that_ring_touches_is_in_the_table() -> None:
    # By any module: a class may stand there by the module that defines it, and be imported from another.
    held = {name for names in table().values() for name in names}

    def is_held(name: str) -> bool:
        return any(f"{one}.".startswith(f"{name}.") or f"{name}.".startswith(f"{one}.") for one in held)

    assert not sorted((module, name) for module, name in touched() if not is_held(name))


def test_every_private_attribute_that_ring_reads_is_in_the_table() -> None:
    held = {part for names in table().values() for name in names for part in name.split(".")}
    assert not sorted(private_attributes() - own_names() - held - OF_OTHERS - ASKED_WITH_A_DEFAULT)


def test_the_walk_sees_the_ways_in_which_ring_touches_names() -> None:
    """Else the two above could not fail."""
    assert ("keras.src.backend", "nn.gelu") in touched()
    assert ("keras.src.trainers.data_adapters", "get_data_adapter") in touched()
    assert {"_flatten_layers", "_call_flat", "_tensors"} <= private_attributes()


def test_all_of_them_are_there() -> None:
    assert seams.look(load=True) == ()


def test_each_seam_has_a_name_of_its_own_and_a_kind() -> None:
    assert len({(seam.name, seam.kind) for seam in seams.SEAMS}) == len(seams.SEAMS)
    assert {seam.kind for seam in seams.SEAMS} == {seams.NEEDED, seams.NICETY, seams.FORM}


def test_a_name_that_only_objects_have_is_found_by_what_the_class_sets() -> None:
    assert seams._has(keras.optimizers, "Adam._velocities") and not seams._has(keras.optimizers, "Adam._speeds")


def test_of_many_missing_names_a_line_shows_three_and_counts_the_others() -> None:
    """A release that moves its modules, as Keras 3.16 does, lacks dozens."""
    seam = next(seam for seam in seams.SEAMS if seam.kind == seams.NEEDED)
    line = seams.Missing(seam, tuple(f"keras.src.{name}" for name in "abcde")).line
    assert "has no keras.src.a, keras.src.b, keras.src.c and 2 more, which ring needs" in line


@pytest.mark.parametrize(
    ("version", "is_outside"), [("3.12.3", True), ("3.12.4", False), ("3.15.1", False), ("3.16.0.dev1", True)]
)
def test_releases_that_ring_was_not_tried_with_are_told(version: str, is_outside: bool) -> None:
    assert versions.Tried("keras", version, "3.12.4", "3.15.1").is_outside is is_outside


@pytest.mark.parametrize(
    ("form", "call"),
    [
        ("nn.gelu", lambda x: keras.ops.gelu(x, approximate=False)),
        ("nn.conv", lambda x: keras.layers.Conv2D(2, 1)(x[None, :, :, None])),
        ("nn.depthwise_conv", lambda x: keras.layers.DepthwiseConv2D(1)(x[None, :, :, None])),
        ("nn.dot_product_attention", lambda x: keras.ops.dot_product_attention(*3 * [x[None, :, None]])),
        ("numpy.einsum", lambda x: keras.layers.EinsumDense("ab,bc->ac", 3)(x)),
        ("numpy.matmul", lambda x: keras.layers.Dense(3)(x)),
        ("random.dropout", lambda x: keras.layers.Dropout(0.5)(x, training=True)),
    ],
)
def test_what_forms_are_laid_over_is_what_keras_calls(form: str, call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that computes by another module would leave the forms out, and say nothing."""

    class Reached(Exception):
        pass

    def reached(*_: Any, **__: Any) -> None:
        raise Reached

    room, name = form.split(".")
    monkeypatch.setattr(keras.src.backend.random if room == "random" else getattr(backend_ops, room), name, reached)
    with pytest.raises(Reached):
        call(tf.ones((4, 4)))


def test_losses_that_keras_takes_another_way_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.train_step((tf.ones((2, 2)), tf.ones((2, 1))))

    def joined() -> None:
        with losses.joined(model, 2, losses.given([]), model.train_step, None, uneven=False):
            model.compute_loss(y=tf.ones((2, 1)), y_pred=tf.zeros((2, 1)))

    joined()
    monkeypatch.setattr(keras_losses.Loss, "__call__", lambda loss, y, y_pred, sample_weight=None: tf.reduce_mean(y))
    with pytest.raises(RingscopeError, match="reduce_weighted_values"):
        joined()


def test_normalisation_that_keras_takes_another_way_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.BatchNormalization(synchronized=True)])
    monkeypatch.setattr(normalization, "sum_over_ranks", lambda values, name: values)
    normalization.synchronise(model)
    model(tf.ones((4, 2)), training=True)
    own = batch_normalization.BatchNormalization._moments
    monkeypatch.setattr(batch_normalization.BatchNormalization, "_elsewhere", own, raising=False)

    def call(layer: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        return layer._elsewhere(inputs, mask)[0] + inputs

    monkeypatch.setattr(batch_normalization.BatchNormalization, "call", call)
    with pytest.raises(RingscopeError, match="BatchNormalization._moments"):
        model(tf.ones((4, 2)), training=True)
    model(tf.ones((4, 2)), training=False)


BEGIN = "import keras, tensorflow as tf\nfrom keras.src.trainers.data_adapters import array_slicing\n"
WITHOUT_NEEDED = BEGIN + "del array_slicing.train_validation_split\nfrom ringscope import ring\n"
LOST_SINCE = BEGIN + "from ringscope import ring\ndel array_slicing.train_validation_split\nring.init(seed=1)\n"
LESS = """
import keras, tensorflow as tf
from keras.src.saving import saving_lib
from keras.src.layers.preprocessing.image_preprocessing.equalization import Equalization
del saving_lib.save_weights_only, Equalization._custom_histogram_fixed_width
from ringscope import ring
ring.init(seed=1)
del tf.nn.sufficient_statistics  # what a form calls, without a name in the table
def trained(ours):
    keras.utils.set_random_seed(2)
    parts = [keras.Input((3,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
    model = keras.Sequential(parts)
    model.compile("sgd", "mse")
    if ours:
        ring.distribute(model, step="compiled")
    x = tf.random.stateless_uniform((8, 3), (1, 2))
    model.fit(x, x[:, :1], batch_size=4, shuffle=False, verbose=0)
    return model.weights
for ours, own in zip(trained(True), trained(False)):
    tf.debugging.assert_near(ours, own)
print("trained")
from ringscope.ring.internals.frameworks import defining
defining("fit").stop_training = False  # as a release that looks elsewhere
trained(True)
"""


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(script)
    return run_python(str(folder / "script.py"), prefix=prepared())


@pytest.mark.train
@pytest.mark.beside
@pytest.mark.parametrize("script", [WITHOUT_NEEDED, pytest.param(LOST_SINCE, marks=pytest.mark.ci)])
def test_without_a_name_that_ring_needs_the_release_to_install_is_told(script: str, tmp_path: Path) -> None:
    done = run(script, tmp_path)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and "array_slicing.train_validation_split" in last
    assert f"pip install 'keras=={versions.KERAS[1]}'" in last and f"keras {keras.__version__} " in last


@pytest.mark.ci
@pytest.mark.train
@pytest.mark.beside
def test_without_others_training_goes_on_and_what_stop_training_needs_is_refused(tmp_path: Path) -> None:
    done = run(LESS, tmp_path)
    said = [line for line in done.stderr.splitlines() if line.startswith("ring: ")]
    assert done.stdout == "trained\n", done.stderr
    assert sum("saving_lib.save_weights_only" in line and "left out" in line for line in said) == 1
    assert sum("Equalization._custom_histogram_fixed_width" in line and "left out" in line for line in said) == 1, said
    assert sum("'layers'" in line and "sufficient_statistics" in line for line in said) == 1
    assert done.returncode == 1 and "stop_training" in done.stderr.splitlines()[-1]
