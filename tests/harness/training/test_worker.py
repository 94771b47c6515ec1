"""What a rank leaves behind: its record, its progress, or why it could not. Real processes."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from harness.doctor import equality
from harness.machine import ranks
from harness.training import worker
from profiles.ground.errors import RingscopeError
from profiles.runs.rank_records import RankRecord, read_rank
from profiles.runs.records import Cell
from tests.harness.running import environment, prepared, run_python

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = pytest.mark.train


UINT8 = Cell("mlp", ranks=1, per_rank_batch=8, steps=5, warmup=0, input_dtype="uint8")
FED = [replace(UINT8, feed=feed) for feed in ("numpy", "host", "prefetch", "device", "staging")]
LEARNS = Cell("mlp", ranks=1, per_rank_batch=32, warmup=3, data="generated", epoch_samples=512, until="accuracy=0.9")
UNSUPPORTED = [
    (Cell("no_such", ranks=1, per_rank_batch=8), "model 'no_such' is not one of mlp,"),
    (Cell("mlp", ranks=1, per_rank_batch=8, strategy="mirrored", step="compiled"), "mirrored works with --step fit"),
    (replace(LEARNS, data="synthetic"), "--until needs --data generated"),
    (replace(LEARNS, feed="resident"), "a feed with more than one batch"),
    (Cell("mlp", ranks=1, per_rank_batch=8, strategy="mirrored", rate_rule="warm-up"), "only ring warms"),
    (Cell("mlp", ranks=3, per_rank_batch=8), "the cell needs 3 processes, and the launcher started 1"),
]
# What single processes are given, by name: a cell, and further words of the worker.
SINGLE: dict[str, tuple[Cell, tuple[str, ...]]] = {
    "mirrored": (Cell("mlp", ranks=2, per_rank_batch=8, steps=3, warmup=1, strategy="mirrored"), ()),
    "recorded": (Cell("mlp", ranks=1, per_rank_batch=8, steps=3, warmup=1), ("--record", "tensorflow")),
    "until": (replace(LEARNS, per_rank_batch=64), ()),
    "never": (replace(LEARNS, per_rank_batch=64, until="accuracy=0.99", max_epochs=2), ()),
    "mirrored until": (replace(LEARNS, ranks=2, strategy="mirrored"), ()),
    # More than Linux lets a process reserve.
    "too large": (Cell("mlp", ranks=1, per_rank_batch=2**38, steps=1, warmup=0, feed="numpy"), ()),
    "without records": (Cell("cnn_cifar", ranks=1, per_rank_batch=2, data=str(Path(__file__).parent)), ()),
    **{says: (cell, ()) for cell, says in UNSUPPORTED},
}
Ended = tuple[subprocess.CompletedProcess[str], Path]


def words_for(directory: Path, cell: Cell) -> list[str]:
    (directory / "cell.json").write_text(json.dumps(cell.to_json()))
    return ["harness.training.worker", "--cell", str(directory / "cell.json"), "--out", str(directory)]


def records(directory: Path, done: subprocess.CompletedProcess[str]) -> list[RankRecord]:
    assert done.returncode == 0, done.stdout
    return [read_rank(directory / f"rank{rank}.jsonl") for rank in range(len(list(directory.glob("rank*.jsonl"))))]


def trained(directory: Path, cell: Cell, prefix: list[str]) -> list[RankRecord]:
    return records(directory, run_python("-m", *words_for(directory, cell), prefix=prefix))


class Single(dict[str, Ended]):
    """What became of those of SINGLE that are asked for, and where; each a process."""

    def __init__(self, out: Path) -> None:
        self._out = out

    def __missing__(self, name: str) -> Ended:
        cell, words = SINGLE[name]
        (place := self._out / name).mkdir()
        self[name] = run_python("-m", *words_for(place, cell), *words, prefix=prepared()), place
        return self[name]


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Single:
    return Single(tmp_path_factory.mktemp("single"))


@pytest.mark.parametrize("launcher", ["gloo", pytest.param("mpirun", marks=pytest.mark.ci)])
def test_two_ranks_leave_a_record_each_of_the_same_training(tmp_path: Path, launcher: str) -> None:
    cell = Cell("mlp", ranks=2, per_rank_batch=8, steps=5, warmup=2, step="compiled")
    ranks = trained(tmp_path, cell, prepared(launcher))
    assert [(record.rank, record.size, record.local_rank) for record in ranks] == [(0, 2, 0), (1, 2, 1)]
    for record in ranks:
        assert record.samples == 5 * 8 and len(record.step_ns) == len(record.input_wait_ns) == 5
        assert sum(record.step_ns) == record.window_end_ns - record.window_start_ns
        assert all(0 < wait < step for wait, step in zip(record.input_wait_ns, record.step_ns, strict=True))
        assert record.clock_offset_ns == 0  # one host
        assert record.device is None
    assert ranks[0].extra["weights_sha256"] == ranks[1].extra["weights_sha256"]
    # Both windows are of the same time.
    start, end = max(r.window_start_ns for r in ranks), min(r.window_end_ns for r in ranks)
    assert start < end
    assert json.loads((tmp_path / "rank1.progress").read_text())["phase"] == "done"


@pytest.mark.ci
def test_without_an_all_reduce_the_ranks_train_apart(tmp_path: Path) -> None:
    cell = Cell("mlp", ranks=2, per_rank_batch=8, steps=3, warmup=1, strategy="independent")
    first, second = trained(tmp_path, cell, prepared("gloo"))
    assert first.extra["weights_sha256"] != second.extra["weights_sha256"]


@pytest.mark.ci
def test_every_feed_trains_to_the_same_weights(tmp_path: Path) -> None:
    equality.run(FED, prepared(), tmp_path, env=environment())
    for cell in FED:
        assert equality.compare(cell, tmp_path / cell.id, tmp_path / FED[0].id).max_difference == 0


@pytest.mark.ci
def test_one_process_mirrors_the_model_over_several_devices(single: dict[str, Ended]) -> None:
    done, directory = single["mirrored"]
    (record,) = records(directory, done)
    assert (record.size, record.samples) == (1, 48)


@pytest.mark.ci
def test_tensorflows_profiler_writes_a_directory_per_rank(single: dict[str, Ended]) -> None:
    done, directory = single["recorded"]
    records(directory, done)
    assert list((directory / "rank0.xplane").rglob("*.xplane.pb"))


@pytest.mark.ci
def test_training_ends_with_the_epoch_that_reaches_the_accuracy(single: dict[str, Ended]) -> None:
    (record,) = records(single["until"][1], single["until"][0])
    told = record.extra["convergence"]
    reached = [epoch["validation_accuracy"] >= 0.9 for epoch in told["history"]]
    assert told["reached"] and reached == [False] * (told["epochs"] - 1) + [True]
    assert told["epochs"] > 1 and told["best_accuracy"] == 0.98  # what was learnt in the warm-up is forgotten
    assert [epoch["samples"] for epoch in told["history"]] == [512 * (i + 1) for i in range(told["epochs"])]
    assert len(record.step_ns) == 8 * told["epochs"] and record.samples == 512 * told["epochs"]
    assert told["history"][-1]["training_ns"] == sum(record.step_ns) == record.window_end_ns - record.window_start_ns
    (record,) = records(single["never"][1], single["never"][0])
    assert not record.extra["convergence"]["reached"] and len(record.extra["convergence"]["history"]) == 2


@pytest.mark.exhaustive
def test_replicas_and_ranks_learn_as_one_rank_on_the_joined_batch(single: dict[str, Ended], tmp_path: Path) -> None:
    (alone,) = records(single["until"][1], single["until"][0])
    (mirrored,) = records(single["mirrored until"][1], single["mirrored until"][0])
    both = trained(tmp_path, replace(LEARNS, ranks=2), prepared("gloo"))
    expected = [epoch["validation_accuracy"] for epoch in alone.extra["convergence"]["history"]]
    assert both[0].extra["weights_sha256"] == both[1].extra["weights_sha256"]
    for record in (mirrored, *both):
        told = [epoch["validation_accuracy"] for epoch in record.extra["convergence"]["history"]]
        assert told == pytest.approx(expected, abs=0.005)  # five of 1000 samples, by rounding


@pytest.mark.ci
def test_every_rank_tells_the_most_memory_that_it_held(single: dict[str, Ended]) -> None:
    (small,) = records(single["until"][1], single["until"][0])
    assert small.extra["memory_peak_bytes"] is None
    assert 100e6 < small.extra["host_memory_peak_bytes"] < psutil.virtual_memory().total


@pytest.mark.parametrize(("cell", "says"), UNSUPPORTED)
def test_a_cell_that_cannot_be_ends_as_unsupported_with_its_reason(
    single: dict[str, Ended], cell: Cell, says: str
) -> None:
    done, directory = single[says]
    assert done.returncode == 3
    error = json.loads((directory / "rank0.error.json").read_text())
    assert error["status"] == "unsupported" and says in error["reason"]
    assert not list(directory.glob("*.jsonl"))


def test_a_batch_that_memory_cannot_hold_ends_as_out_of_memory(single: dict[str, Ended]) -> None:
    done, directory = single["too large"]
    assert done.returncode == 1
    assert json.loads((directory / "rank0.error.json").read_text())["status"] == "oom"


def test_a_directory_without_records_fails_by_name(single: dict[str, Ended]) -> None:
    done, directory = single["without records"]
    assert done.returncode == 1
    error = json.loads((directory / "rank0.error.json").read_text())
    assert error["status"] == "failed" and "holds no *tfrecord* file" in error["reason"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MemoryError(), "oom"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate"), "oom"),
        (RingscopeError("no"), "failed"),
        (ValueError("no"), "failed"),
        (worker.Unsupported("no"), "unsupported"),
    ],
)
def test_an_error_has_a_status(error: Exception, status: str) -> None:
    assert worker.what_became(error)[0] == status


# As TensorFlow 2.21 writes them.
PLACE = """Graph execution error:

