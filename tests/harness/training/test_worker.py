"""What a rank leaves behind: its record, its progress, or why it could not. Real processes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.doctor import equality
from harness.machine import ranks
from harness.training import worker
from profiles.errors import RingscopeError
from profiles.records import Cell, RankRecord, read_rank
from tests.harness.running import LAUNCHERS, environment, run_python

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = pytest.mark.train


def train(directory: Path, cell: Cell, *words: str, prefix: tuple[str, ...] = ()) -> Any:
    (directory / "cell.json").write_text(json.dumps(cell.to_json()))
    files = ("--cell", str(directory / "cell.json"), "--out", str(directory))
    return run_python("-m", "harness.training.worker", *files, *words, prefix=prefix)


def trained(directory: Path, cell: Cell, *words: str, prefix: tuple[str, ...] = ()) -> list[RankRecord]:
    done = train(directory, cell, *words, prefix=prefix)
    assert done.returncode == 0, done.stdout + done.stderr
    return [read_rank(directory / f"rank{rank}.jsonl") for rank in range(len(list(directory.glob("rank*.jsonl"))))]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_two_ranks_leave_a_record_each_of_the_same_training(tmp_path: Path, launcher: str) -> None:
    cell = Cell("mlp", ranks=2, per_rank_batch=8, steps=5, warmup=2, step="compiled")
    records = trained(tmp_path, cell, prefix=tuple(LAUNCHERS[launcher]))
    assert [(record.rank, record.size, record.local_rank) for record in records] == [(0, 2, 0), (1, 2, 1)]
    for record in records:
        assert record.samples == 5 * 8 and len(record.step_ns) == len(record.input_wait_ns) == 5
        assert sum(record.step_ns) == record.window_end_ns - record.window_start_ns
        assert all(0 < wait < step for wait, step in zip(record.input_wait_ns, record.step_ns, strict=True))
        assert record.clock_offset_ns == 0  # one host
        assert record.device is None
    assert records[0].extra["weights_sha256"] == records[1].extra["weights_sha256"]
    # Both windows are of the same time.
    start, end = max(r.window_start_ns for r in records), min(r.window_end_ns for r in records)
    assert start < end
    assert json.loads((tmp_path / "rank1.progress").read_text())["phase"] == "done"


def test_without_an_all_reduce_the_ranks_train_apart(tmp_path: Path) -> None:
    cell = Cell("mlp", ranks=2, per_rank_batch=8, steps=3, warmup=1, strategy="none")
    first, second = trained(tmp_path, cell, prefix=tuple(LAUNCHERS["gloo"]))
    assert first.extra["weights_sha256"] != second.extra["weights_sha256"]


def test_every_feed_trains_to_the_same_weights(tmp_path: Path) -> None:
    base = Cell("mlp", ranks=1, per_rank_batch=8, steps=5, warmup=0, input_dtype="uint8")
    feeds = ["numpy", "host", "prefetch", "device", "staging"]
    cells = [replace(base, feed=feed) for feed in feeds]
    equality.run(cells, [], tmp_path, env=environment())
    for cell in cells:
        assert equality.compare(cell, tmp_path / cell.id, tmp_path / cells[0].id).max_difference == 0


def test_one_process_mirrors_the_model_over_several_devices(tmp_path: Path) -> None:
    cell = Cell("mlp", ranks=2, per_rank_batch=8, steps=3, warmup=1, strategy="mirrored")
    (record,) = trained(tmp_path, cell)
    assert (record.size, record.samples) == (1, 48)


def test_tensorflows_profiler_writes_a_directory_per_rank(tmp_path: Path) -> None:
    cell = Cell("mlp", ranks=1, per_rank_batch=8, steps=3, warmup=1)
    trained(tmp_path, cell, "--record", "tensorflow")
    assert list((tmp_path / "rank0.xplane").rglob("*.xplane.pb"))


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        (Cell("no_such", ranks=1, per_rank_batch=8), "model 'no_such' is none of mlp,"),
        (Cell("mlp", ranks=1, per_rank_batch=8, strategy="mirrored", step="compiled"), "mirrored takes --step fit"),
        (Cell("mlp", ranks=3, per_rank_batch=8), "the cell wants 3 ranks, the launcher started 1"),
    ],
)
def test_a_cell_that_cannot_be_ends_as_unsupported_with_its_reason(tmp_path: Path, cell: Cell, says: str) -> None:
    done = train(tmp_path, cell)
    assert done.returncode == 3
    error = json.loads((tmp_path / "rank0.error.json").read_text())
    assert error["status"] == "unsupported" and says in error["reason"]
    assert not list(tmp_path.glob("*.jsonl"))


def test_a_batch_that_memory_cannot_hold_ends_as_out_of_memory(tmp_path: Path) -> None:
    done = train(tmp_path, Cell("vgg16", ranks=1, per_rank_batch=2_000_000, steps=1, warmup=0, feed="numpy"))
    assert done.returncode == 1
    assert json.loads((tmp_path / "rank0.error.json").read_text())["status"] == "oom"


def test_a_directory_without_records_fails_by_name(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    cell = Cell("cnn_cifar", ranks=1, per_rank_batch=2, data=str(tmp_path / "empty"))
    assert train(tmp_path, cell).returncode == 1
    error = json.loads((tmp_path / "rank0.error.json").read_text())
    assert error["status"] == "failed" and "holds no *tfrecord* file" in error["reason"]


def test_a_cudnn_cell_in_a_compiled_step_is_unsupported_on_gpus_only() -> None:
    for name in ("lstm", "gru"):
        cell = Cell(name, ranks=1, per_rank_batch=8, step="compiled")
        worker.check(cell, gpus=0)
        with pytest.raises(worker.Unsupported, match=f"take {name}_generic, or --step fit"):
            worker.check(cell, gpus=1)
        worker.check(Cell(f"{name}_generic", ranks=1, per_rank_batch=8, step="compiled"), gpus=1)


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
