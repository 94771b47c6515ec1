"""The collective seam, asked by two real ranks (scripts/facts.py)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.harness.running import run_in_turn
from tests.ring import SCRIPTS, from_ranks

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.beside]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("asked")


def asked(script: str, out: Path) -> list[dict[str, Any]]:
    """What each of two ranks wrote."""
    run_in_turn([[SCRIPTS / script, out]], "gloo")
    return from_ranks(out)


@pytest.fixture(scope="module")
def facts(directory: Path) -> list[dict[str, Any]]:
    return asked("facts.py", directory)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return asked("odd_facts.py", tmp_path_factory.mktemp("odd"))


def test_all_ranks_begin_with_the_weights_of_rank_0(odd: list[dict[str, Any]]) -> None:
    own, others = (fact["own weights"] for fact in odd)
    assert own[-2] != others[-2]
    assert [fact["distributed weights"] for fact in odd] == [own, own]


def test_gradients_logs_and_statistics_of_1_and_3_are_averaged(odd: list[dict[str, Any]]) -> None:
    for fact in odd:
        assert fact["gradients"] == dict.fromkeys(("none", "fp32", "fp16", "bf16"), [2.0] * 3)
        assert fact["logs"] == {"loss": 0.5, "accuracy": 0.5}
        assert fact["statistics"] == [[2.0] * 4] * 2


def test_an_optimizer_in_parts_of_the_ranks_is_the_whole_one(odd: list[dict[str, Any]]) -> None:
    for fact in odd:
        whole, parts = fact["optimizer whole"], fact["optimizer in parts"]
        for kind in ("weights", "state"):
            assert parts[kind] == odd[0]["optimizer in parts"][kind]
            assert [np.shape(each) for each in parts[kind]] == [np.shape(each) for each in whole[kind]]
            for one, other in zip(parts[kind], whole[kind], strict=True):
                np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("take", ["sum", "mean"])
def test_a_loss_of_the_models_own_trains_as_on_the_joined_batch(odd: list[dict[str, Any]], take: str) -> None:
    for fact in odd:
        found = fact[f"own {take}"]
        x, y = np.array(found["x"]), np.array(found["y"])
        errors = x @ np.ones(4) - y
        slope = 2 * x.T @ errors / (len(y) if take == "mean" else 1)
        np.testing.assert_allclose(np.ravel(found["weights"]), 1 - 0.001 * slope, rtol=1e-5)


@pytest.mark.ci
def test_the_cores_are_divided_between_the_ranks(facts: list[dict[str, Any]]) -> None:
    cores = len(os.sched_getaffinity(1))
    assert all(fact["threads"] >= 1 and 2 * fact["threads"] <= max(2, cores) for fact in facts)


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("compression", ["none", "fp32", "fp16", "bf16"])
def test_gradients_of_every_kind_are_averaged_in_their_order(
    facts: list[dict[str, Any]], compression: str, kind: str
) -> None:
    # 1s and 3s average to 2; of the sparse one row 3 is everybody's, rows 0 and 1 are one rank's alone.
    rows = [[0.5, 0.5], [1.5, 1.5], [0, 0], [2, 2], [0, 0]]
    for fact in facts:
        assert fact[f"gradients {compression}, {kind}"] == [[2.0] * 3, None, rows, [[2.0] * 7] * 2, True, [kind]]


@pytest.mark.ci
@pytest.mark.parametrize("step", ["fit", "compiled"])
def test_weights_that_horovod_cannot_sum_or_send_begin_and_end_alike(facts: list[dict[str, Any]], step: str) -> None:
    weights, kinds, change, predicted, own = facts[0][f"bfloat16 {step}"]
    assert facts[1][f"bfloat16 {step}"][0] == weights
    assert set(kinds) == {"bfloat16"} and change > 0.1
    for fact in facts:
        assert fact[f"bfloat16 {step}"][3] == predicted
    assert np.allclose(predicted, own, atol=2**-6)


@pytest.mark.ci
def test_gradients_averaged_eagerly_stay_on_their_device(facts: list[dict[str, Any]]) -> None:
    for fact in facts:
        assert fact["devices"] == {compression: ["CPU:1"] * 2 for compression in ("none", "fp32", "fp16", "bf16")}


@pytest.mark.ci
def test_logs_are_averaged_so_that_all_ranks_decide_alike(facts: list[dict[str, Any]]) -> None:
    assert facts[0]["logs"] == {"accuracy": 0.5, "loss": 0.5} == facts[1]["logs"]
    assert facts[0]["history"] == facts[1]["history"]
    assert set(facts[0]["history"]) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert [fact["epochs"] for fact in facts] == [2, 2]


@pytest.mark.ci
def test_moving_statistics_agree_and_frozen_weights_keep_their_bits(facts: list[dict[str, Any]]) -> None:
    assert facts[0]["statistics"] == facts[1]["statistics"]
    mean, variance = facts[0]["statistics"]
    assert np.any(np.array(mean) != 0) and np.any(np.array(variance) != 1)
    assert all(fact["frozen weights keep their bits"] for fact in facts)
    assert all(fact["averaged statistics"] == [[2.0] * 4] * 2 for fact in facts)


@pytest.mark.ci
def test_between_two_compiled_programs_one_vector_is_summed_where_they_run(facts: list[dict[str, Any]]) -> None:
    from ringscope.ring.exchange import IN_STREAM

    for fact in facts:
        (name,) = fact["exchanges"]["compiled, in halves"]
        assert IN_STREAM in name and not fact["exchanges"]["compiled"]
        assert fact["exchanges"]["fit"] and not any(IN_STREAM in name for name in fact["exchanges"]["fit"])


@pytest.mark.ci
def test_ranks_drop_different_units(facts: list[dict[str, Any]]) -> None:
    assert facts[0]["seeds"] and facts[0]["seeds"] != facts[1]["seeds"]


@pytest.mark.ci
def test_the_learning_rate_is_scaled_at_once_or_warms_up_linearly(facts: list[dict[str, Any]]) -> None:
    assert facts[0]["rate"] == pytest.approx(0.2)
    assert facts[0]["rates"] == pytest.approx([0.1, 0.125, 0.15, 0.175, 0.2, 0.2])
    assert facts[1]["rates"] == facts[0]["rates"]


@pytest.mark.ci
def test_seven_batches_are_three_steps_on_each_of_two_ranks(facts: list[dict[str, Any]]) -> None:
    assert [fact["steps"] for fact in facts] == [6, 6]  # of two epochs


@pytest.mark.ci
def test_only_rank_0_writes_checkpoints(directory: Path, facts: list[dict[str, Any]]) -> None:
    assert sorted(path.name for path in directory.glob("*.keras")) == ["from-rank0.keras"]


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("generator", "fit(..., shard=False)"),
        ("twice", "distributed already"),
        ("uncompiled", "model.compile(...) first"),
        ("compiled again", "call ring.distribute(model) again"),
        ("a sum as bf16", "bf16 is for averages"),
        ("step", "'fast'; choose one of auto, fit, compiled"),
    ],
)
def test_what_cannot_be_right_is_refused_with_the_remedy(odd: list[dict[str, Any]], what: str, says: str) -> None:
    assert all(says in fact[what] for fact in odd)


def test_a_model_compiled_again_trains_once_it_is_distributed_again(odd: list[dict[str, Any]]) -> None:
    assert [fact["steps after"] for fact in odd] == [4, 4]


def test_a_compiled_step_takes_the_loss_with_which_the_model_is_compiled_again(odd: list[dict[str, Any]]) -> None:
    assert [fact["moved by a loss of 0"] for fact in odd] == [False, False]


@pytest.mark.ci
@pytest.mark.parametrize("step", ["fit", "compiled"])
@pytest.mark.parametrize("kind", ["Functional", "Sequential"])
def test_a_step_is_traced_once(facts: list[dict[str, Any]], step: str, kind: str) -> None:
    assert [fact[f"traces {step} {kind}"] for fact in facts] == [1, 1]


@pytest.mark.ci
@pytest.mark.parametrize("step", ["fit", "compiled"])
def test_sparse_gradients_train_all_ranks_alike(facts: list[dict[str, Any]], step: str) -> None:
    assert facts[0][f"embedding {step}"] == facts[1][f"embedding {step}"]


@pytest.mark.parametrize("what", ["two optimizers", "train_on_batch", "the same optimizer again"])
def test_every_way_to_train_leaves_the_ranks_bit_equal(odd: list[dict[str, Any]], what: str) -> None:
    assert odd[0][what] == odd[1][what]


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("two optimizers, compiled", "use step='fit'"),
        ("groups, compiled", "overlap=True: always"),
        ("overlap, fit", "use groups=k"),
        ("overlap, aggregate", "leave out aggregate"),
        ("overlap, two optimizers", "works only with one optimizer, and this model has several"),
        ("train_on_batch, no weights", "call the model on a batch before ring.distribute(model)"),
        ("unequal steps", "rank 1 has 3 steps an epoch and rank 0 has 4: rank 0 would wait for ever"),
        ("unequal epochs", "rank 0 has 1 epochs and rank 1 has 2: rank 1 would wait for ever"),
        ("one validates", "validation_data's x is given on some ranks only"),
    ],
)
def test_what_would_train_ranks_apart_or_wait_for_ever_is_refused(
    odd: list[dict[str, Any]], what: str, says: str
) -> None:
    assert all(says in facts[what] for facts in odd)


def test_all_ranks_end_with_the_one_that_meets_a_nan(odd: list[dict[str, Any]]) -> None:
    assert [facts["steps to a NaN"] for facts in odd] == [1, 1]


def test_all_ranks_stop_after_the_epoch_where_one_would(odd: list[dict[str, Any]]) -> None:
    assert [facts["epochs"] for facts in odd] == [2, 2]


def test_shuffles_that_differ_between_ranks_are_refused(odd: list[dict[str, Any]]) -> None:
    # Another global seed on each rank, alone and beside the shuffle's own; one for all; none but that of ring.init.
    for facts in odd:
        assert ["the seed of a shuffle of x differs" in said for said in facts["shuffled"]] == [
            True,
            True,
            False,
            False,
        ]


@pytest.mark.ci
def test_a_data_set_of_unknown_length_is_followed_to_its_last_whole_group(facts: list[dict[str, Any]]) -> None:
    assert [fact["steps of an unknown length"] for fact in facts] == [3, 3]  # of 7 batches
