"""Every strategy trains what it says: real processes on logical CPUs, against one device on the joined batch.

They alone catch a strategy that trains to other weights than one device.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.doctor import equality
from harness.training import combinations
from profiles.runs.records import Cell
from profiles.runs.strategies import OWN_SETTINGS, STRATEGIES
from profiles.scaling.rows import bubble_share
from tests.harness.running import environment, prepared, run_python

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = pytest.mark.train

MLP = Cell("mlp", ranks=2, per_rank_batch=12, steps=8, warmup=0)
# What one process trains on several devices.
ONE_PROCESS = {
    "mirrored": replace(MLP, strategy="mirrored"),
    "replicas": replace(MLP, strategy="replicas"),
    "replicas, Adam": replace(MLP, strategy="replicas", options=(("optimizer", "adam"),)),
    "split": replace(MLP, strategy="split"),
    "split, one stage": replace(MLP, strategy="split", ranks=1),
    "split, micro-batches": replace(MLP, strategy="split", micro_batches=4, feed="numpy"),
    "split, batch normalisation and dropout": replace(
        MLP, strategy="split", model="cnn_cifar", steps=3, feed="staging"
    ),
}
SHARDED = {
    "sharded": replace(MLP, strategy="sharded"),
    "sharded, Adam, compiled": replace(MLP, strategy="sharded", options=(("optimizer", "adam"),), step="compiled"),
}
# Gradients rounded to float16 before they are summed: as far from one device as Horovod's own.
NARROWED = {"sharded, gradients as fp16": replace(MLP, strategy="sharded", compression="fp16")}
BY_MPI = {f"{name}, by MPI": replace(cell, seed=1) for name, cell in (SHARDED | NARROWED).items()}
# What two processes train: the first starts TensorFlow's own service, which has to come before anything else.
TWO = {
    "multiworker": replace(MLP, strategy="multiworker"),
    **SHARDED,
    **NARROWED,
    "hybrid": replace(MLP, strategy="hybrid", ranks=4, per_rank_batch=6),
    "hybrid, micro-batches": replace(MLP, strategy="hybrid", ranks=4, per_rank_batch=6, micro_batches=3),
}
NARROWED |= {name: cell for name, cell in BY_MPI.items() if cell.compression != "none"}
RANKS = TWO | BY_MPI


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trained")


@pytest.fixture(scope="module")
def one_process(out: Path) -> dict[str, equality.Equality]:
    """What came of the cells of one process, which share a start with what they are held against."""
    alone = {name: equality.on_one_device(cell) for name, cell in ONE_PROCESS.items()}
    equality.run([*ONE_PROCESS.values(), *dict.fromkeys(alone.values())], prepared(), out, env=environment())
    return {name: equality.compare(cell, out / cell.id, out / alone[name].id) for name, cell in ONE_PROCESS.items()}


@pytest.fixture(scope="module")
def ranks(out: Path) -> dict[str, equality.Equality]:
    """The same of two processes, under Gloo and MPI."""
    alone = {name: equality.on_one_device(cell) for name, cell in RANKS.items()}
    equality.run(list(dict.fromkeys(alone.values())), prepared(), out, env=environment())
    equality.run(list(TWO.values()), prepared("gloo"), out, env=environment())
    equality.run(list(BY_MPI.values()), prepared("mpirun"), out / "mpi", env=environment())
    places = {name: out / "mpi" if name in BY_MPI else out for name in RANKS}
    return {name: equality.compare(cell, places[name] / cell.id, out / alone[name].id) for name, cell in RANKS.items()}


def holds(found: equality.Equality) -> bool:
    return found.max_difference <= equality.TOLERANCE and found.trainable_bit_equal


@pytest.mark.ci
@pytest.mark.parametrize("name", ONE_PROCESS)
def test_one_process_on_several_devices_ends_in_the_weights_of_one(
    one_process: dict[str, equality.Equality], name: str
) -> None:
    assert holds(one_process[name])


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [name for name in RANKS if name not in NARROWED])
def test_two_processes_end_in_the_weights_of_one_device(ranks: dict[str, equality.Equality], name: str) -> None:
    assert holds(ranks[name])


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NARROWED)
def test_narrowed_gradients_leave_ranks_equal_and_near_one_device(
    ranks: dict[str, equality.Equality], name: str
) -> None:
    found = ranks[name]
    assert equality.TOLERANCE / 1000 < found.max_difference < 1e-4  # they were rounded, and only that
    assert found.trainable_bit_equal


@pytest.fixture(scope="module")
def pieces() -> dict[str, Any]:
    done = run_python(str(Path(__file__).parent / "scripts" / "pieces.py"), prefix=prepared())
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.ci
def test_stages_give_the_outputs_and_gradients_of_the_whole_model(pieces: dict[str, Any]) -> None:
    for name, found in pieces["models"].items():
        assert found["outputs"] < 1e-6 and found["gradients"] < 1e-6, name


@pytest.mark.ci
def test_the_weights_of_a_stage_lie_on_its_device(pieces: dict[str, Any]) -> None:
    found = pieces["models"]["mlp 4 x 3"]
    assert [[name[-5:] for name in places] for places in found["places"]] == [["CPU:0"], ["CPU:1"], ["CPU:2"]]
    assert sum(found["parameters"]) == 256 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10


@pytest.mark.ci
def test_the_update_of_a_stage_is_computed_on_its_device(pieces: dict[str, Any]) -> None:
    roots, (first, last) = pieces["updated_on"]["roots"], pieces["updated_on"]["variables"]
    assert roots == {"CPU:0": roots["CPU:0"], "CPU:1": roots["CPU:0"] * last // first} and roots["CPU:0"] % first == 0


@pytest.mark.ci
def test_a_pipeline_stands_still_for_the_share_of_the_formula(pieces: dict[str, Any]) -> None:
    """In turns that are counted: stages have worked at once wherever the schedule says so."""
    seen = []
    for one in pieces["pipelines"]:
        told = one["pipeline"]
        count, parts = len(told["stage_ns"]), told["micro_batches"]
        assert one["taken"] == dict.fromkeys(("there", "back"), list(range(parts + count - 1)))
        assert min(told["stage_ns"]) >= 2 * pieces["sleep_s"] * 1e9  # there and back
        in_turns = {"micro_batches": parts, "stage_ns": [2] * count}
        share = bubble_share([in_turns], sum(map(len, one["taken"].values())))
        assert share == pytest.approx((count - 1) / (parts + count - 1))
        assert told["transfer_bytes_per_step"] == (count - 1) * parts * 4 * 2  # a float32 there, and its gradient back
        seen.append((parts, count))
    assert seen == [(parts, count) for count in (2, 3) for parts in (1, 2, 4)]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_setting_that_a_strategy_does_not_heed_is_refused(strategy: str) -> None:
    spread = STRATEGIES[strategy]
    feed = "prefetch" if "prefetch" in spread.feeds else spread.feeds[0]
    cell = Cell("mlp", 2, 8, strategy=strategy, feed=feed, step=spread.steps[0])
    combinations.check(cell, gpus=0)
    other = {"compression": "fp16", "aggregate": 2, "op": "adasum", "micro_batches": 2, "stages": 1}
    other |= {"fusion_mb": 64, "cycle_us": 500, "autotune": "on"}
    for name in OWN_SETTINGS:
        asked = replace(cell, **{name: other[name]})
        if name in spread.heeds:
            combinations.check(asked, gpus=0)
        else:
            with pytest.raises(
                combinations.Unsupported, match=f"--{name.replace('_', '-')} does not work with --strategy {strategy};"
            ):
                combinations.check(asked, gpus=0)
    for step in {"fit", "compiled"} - {*spread.steps}:
        with pytest.raises(combinations.Unsupported, match=f"{strategy} works with --step {cell.step} and the feeds"):
            combinations.check(replace(cell, step=step), gpus=0)


@pytest.mark.ci
def test_staleness_is_the_updates_that_others_made_meanwhile() -> None:
    """One worker holds its update back until the other has made three: by hand, 3 for it and 0 for each of those."""
    done = run_python(str(Path(__file__).parent / "scripts" / "stale.py"), prefix=prepared())
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert sorted(zip(found["workers"], found["staleness"], strict=True)) == [(0, 3), (1, 0), (1, 0), (1, 0)]
    assert found["updates"] == 4
    # d loss / d kernel = d loss / d bias = 1 for every update, whatever it was made of: 1 - 4 x 0.5 and 0 - 4 x 0.5.
    assert found["weights"] == [-1.0, -2.0]