Detected at node gradient_tape/gru_1/CudnnRNNBackpropV3 defined at (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main

"""
ALLOCATING = "OOM when allocating tensor with shape[965541952] and type float on /device:GPU:0 by allocator GPU_0_bfc"
HINT = "Hint: If you want to see a list of allocated tensors when OOM happens, add report_tensor_allocations_upon_oom"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            f"{PLACE}{ALLOCATING}\n\t [[{{{{node gradient_tape/gru_1/CudnnRNNBackpropV3}}}}]]\n{HINT}\n"
            " [Op:__inference_one_step_519]",
            ALLOCATING,
        ),
        (
            f"{PLACE}2 root error(s) found.\n  (0) RESOURCE_EXHAUSTED:  {ALLOCATING}\n\t [[{{{{node x}}}}]]\n{HINT}\n"
            "\t [[x/_42]]\n  (1) CANCELLED:  by another\n0 successful operations.\n0 derived errors ignored. [Op:f]",
            f"(0) RESOURCE_EXHAUSTED:  {ALLOCATING}",
        ),
        (f"{PLACE}Out of memory while trying to allocate 8 bytes. [Op:f]", "Out of memory while trying to allocate"),
        (
            "Graph execution error:\n\nIncompatible shapes: [2] vs. [3]\n\t [[{{node add}}]] [Op:f]",
            "Incompatible shapes",
        ),
        ("Failed copying input tensor: Dst tensor is not initialized.\nsecond", "Failed copying input tensor"),
    ],
)
def test_an_error_is_told_by_the_line_that_says_what_happened(text: str, says: str) -> None:
    reason = worker.what_became(RuntimeError(text))[1]
    assert reason.removeprefix("RuntimeError: ").startswith(says)


def test_progress_is_one_whole_line_at_any_time(tmp_path: Path) -> None:
    progress = worker.Progress(tmp_path / "p")
    done = progress.phase("a long phase name", 1000)
    done(1000)
    progress.phase("x", 2)
    assert json.loads((tmp_path / "p").read_text()) == {"phase": "x", "step": 0, "of": 2}


def test_the_rank_is_known_before_horovod_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    assert ranks.rank() == 0
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    assert ranks.rank() == 3
