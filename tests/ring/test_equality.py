"""N ranks train to the same weights as one: real processes, both step modes, Gloo and MPI. And the check can fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.doctor import equality
from profiles.runs.records import Cell
from tests.harness.running import LAUNCHERS, environment, prepared, run_in_turn
from tests.ring import SCRIPTS

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
}
NARROW = {
    "gradients as fp16": replace(MLP, compression="fp16"),
    "compiled, gradients as fp16": replace(MLP, step="compiled", compression="fp16"),
    "gradients as bf16": replace(MLP, compression="bf16"),
}
TOLD_BY_ONE = EXACT | NARROW


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What each cell is held against, in one start."""
    out = tmp_path_factory.mktemp("alone")
    equality.run(list(dict.fromkeys(map(reference, TOLD_BY_ONE.values()))), prepared(), out, env=environment())
    return out


# Scripts below train under mpirun in every run of the tests.
@pytest.fixture(
    scope="module",
    params=[pytest.param("gloo", marks=pytest.mark.ci), pytest.param("mpirun", marks=pytest.mark.exhaustive)],
)
def trained(
    request: pytest.FixtureRequest, alone: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, equality.Equality]:
    """All cells in one launch of two ranks, beside one rank's."""
    cells, out = EXACT | ALIKE | NARROW, tmp_path_factory.mktemp(request.param)
    equality.run(list(cells.values()), prepared(request.param), out, env=environment())
    places = {
        name: alone / reference(cell).id if name in TOLD_BY_ONE else out / cell.id for name, cell in cells.items()
    }
    return {name: equality.compare(cell, out / cell.id, places[name]) for name, cell in cells.items()}


def reference(cell: Cell) -> Cell:
    """One rank with the joined batch, as `fit` trains it: neither step nor groups nor compression change the answer."""
    options = tuple(option for option in cell.options if option[0] != "groups")
    return replace(equality.on_one_device(cell), step="fit", options=options)


@pytest.mark.parametrize("name", EXACT)
def test_two_ranks_train_to_the_weights_of_one_on_the_joined_batch(
    trained: dict[str, equality.Equality], name: str
) -> None:
    assert trained[name].max_difference <= 1e-5
    assert trained[name].trainable_bit_equal


@pytest.mark.parametrize("name", ALIKE | NARROW)
def test_ranks_end_bit_equal_whatever_the_model_and_the_gradients_travel_as(
    trained: dict[str, equality.Equality], name: str
) -> None:
    assert trained[name].trainable_bit_equal
    assert trained[name].statistics_bit_equal


def test_gradients_in_half_precision_differ_from_the_exact_ones_by_rounding_only(
    trained: dict[str, equality.Equality],
) -> None:
    for name in NARROW:
        assert 0 < trained[name].max_difference < 1e-3


TOGETHER = [
    ("two_lines.py", "fit", "gloo"),
    ("functional_fit.py", "fit", "mpirun"),
    ("functional_fit.py", "compiled", "gloo"),
]
# Once `ring.init` was called Horovod's own optimizer is refused: its script is the first.
APART = [("stock_horovod.py", "", "gloo"), ("unreduced.py", "", "gloo")]
MORE = [
    ("custom_train_step.py", "fit", "mpirun"),
    ("custom_train_step.py", "compiled", "gloo"),
    ("own_loop.py", "fit", "mpirun"),
    # Nothing of a user's own loop is compiled, but gradients must be averaged all the same.
    ("own_loop.py", "compiled", "gloo"),
]


def _by_script(out: Path, every: list[tuple[str, str, str]]) -> dict[tuple[str, str, str], equality.Equality]:
    """scripts/<script> OUT BATCH STEP by two ranks of batch 16 and by one of batch 32: a start a launcher, and one.

    The one takes the script's first step alone: which it is does not change the answer.
    """
    for launcher in LAUNCHERS:
        chosen = [one for one in every if one[2] == launcher]
        run_in_turn([[SCRIPTS / one[0], out / "-".join(one), 16, *filter(None, one[1:2])] for one in chosen], launcher)
    steps: dict[str, str] = {}
    for script, step, _ in every:
        steps.setdefault(script, step)
    run_in_turn([[SCRIPTS / script, out / script, 32, *filter(None, [step])] for script, step in steps.items()])
    return {one: equality.compare(MLP, out / "-".join(one), out / one[0]) for one in every}


@pytest.fixture(scope="module")
def by_script(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, str], equality.Equality]:
    return _by_script(tmp_path_factory.mktemp("scripts"), TOGETHER)


@pytest.fixture(scope="module")
def by_more(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, str], equality.Equality]:
    return _by_script(tmp_path_factory.mktemp("more"), [*APART, *MORE])


@pytest.mark.ci
@pytest.mark.parametrize("script", APART)
def test_the_check_fails_where_gradients_are_not_reduced(
    by_more: dict[tuple[str, str, str], equality.Equality], script: tuple[str, str, str]
) -> None:
    """Horovod's own Keras optimizer under Keras 3 reduces nothing and says nothing."""
    found = by_more[script]
    assert not found.trainable_bit_equal
    assert found.max_difference > equality.TOLERANCE
    assert not found.holds


@pytest.mark.parametrize(("script", "step", "launcher"), TOGETHER)
def test_a_script_with_the_two_lines_trains_to_the_weights_of_one_rank(
    by_script: dict[tuple[str, str, str], equality.Equality], script: str, step: str, launcher: str
) -> None:
    found = by_script[script, step, launcher]
    assert found.holds, found


@pytest.mark.ci
@pytest.mark.parametrize(("script", "step", "launcher"), MORE)
def test_a_step_or_a_loop_of_ones_own_trains_to_the_weights_of_one_rank(
    by_more: dict[tuple[str, str, str], equality.Equality], script: str, step: str, launcher: str
) -> None:
    found = by_more[script, step, launcher]
    assert found.holds, found
