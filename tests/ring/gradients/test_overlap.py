"""Gradients that leave while the program that computes them runs: the same training, to the bit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.harness.running import run_in_turn
from tests.ring import SCRIPTS, from_ranks

tf = pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
in_xla = pytest.importorskip("ringscope.ring.gradients.overlap.xla_calls")
pytestmark = [pytest.mark.train, pytest.mark.beside]


Ran = tuple[Path, list[dict[str, Any]]]


# What MPI sums for XLA's calls, it sums by the same code as ever: one of them suffices for each change.
@pytest.fixture(
    scope="module",
    params=[pytest.param("gloo", marks=pytest.mark.ci), pytest.param("mpirun", marks=pytest.mark.exhaustive)],
)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return _run(tmp_path_factory.mktemp("overlap"), request.param)


def _run(out: Path, launcher: str, *words: str) -> Ran:
    run_in_turn([(SCRIPTS / "overlap.py", out, *words)], launcher)
    return out, from_ranks(out)


def _weights(out: Path, name: str, rank: int) -> list[np.ndarray]:
    with np.load(out / f"{name}.{rank}.npz") as kept:
        return [kept[each] for each in kept.files]


def _are_equal(out: Path, *runs: tuple[str, int]) -> bool:
    first, *others = (_weights(out, name, rank) for name, rank in runs)
    return all(np.array_equal(a, b) for other in others for a, b in zip(first, other, strict=True))


def test_dense_layers_train_to_the_bit_beside_their_exchange(tmp_path: Path) -> None:
    out, ranks = _run(tmp_path, "gloo", "few")
    _check(out, ranks, "dense")
    assert all(rank["registered"] for rank in ranks), "XLA knows the calls of the Horovod that make setup builds"


@pytest.mark.parametrize("name", ["dense", "branched", "recurrent", "with_calls", "sum in fp16"])
def test_weights_and_losses_are_those_of_an_exchange_after_the_program(ran: Ran, name: str) -> None:
    _check(*ran, name)


def _check(out: Path, ranks: list[dict[str, Any]], name: str) -> None:
    assert all(rank[f"{name}, beside"]["inside"] for rank in ranks)
    assert not any(rank[f"{name}, after"]["inside"] for rank in ranks)
    assert _are_equal(out, *((f"{name}, {when}", rank) for when in ("after", "beside") for rank in (0, 1)))
    assert len({tuple(rank[f"{name}, {when}"]["loss"]) for when in ("after", "beside") for rank in ranks}) == 1


@pytest.mark.parametrize("name", ["dense", "branched", "recurrent", "with_calls"])
def test_the_backward_pass_goes_on_behind_the_last_layers_exchange(ran: Ran, name: str) -> None:
    assert {lead for rank in ran[1] for lead in rank[f"{name}, beside"]["inside"]} == {True}


def test_a_rank_that_trains_without_xla_meets_one_that_is_compiled(ran: Ran) -> None:
    out, ranks = ran
    assert ranks[0]["without XLA on rank 1"]["inside"] and not ranks[1]["without XLA on rank 1"]["inside"]
    assert _are_equal(out, ("without XLA on rank 1", 0), ("without XLA on rank 1", 1))
    for one, other in zip(_weights(out, "without XLA on rank 1", 0), _weights(out, "dense, beside", 0), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["two local steps", "one bucket"])
def test_what_has_nothing_to_run_beside_leaves_after_the_program(ran: Ran, name: str) -> None:
    assert not any(rank[name]["inside"] for rank in ran[1])
    assert _are_equal(ran[0], (name, 0), (name, 1))


@pytest.mark.ci  # where that stands is looked at on a GPU alone
def test_the_exchange_that_is_timed_has_a_name_by_which_it_stays_on_tensorflows_stream(tmp_path: Path) -> None:
    """Called eagerly it would have none, and leave kernels on one stream more."""
    run_in_turn([(SCRIPTS / "tried.py", tmp_path)], "gloo")
    ranks = from_ranks(tmp_path)
    assert ranks[0] == ranks[1]
    small, large = ranks[0]["taken_s"]
    assert 0 < small < large
    # A rank that comes early waits; that is no part of what the exchange takes.
    assert 0 < ranks[0]["of_late_ranks_s"] < ranks[0]["late_s"] / 2
    told = json.loads((tmp_path / "timeline.json").read_text())
    names = {each["pid"]: each["args"]["name"] for each in told if "name" in each.get("args", {})}
    timed = {each["pid"] for each in told if each.get("args", {}).get("dtype") == "float32"}
    assert timed and all("in_stream_tried" in names[pid] for pid in timed)


def test_nothing_is_laid_out_anew_between_handing_over_and_waiting() -> None:
    """On a GPU a convolution's gradient lies otherwise than its kernel: left alone, XLA turned it between the calls,
    when it may or may not have been summed."""

    @tf.function(jit_compile=True, autograph=False)
    def step(kernel: Any, scale: Any) -> list[Any]:
        settings = 'name = "one", op = 1 : i64, count = 2 : i64'
        handed = in_xla._called("ring_exchange", [kernel, scale], settings)
        return in_xla._called("ring_exchanged", handed)

    text = step.experimental_get_compiler_ir(tf.zeros([3, 3, 4, 5]), tf.zeros([]))(stage="hlo")
    fixed = re.findall(r'custom_call_target="(ring_exchanged?)", operand_layout_constraints={(.*?)}, custom', text)
    assert fixed == [(name, "f32[3,3,4,5]{3,2,1,0}, f32[]") for name in ("ring_exchange", "ring_exchanged")]
    results = re.findall(r"= (\(.*?\)) custom-call\(", text)
    assert results == ["(f32[3,3,4,5]{3,2,1,0}, f32[])"] * 2
