"""N ranks train to the same weights as one: real processes, both step modes, Gloo and MPI. And the check can fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.doctor import equality
from profiles.records import Cell
from tests.harness.ring import SCRIPTS
from tests.harness.running import LAUNCHERS, environment, run_python

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = pytest.mark.train

MLP = Cell("mlp", ranks=2, per_rank_batch=16, steps=10, warmup=0)
ADAM = (("optimizer", "adam"),)
EXACT = {
    "fit, SGD with momentum": MLP,
    "compiled, SGD with momentum": replace(MLP, step="compiled"),
    "fit, Adam": replace(MLP, options=ADAM),
    "compiled, Adam": replace(MLP, options=ADAM, step="compiled"),
    "fit, gradients in three groups": replace(MLP, options=(("groups", "3"),)),
    "fit, two local steps an exchange": replace(MLP, aggregate=2),
    "compiled, two local steps an exchange": replace(MLP, aggregate=2, step="compiled"),
    "fit, uint8 staged": replace(MLP, feed="staging", input_dtype="uint8"),
}
ALIKE = {
    "batch normalisation and dropout, fit": Cell("cnn_cifar", ranks=2, per_rank_batch=4, steps=3, warmup=0),
    "batch normalisation and dropout, compiled": Cell(
        "cnn_cifar", ranks=2, per_rank_batch=4, steps=3, warmup=0, step="compiled"
    ),
    "float16 with loss scaling, fit": replace(MLP, precision="mixed_float16"),
    "float16 with loss scaling, compiled": replace(MLP, precision="mixed_float16", step="compiled"),
    "gradients as fp16": replace(MLP, compression="fp16"),
    "compiled, gradients as fp16": replace(MLP, step="compiled", compression="fp16"),
    "gradients as bf16": replace(MLP, compression="bf16"),
}


@pytest.fixture(scope="module", params=LAUNCHERS)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, equality.Equality]:
    """All cells in one launch of two ranks and one of a single rank."""
    cells = EXACT | ALIKE
    found = equality.check(
        list(cells.values()),
        lambda ranks: LAUNCHERS[request.param],
        tmp_path_factory.mktemp(request.param),
        env=environment(),
    )
    return dict(zip(cells, found, strict=True))


@pytest.mark.parametrize("name", EXACT)
def test_two_ranks_train_to_the_weights_of_one_on_the_joined_batch(
    trained: dict[str, equality.Equality], name: str
) -> None:
    assert trained[name].max_difference <= 1e-5
    assert trained[name].trainable_bit_equal


@pytest.mark.parametrize("name", ALIKE)
def test_ranks_end_bit_equal_whatever_the_model_and_the_gradients_travel_as(
    trained: dict[str, equality.Equality], name: str
) -> None:
    assert trained[name].trainable_bit_equal
    assert trained[name].statistics_bit_equal


def test_gradients_in_half_precision_differ_from_the_exact_ones_by_rounding_only(
    trained: dict[str, equality.Equality],
) -> None:
    for name in ("gradients as fp16", "compiled, gradients as fp16", "gradients as bf16"):
        assert 0 < trained[name].max_difference < 1e-3


@pytest.mark.parametrize("script", ["stock_horovod.py", "unreduced.py"])
def test_the_check_fails_where_gradients_are_not_reduced(tmp_path: Path, script: str) -> None:
    """Horovod's own Keras optimizer under Keras 3 reduces nothing and says nothing."""
    found = trained_by_script(tmp_path, script)
    assert not found.trainable_bit_equal
    assert found.max_difference > equality.TOLERANCE
    assert not found.holds


@pytest.mark.parametrize(
    ("script", "step", "launcher"),
    [
        ("two_lines.py", "fit", "gloo"),
        ("functional_fit.py", "fit", "mpirun"),
        ("functional_fit.py", "compiled", "gloo"),
        ("custom_train_step.py", "fit", "mpirun"),
        ("custom_train_step.py", "compiled", "gloo"),
        ("own_loop.py", "fit", "mpirun"),
        # Nothing of a user's own loop is compiled, but gradients must be averaged all the same.
        ("own_loop.py", "compiled", "gloo"),
    ],
)
def test_a_script_with_the_two_lines_trains_to_the_weights_of_one_rank(
    tmp_path: Path, script: str, step: str, launcher: str
) -> None:
    found = trained_by_script(tmp_path, script, step, launcher=launcher)
    assert found.holds, found


def trained_by_script(directory: Path, script: str, *words: str, launcher: str = "gloo") -> equality.Equality:
    """Run scripts/<script> DIR BATCH with two ranks of batch 16 and with one of batch 32."""
    path = SCRIPTS / script
    for prefix, batch, out in ((LAUNCHERS[launcher], 16, "together"), ([], 32, "alone")):
        done = run_python(str(path), str(directory / out), str(batch), *words, prefix=prefix)
        assert done.returncode == 0, done.stdout + done.stderr
    return equality.compare(MLP, directory / "together", directory / "alone")
