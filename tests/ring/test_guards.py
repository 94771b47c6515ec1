"""What would train wrongly in silence, or raise where Keras alone trains, asked of two ranks (scripts/guards.py).

They alone catch a guard that says nothing on real ranks, or speaks without a cause.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.harness.running import prepared, run_python
from tests.ring import SCRIPTS, from_ranks

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.beside, pytest.mark.exhaustive]


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    out = tmp_path_factory.mktemp("guards")
    done = run_python(str(SCRIPTS / "guards.py"), str(out), prefix=prepared("gloo"))
    assert (out / "rank0.json").exists(), done.stdout + done.stderr
    return from_ranks(out)


def test_data_is_drawn_alike_and_noise_apart(facts: list[dict[str, Any]]) -> None:
    assert facts[0]["permutation"] == facts[1]["permutation"]
    assert facts[0]["shuffle"] == facts[1]["shuffle"]
    for one, other in zip(facts[0]["noise"], facts[1]["noise"], strict=True):
        assert one != other


def test_generators_are_left_alone_where_no_seed_is_wanted(facts: list[dict[str, Any]]) -> None:
    assert all(fact["left alone"] for fact in facts)


def test_noise_is_apart_and_layers_begin_as_without_ring_once_the_session_is_cleared(
    facts: list[dict[str, Any]],
) -> None:
    one, other = (fact["noise after a cleared session"] for fact in facts)
    assert all(mine != theirs for mine, theirs in zip(one, other, strict=True))
    assert all(fact["numbers after a cleared session"] for fact in facts)


def test_of_much_data_rows_at_fixed_places_are_compared_the_last_one_too(facts: list[dict[str, Any]]) -> None:
    assert facts[0]["told of much"] == [True, False]


@pytest.mark.parametrize("step", ["fit", "compiled"])
def test_noise_within_a_train_step_is_each_ranks_own_though_all_set_one_seed(
    facts: list[dict[str, Any]], step: str
) -> None:
    steps = list(zip(*(fact[f"noise of a step, {step}"] for fact in facts), strict=True))
    assert len(steps) == 2
    for first, second in steps:
        assert all(mine != theirs for mine, theirs in zip(first, second, strict=True))


def test_data_that_may_be_augmented_at_random_is_warned_of_once(facts: list[dict[str, Any]]) -> None:
    (said,) = facts[0]["warned"]
    assert said.startswith("the first element of source 0 of x differs between rank 0 and rank 1")
    assert not facts[1]["warned"]


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("another order", "x differs between rank 0 and rank 1"),
        ("another vocabulary", "the vocabulary of layer"),
        ("an unequal source", "source 0 of x differs"),
        ("cut by shard()", "remove x's shard(...), or call fit(..., shard=False)"),
        ("cut by shard(), its own share", "no error"),
        ("assigned by hand", "kernel differs between rank 0 and rank 1 after step 3"),
        ("changed on one rank late", "kernel differs between rank 0 and rank 1 after epoch 1"),
        ("another optimizer", "kernel differs between rank 0 and rank 1 after step 3"),
        ("another type", "the element_spec of x differs"),
        ("another length", "the number of batches of x differs"),
        ("made by a generator", "no error"),
        ("a generator", "a generator cannot be split between ranks"),
        ("an iterator", "Unrecognized data type"),
        ("lists", "Unrecognized data type"),
        ("one optimizer, two models", "distributed already"),
        ("hvd.SyncBatchNormalization", "use keras.layers.BatchNormalization(synchronized=True)"),
        ("hvd.DistributedOptimizer", "remove hvd.DistributedOptimizer"),
        ("hvd.callbacks", "remove hvd.BroadcastGlobalVariablesCallback"),
        ("hvd.load_model", "use keras.models.load_model"),
        ("hvd's checkpoint", "remove hvd.BestModelCheckpoint"),
        ("hvd's elastic state of a model", "remove hvd.elastic.TensorFlowKerasState"),
        ("hvd.keras's elastic state", "remove hvd.elastic.TensorFlowKerasState"),
        ("hvd.broadcast_global_variables", "remove hvd.broadcast_global_variables"),
        ("hvd.broadcast_variables", "remove hvd.broadcast_variables"),
        ("adasum", "Gloo has no Adasum"),
        ("noise that XLA draws", "the step draws random numbers by tf.random (RandomStandardNormal)"),
        ("hvd.elastic.run", "ring.state(model, ...) keeps that of your own loop"),
        ("hvd's elastic state", "remove hvd.elastic.TensorFlowState"),
        ("of torch", "Keras computes with torch here, and ring trains Keras on TensorFlow; set KERAS_BACKEND"),
        ("of another kind", "Dense is not a Keras 3 model"),
        ("bf16 of a sum", "bf16 is for averages, not for sum"),
        ("a metric that is no sum", "metric 'product' begins at 1"),
        ("a metric of the largest, fit", "metric 'largest' keeps no sum in 'kept'"),
        ("a metric of the largest, compiled", "metric 'largest' keeps no sum in 'kept'"),
        ("a metric of the last, fit", "metric 'last' keeps no sum in 'kept'"),
        ("a metric of the last, compiled", "metric 'last' keeps no sum in 'kept'"),
        ("a metric of the largest, evaluated", "metric 'largest' keeps no sum in 'kept'"),
        ("a metric of the noisy, fit", "no error"),
        ("a metric of the total, fit", "no error"),
        ("a metric of the total, compiled", "no error"),
        ("weights used after the update, fit", "no error"),
        ("weights used after the update, compiled", "no error"),
        ("eager and compiled", "the model runs eagerly"),
        ("within a strategy", "within the scope of tf.distribute.MirroredStrategy"),
        ("strings, compiled", "a batch holds strings, which XLA does not support"),
        ("another order, its own share", "no error"),
        ("the optimizer of a part", "no error"),
    ],
)
def test_what_cannot_be_right_is_refused_and_nothing_else(facts: list[dict[str, Any]], what: str, says: str) -> None:
    assert all(says in fact[what] for fact in facts)


@pytest.mark.parametrize(
    "what",
    [
        "the optimizer of a part, weights",
        "sparse",
        "tensorboard",
        "otherwise named, rows",
        *(
            f"{name}, {step}"
            for name in (
                "joining losses",
                "scipy",
                "built by its shape",
                "TensorFlow's variables",
                "unfrozen",
                "sum",
                "predivided",
                "dense",
                "average",
                "otherwise named",
            )
            for step in ("fit", "compiled")
        ),
    ],
)
def test_ranks_end_alike(facts: list[dict[str, Any]], what: str) -> None:
    assert facts[0][what] == facts[1][what]
    assert np.all(np.isfinite(facts[0][what]))


@pytest.mark.parametrize("step", ["fit", "compiled"])
def test_dividing_before_the_sum_and_dense_exchanges_change_nothing(facts: list[dict[str, Any]], step: str) -> None:
    for name in ("predivided", "dense"):
        assert np.allclose(facts[0][f"{name}, {step}"], facts[0][f"average, {step}"], atol=1e-5)
    assert not np.allclose(facts[0][f"sum, {step}"], facts[0][f"average, {step}"], atol=1e-5)


def test_a_backup_of_rank_0_goes_to_all(facts: list[dict[str, Any]]) -> None:
    for fact in facts:
        assert [fact["backup of 2"][0], fact["backup of 4"][0]] == [[0, 1], [2, 3]]
    assert facts[0]["backup of 4"] == facts[1]["backup of 4"]


def test_rank_0_may_evaluate_alone(facts: list[dict[str, Any]]) -> None:
    assert facts[0]["evaluated alone"] > 0


def test_arrays_of_unlike_lengths_are_refused_as_keras_refuses_them(facts: list[dict[str, Any]]) -> None:
    for fact in facts:
        assert len(fact["unlike lengths"]) == 6
        for what, (keras_says, ring_says) in fact["unlike lengths"].items():
            assert "Data cardinality is ambiguous" in keras_says, what
            assert ring_says == keras_says, what


def test_the_rate_warms_up_over_epochs_and_then_a_callback_may_lower_it(facts: list[dict[str, Any]]) -> None:
    warm = [0.1 + 0.1 * step / 8 for step in range(8)]  # 64 samples by 8 on 2 ranks: 4 steps in each of 2 epochs
    for fact in facts:
        assert fact["rates while warming up"] == pytest.approx([*warm, *[0.02] * 4, *[0.002] * 4])


@pytest.mark.parametrize("step", ["fit", "compiled"])
def test_losses_that_gradients_averaged_are_not_those_of_are_named_once_and_no_other(
    facts: list[dict[str, Any]], step: str
) -> None:
    said = facts[0]["said"][step]
    assert [line.split(" is not a mean")[0] for line in said if "'spread" not in line] == [
        f"ring: loss {name!r}" for name in ("contrastive",)
    ]
    assert any("the loss that layer 'spread" in line for line in said)
    assert not facts[1]["said"][step]


OWN_LOSSES = {
    "Pairs": "not a mean over samples",
    "Beside": "",
    "Around": "",
    "Opaque": "could not try",
    "TakenByHand": "",
    "ComparedByHand": "ComparedByHand.train_step computes its loss by itself",
    "ByKeras": "",
    "ComparedBeside": "ComparedBeside.train_step computes its loss by itself",
    "Clips": "Clips.train_step changes gradients",
    "ScalesAndAdds": "",
}


@pytest.mark.parametrize(
    ("kind", "step"), [*((kind, step) for kind in OWN_LOSSES for step in ("fit", "compiled")), ("Everybodys", "fit")]
)
def test_a_loss_that_a_model_takes_itself_is_named_where_it_is_not_that_of_the_joined_batch(
    facts: list[dict[str, Any]], kind: str, step: str
) -> None:
    one, other = (fact["said of models"][f"{kind}, {step}"] for fact in facts)
    assert other == []
    wanted = OWN_LOSSES.get(kind, "could not try")  # what exchanges would wait for a rank that tries nothing
    assert len(one) == bool(wanted)
    assert all(wanted in line for line in one)


@pytest.mark.parametrize("step", ["fit", "compiled"])
def test_a_loop_of_the_scripts_own_whose_loss_ring_does_not_see_is_named_once(
    facts: list[dict[str, Any]], step: str
) -> None:
    assert [fact["said of a loop"][step] for fact in facts] == [[0, 1], [0, 0]]


def test_what_a_layer_of_ones_own_keeps_is_named_before_it_is_averaged(facts: list[dict[str, Any]]) -> None:
    (line,) = facts[0]["kept by a layer"]
    assert "most" in line
    assert "moving_" not in line  # of batch normalisation: averages
    assert facts[1]["kept by a layer"] == []


def test_a_loop_without_distribute_is_named_once_and_no_other(facts: list[dict[str, Any]]) -> None:
    first, second = (fact["optimizers of loops"] for fact in facts)
    (line,) = first.pop("forgotten")
    assert "each rank trains its own copy" in line
    assert second.pop("forgotten") == []
    assert (
        first == second == {name: [] for name in ("scaled", "distributed", "averaged by hand", "alone", "named by fit")}
    )


@pytest.mark.parametrize("name", ["cosine", "polynomial", "pieces", "own", "exponential", "restarts"])
def test_a_rate_whose_schedule_was_made_for_the_steps_of_one_rank_is_named(
    facts: list[dict[str, Any]], name: str
) -> None:
    ends = name not in ("exponential", "restarts")
    for steps in (8, 16, 64):
        first, second = (fact[f"{name} of {steps} steps"] for fact in facts)
        assert len(first) == (ends and steps == 2 * 8)
        assert all("until about step 16, and fit ends at step 8," in line for line in first)
        assert second == []


@pytest.mark.parametrize("step", ["fit", "compiled"])
def test_counts_of_a_layer_that_are_those_of_one_rank_are_named(facts: list[dict[str, Any]], step: str) -> None:
    first, second = (fact[f"counted by a layer, {step}"] for fact in facts)
    (line,) = first["lines"]
    assert "/samples" in line and "/above" in line
    assert "/steps" not in line and "/everybodys" not in line
    assert second["lines"] == []
    for counted in (first, second):
        assert counted["steps"] * 8 == counted["samples"] > 8
        assert counted["over all ranks"] == first["samples"] + second["samples"]


def test_a_callback_of_the_scripts_own_that_reads_a_ranks_own_logs_is_named_once(facts: list[dict[str, Any]]) -> None:
    (line,) = facts[0]["read logs of a batch"]
    assert "the callback Reads" in line
    assert facts[1]["read logs of a batch"] == []


def test_weights_that_have_parted_before_fit_are_said_to_go_on_with_rank_0s(facts: list[dict[str, Any]]) -> None:
    (line,) = facts[0]["parted before fit"]
    assert "between rank 0 and rank 1" in line
    assert facts[1]["parted before fit"] == []


def test_workers_of_all_ranks_that_are_more_than_the_cores_are_named(facts: list[dict[str, Any]]) -> None:
    line = facts[0]["more workers than cores"][-1]
    assert "2 ranks of this host with 200 data-loading workers each" in line
    assert facts[1]["more workers than cores"] == []
