"""The grid, its order, the run directory and what a launch left behind: no process needed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import click
import pytest

from harness.jobs import bench, sweep
from harness.jobs.grid import FITS, Choices, grid, indivisible
from harness.jobs.options import Bench, Launch
from harness.jobs.run_directory import RunDirectory, check_space
from harness.processes.outcome import Outcome, judge
from harness.processes.supervise import Limits
from harness.training.models import MODELS
from harness.verbs import bench as verb_bench
from harness.verbs import options, train
from harness.verbs import record as verb_record
from profiles.cell import AXES, SETTINGS, Setting, setting
from profiles.errors import RingscopeError
from profiles.records import Cell, RankRecord, RunRecord, SweepRecord, write_rank
from tests.harness.running import ROOT

CELL = Cell("mlp", 2, 8, steps=3)


def test_the_grid_holds_every_combination_once() -> None:
    lists = {"ranks": (1, 2), "model": ("gru", "mlp"), "per_rank_batch": (8, 8, 16), "feed": ("prefetch", "device")}
    cells = grid(Choices(lists), gpus=0)
    assert len(cells) == len(set(cells)) == len({cell.id for cell in cells}) == 16


def test_without_a_gpu_the_default_is_small() -> None:
    cells = grid(Choices(), gpus=0)
    assert len(cells) <= 8
    assert {cell.ranks for cell in cells} == {1, 2}


@pytest.mark.parametrize(("gpus", "ranks"), [(1, {1}), (4, {1, 2, 4}), (6, {1, 2, 4, 6}), (8, {1, 2, 4, 8})])
def test_with_gpus_ranks_double_up_to_all_of_them(gpus: int, ranks: set[int]) -> None:
    assert {cell.ranks for cell in grid(Choices(), gpus=gpus)} == ranks


def test_a_cudnn_cell_is_not_compiled_unless_asked() -> None:
    assert {cell.step for cell in grid(Choices({"model": ("gru", "lstm")}), gpus=2)} == {"fit"}


def test_strong_scaling_shares_the_batch_and_refuses_what_does_not_divide() -> None:
    lists = {"ranks": (1, 2, 3), "model": ("mlp",), "feed": ("prefetch",), "per_rank_batch": (8,)}
    cells = grid(Choices(lists, scaling="strong"), gpus=0)
    assert [(cell.per_rank_batch, cell.global_batch) for cell in cells] == [(8, 8), (4, 8), (2, 8)]
    assert [indivisible(cell) is not None for cell in cells] == [False, False, True]


def choices_of(verb: click.Command, *words: str) -> Choices:
    """The grid that a verb makes of its command line."""
    return options.choices(verb.make_context("ringscope", list(words)).params)


def test_of_what_fits_the_machine_train_takes_the_first_cell_of_bench() -> None:
    single = grid(choices_of(train.command, "--model", "mlp"), gpus=0)
    many = grid(choices_of(verb_bench.command, "--models", "mlp", "--ranks", "1"), gpus=0)
    assert len(many) > 1
    assert single[0] == many[0]
    launch = Launch()
    assert bench.cells(Bench(Choices({"model": ("mlp",)}), launch, first_only=True), gpus=0) == single[:1]


def test_a_single_cell_is_as_its_options_say() -> None:
    words = [
        "--model",
        "gru",
        "-np",
        "3",
        "--per-rank-batch",
        "7",
        "--feed",
        "host",
        "--aggregate",
        "2",
        "--steps",
        "9",
    ]
    (cell,) = grid(choices_of(train.command, *words, "--step", "compiled"), gpus=2)
    assert (cell.model, cell.ranks, cell.per_rank_batch, cell.feed) == ("gru", 3, 7, "host")
    assert (cell.aggregate, cell.steps, cell.step) == (2, 9, "compiled")


def test_a_single_cell_takes_no_list() -> None:
    with pytest.raises(RingscopeError, match="--feed host,device: one only"):
        choices_of(train.command, "--model", "mlp", "--feed", "host,device")


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_setting_is_an_option_of_all_three_verbs(setting: Setting) -> None:
    for verb, listed in ((verb_bench.command, True), (train.command, False), (verb_record.command, False)):
        flags = {flag: parameter for parameter in verb.params for flag in parameter.opts}
        flag = f"--{setting.list_option if listed and setting.axis else setting.single_option}"
        assert (flag in flags) is not setting.derived
        if not setting.derived:
            assert flags[flag].name == setting.name


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_setting_and_its_values_are_documented(setting: Setting) -> None:
    docs = "\n".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    assert [word for word in (setting.name, *setting.choices) if f"`{word}`" not in docs] == []


@pytest.mark.parametrize("axis", [axis for axis in AXES if axis.choices], ids=lambda axis: axis.name)
def test_every_value_of_an_axis_makes_a_cell(axis: Setting) -> None:
    words = ["--models", "mlp", "--ranks", "2", "--feeds", "prefetch", f"--{axis.list_option}", ",".join(axis.choices)]
    cells = grid(choices_of(verb_bench.command, *words), gpus=0)
    assert tuple(getattr(cell, axis.name) for cell in cells) == axis.choices


def test_launches_are_interleaved_and_the_order_is_always_the_same() -> None:
    cells = grid(Choices({"ranks": (1, 2), "per_rank_batch": (8, 16)}), gpus=0)
    tasks = sweep.order(cells, 3)
    for number in range(3):
        block = tasks[number * len(cells) : (number + 1) * len(cells)]
        assert Counter(cell for cell, _ in block) == Counter(cells)
        assert {launch for _, launch in block} == {number}
    assert tasks == sweep.order(cells, 3)


@pytest.mark.parametrize("text", ["", "1,x", "0", "-1", "1.5"])
def test_counts_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(RingscopeError, match="--ranks"):
        choices_of(verb_bench.command, "--ranks", text)


@pytest.mark.train
def test_the_names_that_the_command_line_knows_are_those_of_the_worker() -> None:
    feeds = pytest.importorskip("harness.training.feeds")
    ring = pytest.importorskip("harness.ring")
    assert set(setting("feed").choices) == set(feeds.FEEDS)
    assert set(setting("step").choices) == set(ring.STEPS)
    assert set(setting("compression").choices) == set(ring.COMPRESSIONS)


def test_every_model_has_a_batch_that_fits() -> None:
    assert set(FITS) == set(MODELS)


def test_horovods_stall_shut_down_comes_before_ours_and_after_its_warning() -> None:
    for stall_s in (1, 2, 10, 180):
        env = sweep.stall_check(Limits(stall_s=stall_s))
        warn, end = int(env["HOROVOD_STALL_CHECK_TIME_SECONDS"]), int(env["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"])
        assert 0 < warn < end


# The run directory


def record(launch: int = 0, status: str = "interrupted") -> RunRecord:
    return RunRecord(CELL, launch, status, "", 1, 0, [], "mpirun", {})


def directory(path: Path) -> RunDirectory:
    return RunDirectory.create(path / "out", SweepRecord([CELL], 2, "mpirun"))


def write_ranks(folder: Path, count: int) -> None:
    for k in range(count):
        write_rank(folder / f"rank{k}.jsonl", RankRecord(k, 2, k, "a", None, 0, 30, 24, [10] * 3, [0] * 3))


def test_a_launch_cut_short_is_missing_and_what_it_left_is_kept(tmp_path: Path) -> None:
    runs = directory(tmp_path)
    folder = runs.begin(record())
    (folder / "rank0.log").write_text("half a story")
    assert sweep.missing(runs) == [(CELL, 0), (CELL, 1)]
    runs.begin(record())
    assert [path.read_text() for path in runs.path.rglob("rank0.log")] == ["half a story"]


def test_a_launch_whose_ranks_have_all_written_is_not_repeated(tmp_path: Path) -> None:
    runs = directory(tmp_path)
    write_ranks(runs.begin(record()), 2)
    assert sweep.missing(runs) == [(CELL, 1)]
    assert json.loads((runs.launch_dir(CELL, 0) / "record.json").read_text())["status"] == "ok"


def test_a_launch_with_one_rank_missing_is_repeated(tmp_path: Path) -> None:
    runs = directory(tmp_path)
    write_ranks(runs.begin(record()), 1)
    assert (CELL, 0) in sweep.missing(runs)


def test_a_failed_launch_is_repeated_only_when_asked(tmp_path: Path) -> None:
    runs = directory(tmp_path)
    runs.begin(record())
    runs.finish(record(), "failed", "for a test")
    assert sweep.missing(runs) == [(CELL, 1)]
    assert sweep.missing(runs, retry_failed=True) == [(CELL, 0), (CELL, 1)]


def test_a_new_sweep_does_not_write_over_an_old_one(tmp_path: Path) -> None:
    directory(tmp_path)
    with pytest.raises(RingscopeError, match="--resume"):
        directory(tmp_path)


def test_a_resumed_sweep_can_grow(tmp_path: Path) -> None:
    old = directory(tmp_path)
    old._lock.close()
    more = replace(CELL, ranks=1)
    grown = RunDirectory.resume(old.path, [CELL, more], launches=3)
    assert (grown.sweep.cells, grown.sweep.launches) == ([CELL, more], 3)
    assert len(sweep.missing(grown)) == 6


def test_a_full_disk_is_said_before_anything_is_begun(tmp_path: Path) -> None:
    with pytest.raises(RingscopeError, match="--resume"):
        check_space(tmp_path, need_bytes=10**18)


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RingscopeError, match="file/out: Not a directory"):
        RunDirectory.create(tmp_path / "file" / "out", SweepRecord([CELL], 2, "mpirun"))


# What became of a launch


def end(code: int | None = None, signal: int | None = None, oom_kills: int = 0) -> str:
    return json.dumps({"exit_code": code, "signal": signal, "oom_kills": oom_kills, "max_rss_bytes": 3 * 10**9})


def outcome(path: Path, *, code: int = 1, stopped: Outcome | None = None, remote: bool = False) -> Outcome:
    return judge(path, processes=2, exit_code=code, stopped=stopped, remote=remote)


def test_a_rank_that_the_kernel_killed_for_memory_is_out_of_memory(tmp_path: Path) -> None:
    (tmp_path / "rank1.end.json").write_text(end(signal=9, oom_kills=1))
    (tmp_path / "rank0.error.json").write_text('{"status": "failed", "reason": "HorovodInternalError: shut down"}')
    found = outcome(tmp_path)
    assert found == Outcome("oom", "rank 1 was killed by the kernel for memory at 3.0 GB")


def test_the_fault_wins_over_the_peers_that_tell_of_it(tmp_path: Path) -> None:
    (tmp_path / "rank0.error.json").write_text('{"status": "failed", "reason": "HorovodInternalError: shut down"}')
    (tmp_path / "rank1.error.json").write_text('{"status": "failed", "reason": "KeyError: 7"}')
    assert outcome(tmp_path) == Outcome("failed", "rank 1: KeyError: 7")


def test_a_host_that_cannot_be_reached_is_unreachable(tmp_path: Path) -> None:
    said = "ssh: connect to host b port 22: No route to host"
    (tmp_path / "launcher.log").write_text(f"...\n{said}\n")
    assert outcome(tmp_path, remote=True) == Outcome("unreachable", said)


def test_a_connection_refused_between_local_ranks_is_no_unreachable_host(tmp_path: Path) -> None:
    (tmp_path / "launcher.log").write_text("Connection refused\n")
    assert outcome(tmp_path).status == "failed"


def test_a_directory_that_a_host_does_not_see_is_said(tmp_path: Path) -> None:
    argv = [
        sys.executable,
        "-m",
        "harness.processes.keeper",
        "--rank",
        "--log-dir",
        str(tmp_path / "elsewhere"),
        "--",
        "true",
    ]
    said = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert said.returncode == 127
    (tmp_path / "launcher.log").write_text(f"[1]<stderr>:{said.stderr}Process 1 exit with status code 127.\n")
    found = outcome(tmp_path)
    assert found.status == "failed"
    assert found.reason.startswith(f"rank 0 does not see {tmp_path}/elsewhere") and "--out" in found.reason


def test_what_a_cell_cannot_do_is_unsupported(tmp_path: Path) -> None:
    (tmp_path / "rank0.error.json").write_text('{"status": "unsupported", "reason": "XLA cannot compile it"}')
    assert outcome(tmp_path) == Outcome("unsupported", "XLA cannot compile it")


def test_a_code_of_0_without_all_records_is_a_failure(tmp_path: Path) -> None:
    write_ranks(tmp_path, 1)
    assert outcome(tmp_path, code=0).status == "failed"
    write_ranks(tmp_path, 2)
    assert outcome(tmp_path, code=0) == Outcome("ok")


def test_records_that_could_not_be_fetched_are_said_with_the_host_and_the_way_out(tmp_path: Path) -> None:
    found = judge(tmp_path, processes=2, exit_code=0, stopped=None, remote=True, lost={"b": "tar: not found"})
    assert found.status == "failed"
    assert "b (tar: not found); name an --out that every host sees" in found.reason


def test_half_a_record_is_a_failure(tmp_path: Path) -> None:
    write_ranks(tmp_path, 2)
    whole = (tmp_path / "rank1.jsonl").read_text()
    (tmp_path / "rank1.jsonl").write_text(whole[: len(whole) // 2])
    assert outcome(tmp_path, code=0).status == "failed"


def test_without_tensorflow_a_sweep_ends_in_a_line_that_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RingscopeError, match="TensorFlow is not installed in .*; `make setup`"):
        verb_bench.command.main(["--models", "mlp", "--out", str(tmp_path / "out")], standalone_mode=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--models", ","], "--models: ',' names none; take some of mlp,"),
        (["--models", "mlp", "--hosts", ",,"], "hosts: ',,' names none"),
        (["--models", "mlp", "--data", "nowhere"], "nowhere: no such directory; name one of TFRecords"),
    ],
)
def test_an_option_that_says_nothing_or_leads_nowhere_is_refused_before_anything_is_begun(
    tmp_path: Path, options: list[str], says: str
) -> None:
    with pytest.raises(RingscopeError, match=says):
        verb_bench.command.main([*options, "--out", str(tmp_path / "out")], standalone_mode=False)
    assert not (tmp_path / "out").exists()


def test_more_ranks_than_memory_holds_are_refused_and_not_begun() -> None:
    refused = sweep.refusal(Cell("mlp", 10**6, 8), sweep.How(), {})
    assert refused is not None and refused.status == "unsupported"
    assert refused.reason.startswith("1000000 ranks want 0.3 GB each or more, here are ")
    assert sweep.refusal(Cell("mlp", 2, 8), sweep.How(), {}) is None
