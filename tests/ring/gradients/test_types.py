"""Gradients that were computed in bfloat16 go on as that: which they are, and that nothing of them is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.harness.running import prepared, run_python
from tests.ring import SCRIPTS, from_ranks

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.beside]


def _found(out: Path, ranks: int) -> list[dict[str, Any]]:
    launcher = prepared("gloo") if ranks > 1 else prepared()
    done = run_python(str(SCRIPTS / "computed.py"), str(out), prefix=launcher)
    assert done.returncode == 0, done.stdout + done.stderr
    return from_ranks(out, ranks)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("alone")
    return out, _found(out, 1)[0]


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    out = tmp_path_factory.mktemp("together")
    return out, _found(out, 2)


def _weights(out: Path, name: str, rank: int = 0) -> list[np.ndarray]:
    """Those that are trained, in the model's order, then the optimizer's."""
    with np.load(out / f"{name}.{rank}.npz") as kept:
        return [kept[f"arr_{i}"] for i in range(len(kept.files))]


# Of a dense layer, a normalisation, which Keras computes in float32, a dense layer, and one of float32.
COMPUTED = ["bfloat16"] * 2 + ["float32"] * 2 + ["bfloat16"] * 2 + ["float32"] * 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["as on GPUs", "as on GPUs, traced"])
def test_what_was_computed_in_bfloat16_leaves_as_that(together: tuple[Path, list[dict[str, Any]]], name: str) -> None:
    for found in together[1]:
        assert found[name]["left"] == COMPUTED
        for policy in ("float32", "mixed_float16"):
            assert set(found[policy]["left"]) == {"float32"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["as on GPUs, fp32", "two local steps"])
def test_what_is_asked_for_in_float32_or_summed_over_steps_is_never_narrow(
    together: tuple[Path, list[dict[str, Any]]], name: str
) -> None:
    assert [found[name]["left"] for found in together[1]] == [[], []]


def test_alone_a_compiled_step_is_one_program_that_nothing_leaves(alone: tuple[Path, dict[str, Any]]) -> None:
    assert [alone[1][f"{each}, compiled"]["left"] for each in ("sgd", "adamw")] == [[], []]


@pytest.mark.parametrize("name", ["sgd, compiled", "adamw, compiled", "sgd, traced"])
def test_one_rank_loses_nothing_by_it(alone: tuple[Path, dict[str, Any]], name: str) -> None:
    narrow, wide = (_weights(alone[0], f"{name}{rest}") for rest in ("", ", fp32"))
    for mine, theirs in zip(narrow, wide, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.exhaustive
def test_ranks_that_cannot_sum_bfloat16_sum_float32_as_ever(together: tuple[Path, list[dict[str, Any]]]) -> None:
    out, facts = together
    for rank, found in enumerate(facts):
        assert found["sums bfloat16"] is False
        assert set(found["here"]["summed"]) == {"float32"}
        for mine, theirs in zip(_weights(out, "here", rank), _weights(out, "here, fp32"), strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.exhaustive
def test_ranks_that_can_sum_it_in_calls_of_one_type_each(together: tuple[Path, list[dict[str, Any]]]) -> None:
    """NCCL's part is played by a gathering of the bits: two vectors of small gradients and the large kernel travel.
    SGD's momentum after the first step is the mean gradient times the rate."""
    out, facts = together
    exactly = _weights(out, "here, fp32")
    for rank, found in enumerate(facts):
        assert found["as on GPUs"]["left"] == COMPUTED
        assert sorted(found["as on GPUs"]["summed"]) == ["bfloat16", "bfloat16", "float32"]
        for kind, mine, exact in zip(COMPUTED, _means(_weights(out, "as on GPUs", rank)), _means(exactly), strict=True):
            np.testing.assert_allclose(mine, exact, rtol=2**-8 if kind == "bfloat16" else 0)
        assert np.any(_means(_weights(out, "as on GPUs", rank))[0] != _means(exactly)[0])  # rounded once more
    for name in ("as on GPUs", "as on GPUs, four steps"):
        for first, second in zip(_weights(out, name, 0), _weights(out, name, 1), strict=True):
            np.testing.assert_array_equal(first, second)


def _means(values: list[np.ndarray]) -> list[np.ndarray]:
    return values[-len(COMPUTED) :]


@pytest.mark.exhaustive
def test_a_factor_before_the_sum_keeps_float32(together: tuple[Path, list[dict[str, Any]]]) -> None:
    assert set(together[1][0]["as on GPUs, divided before"]["summed"]) == {"float32"}


def test_a_gradient_is_followed_to_its_cast_and_a_sum_of_casts_is_none() -> None:
    import tensorflow as tf

    from ringscope.ring.gradients.types import as_computed

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def several(narrow: Any) -> list[Any]:
        cast = tf.cast(narrow, tf.float32)
        half = tf.cast(tf.cast(narrow, tf.float16), tf.float32)
        both = tf.identity_n([half, tf.stop_gradient(cast)])
        given = [cast, tf.reshape(both[1], [3, 2]), both[0], tf.add_n([cast, cast]), tf.transpose(cast), narrow]
        return [as_computed(each) for each in given]

    narrow = tf.cast(tf.random.normal([2, 3]), tf.bfloat16)
    found = several(narrow)
    assert [each.dtype.name for each in found] == ["bfloat16"] * 2 + ["float32"] * 3 + ["bfloat16"]
    assert [each.shape.as_list() for each in found[:2]] == [[2, 3], [3, 2]]
    assert bool(tf.reduce_all(tf.reshape(found[1], [2, 3]) == narrow))
    assert as_computed(None) is None and as_computed(narrow) is narrow
