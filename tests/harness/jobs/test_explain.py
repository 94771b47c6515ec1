"""The launches after a sweep that explain it: which, for how long, what becomes of their faults; and real ranks."""

from __future__ import annotations

import importlib.util
import json
import lzma
import os
import shutil
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.jobs import explain
from harness.jobs.explain import SHARE, Budget, planned
from harness.jobs.sweep import How
from harness.launch.profilers import Profiler
from profiles.explaining.explained import Explained, told
from profiles.runs.records import Cell, read_runs
from profiles.scaling import run_directory
from tests.harness.running import DRIVE, PATIENCE_S, ROOT, carrying, named, wait_until
from tests.profiles.explaining.test_explained import write
from tests.recordings import DATA

ONE = Cell("mlp", 1, 8, steps=10)
TWO = replace(ONE, ranks=2)
ALONE = replace(TWO, strategy="independent")
MPIRUN = Path(sys.executable).with_name("mpirun")
needs_mpirun = pytest.mark.skipif(
    not (MPIRUN.exists() or shutil.which("mpirun")), reason="no mpirun: pip install '.[train-cpu]'"
)
needs_horovod = pytest.mark.skipif(
    importlib.util.find_spec("horovod") is None, reason="Horovod is not installed: scripts/build_horovod.py builds it"
)
# Two cells of stand-ins under mpirun, once each; a launch takes what starting Python takes.
SMALL = ["--models", "mlp", "--feeds", "prefetch", "--per-rank-batch", "8", "--ranks", "1,2", "--steps", "10"]


def start(mode: str, out: Path, mark: str, *options: str, **environ: str) -> subprocess.Popen[str]:
    given = os.environ | {"RINGSCOPE_TEST": mark, "PYTHONPATH": str(ROOT), "COLUMNS": "120"} | environ
    return subprocess.Popen(
        [sys.executable, str(DRIVE), mode, "--out", str(out), "--launcher", "mpirun", *options],
        env=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def bench(mode: str, out: Path, mark: str, *options: str, **environ: str) -> tuple[int, str]:
    process = start(mode, out, mark, *options, **environ)
    said, _ = process.communicate(timeout=PATIENCE_S)
    return process.returncode, " ".join(said.split())


def found_in(out: Path) -> list[Explained]:
    return told(run_directory.read(out), read_runs(out), out)[1]


# ---- which launches, and for how long


def test_without_a_gpu_the_most_ranks_are_launched_without_the_exchange(tmp_path: Path) -> None:
    other, others = replace(ONE, model="gru"), replace(TWO, model="gru")
    folder = write(tmp_path / "run", {ONE: [(1, 0)] * 3, TWO: [(2, 0)] * 3, other: [(1, 0)] * 3, others: [(2, 0)] * 3})
    tasks, usual_s = planned(run_directory.read(folder), How())
    gru = replace(others, strategy="independent")
    assert tasks == [(ALONE, 0), (gru, 0), (ALONE, 1), (gru, 1)]  # a first one of every model before a second
    assert usual_s == {ALONE: 9.0, gru: 9.0}


def test_with_gpus_both_ends_are_recorded_once_for_a_few_steps(tmp_path: Path) -> None:
    one, two = replace(ONE, steps=200), replace(TWO, steps=200)
    folder = write(tmp_path / "run", {one: [(1, 0)] * 3, two: [(2, 0)] * 3})
    tasks, usual_s = planned(run_directory.read(folder), How(profiler=Profiler("nsys", "nsys")))
    assert tasks == [(replace(one, steps=12), 0), (replace(two, steps=12), 0)]
    assert set(usual_s.values()) == {9.0 * explain.RECORDING_TAKES}


def test_launches_that_explain_take_at_most_a_third_of_all_the_time() -> None:
    timed_s = 100.0
    budget = Budget(timed_s * SHARE / (1 - SHARE), {ALONE: 12.0}, spent_s=20.0)
    allowed = [budget.allows((ALONE, number)) for number in range(4)]
    assert allowed == [True, True, False, False] and (budget.left_out, budget.untold) == (2, 0)
    assert budget.spent_s / (timed_s + budget.spent_s) <= SHARE
    assert all(Budget(None, {ALONE: 1e6}).allows((ALONE, number)) for number in range(3))


# ---- stand-ins for ranks, under a real mpirun


@needs_mpirun
def test_a_sweep_ends_in_what_explains_it_and_resume_repeats_nothing(tmp_path: Path, mark: str) -> None:
    out = tmp_path / "out"
    code, said = bench("ok", out, mark, *SMALL, "--launches", "1", "--explain")
    assert code == 0, said
    (found,) = found_in(out)
    assert found.method == "without-exchange"
    assert found.launches == {"one": 1, "many": 1, "without_exchange": 2}
    assert said.index("mlp: a step on 2 ranks takes") < said.index("Scaling of")
    times = {path: path.stat().st_mtime_ns for path in out.rglob("record.json")}
    code, said = bench("ok", out, mark, "--resume")
    assert code == 0 and "mlp: a step on 2 ranks takes" in said
    assert {path: path.stat().st_mtime_ns for path in out.rglob("record.json")} == times and len(times) == 4


def swept(out: Path, one_s: int, two_s: int) -> Path:
    """A run directory of a launch on one rank and one on two, which took so long."""
    folder = write(out, {ONE: [(10000, 0)], TWO: [(10000, 0)] * 2}, launches=1)
    for path in folder.rglob("record.json"):
        record = json.loads(path.read_text())
        record["finished_utc_ns"] = (
            record["started_utc_ns"] + (two_s if record["cell"]["ranks"] == 2 else one_s) * 10**9
        )
        path.write_text(json.dumps(record))
    shutil.rmtree(folder / TWO.id / "1")
    return folder


@pytest.mark.exhaustive
@needs_mpirun
def test_a_second_launch_that_does_not_fit_is_not_missed(tmp_path: Path, mark: str) -> None:
    """Half of 11 + 9 s is as much as one launch takes, and not two."""
    out = tmp_path / "out"
    swept(out, 11, 9)
    code, said = bench("ok", out, mark, "--resume")
    assert code == 0 and "left out" not in said and found_in(out)[0].launches["without_exchange"] == 1, said


@pytest.mark.exhaustive
@needs_mpirun
def test_what_would_take_more_than_a_third_is_left_out_and_done_when_asked(tmp_path: Path, mark: str) -> None:
    out = tmp_path / "out"
    swept(out, 1, 9)  # one launch of two ranks is more than half of all
    code, said = bench("ok", out, mark, "--resume")
    assert code == 0 and "2 launches were left out" in said, said
    assert "to explain the losses" not in said
    assert f"ringscope bench --resume --explain --out {out}" in said and found_in(out)[0].method is None
    code, said = bench("ok", out, mark, "--resume", "--explain")
    assert found_in(out)[0].launches["without_exchange"] == 2, said


@pytest.mark.exhaustive
@needs_mpirun
def test_no_explain_leaves_it_out_and_resume_remembers(tmp_path: Path, mark: str) -> None:
    out = tmp_path / "out"
    for options in ([*SMALL, "--launches", "1", "--no-explain"], ["--resume"]):
        code, said = bench("ok", out, mark, *options)
        assert code == 0 and "more than on one" not in said, said
    assert not (out / "explain").exists()


@pytest.mark.exhaustive
@needs_mpirun
def test_a_fault_of_such_a_launch_is_a_doubt_and_no_lost_sweep(tmp_path: Path, mark: str) -> None:
    out = tmp_path / "out"
    code, said = bench("unexplained", out, mark, *SMALL, "--launches", "1", "--explain", "--stall-limit", "20")
    assert code == 0, said  # of the sweep all cells are ok
    (found,) = found_in(out)
    assert {loss.cause for loss in found.losses if loss.ns is None} == {"exchange", "compute"}
    assert (
        "failed: rank 1 ended with code 1: ValueError: the loss is not a number" in said and "(not-explained)" in said
    )
    assert len(read_runs(out)) == 2


@pytest.mark.exhaustive
@needs_mpirun
def test_interrupted_while_explaining_it_goes_on_from_there(tmp_path: Path, mark: str) -> None:
    out = tmp_path / "out"
    sweep = start("explaining", out, mark, *SMALL, "--launches", "1", "--explain")  # with no end of its own

    def explaining() -> bool:
        return any('"train"' in path.read_text() for path in out.glob("explain/*/0/rank1.progress"))

    wait_until(explaining, PATIENCE_S, lambda: "it never explained")
    sweep.send_signal(signal.SIGINT)
    said, _ = sweep.communicate(timeout=PATIENCE_S)
    assert sweep.returncode == 130 and "continue with: ringscope bench --resume" in said
    assert all(run.record.status == "ok" for run in read_runs(out))
    code, said = bench("ok", out, mark, "--resume", "--explain")
    assert code == 0 and found_in(out)[0].launches["without_exchange"] == 2, said


# As nsys does: `profile ... -o STEM COMMAND` runs the command and leaves a report, `export` writes it as SQLite.
NSYS = """#!/bin/bash
if [ "$1" = export ]; then
    while [ "$1" != --output ]; do shift; done
    exec cp "${@: -1}" "$2"
fi
while [ "$1" != -o ]; do shift; done
stem=${2//%q\\{RINGSCOPE_RANK\\}/$RINGSCOPE_RANK}
shift 2
"$@" && cp "$RECORDED/$RINGSCOPE_SIZE.$RINGSCOPE_RANK.sqlite" "$stem.nsys-rep"
"""
RECORDED = {
    "1.0": "dense41m-1gpu-pinned-float32.rank0",
    "2.0": "dense41m-2gpu-pinned.rank0",
    "2.1": "dense41m-2gpu-pinned.rank1",
}


@pytest.mark.exhaustive
@needs_mpirun
@pytest.mark.parametrize("broken", [False, True])
def test_ranks_with_gpus_are_recorded_and_the_recordings_measured(broken: bool, tmp_path: Path, mark: str) -> None:
    """The profiler and its GPUs are not here: a program in its place hands out what they recorded."""
    program, out = tmp_path / "nsys", tmp_path / "out"
    program.write_text(NSYS.replace("$RECORDED", str(tmp_path)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    for name, recording in RECORDED.items():
        text = lzma.decompress((DATA / f"{recording}.sqlite.xz").read_bytes())
        (tmp_path / f"{name}.sqlite").write_bytes(b"no database" if broken and name == "2.1" else text)
    gpus = {"RINGSCOPE_TEST_DEVICE": "GPU-0", "RINGSCOPE_TEST_NSYS": str(program)}
    code, said = bench("ok", out, mark, *SMALL, "--launches", "1", "--explain", **gpus)
    assert code == 0, said
    (found,) = found_in(out)
    assert "to explain the losses, at most 2 more launches, recorded by nsys" in said
    if broken:
        assert found.method is None and "1 of 2 " in found.doubts[0].text
        return
    assert (found.method, found.profiler) == ("recordings", "nsys")
    assert found.recording and sorted(path.name for path in (out / found.recording).glob("*.sqlite")) == [
        "rank0.sqlite",
        "rank1.sqlite",
    ]
    assert sum(loss.ns or 0 for loss in found.losses) == found.step_after_ns - found.step_before_ns
    assert {"recorded-unlike-timed"} == {doubt.code for doubt in found.doubts}  # stand-ins train for 10 ms a step
    (out / found.recording / "measures.json").unlink()
    code, said = bench("ok", out, mark, "--resume", **gpus)  # measured anew, not recorded anew
    assert code == 0 and found_in(out)[0].method == "recordings", said


# It exports for as long as it is let, in a process of its own, and leaves what it has written.
ENDLESS = """#!/bin/bash
if [ "$1" = export ]; then
    while [ "$1" != --output ]; do shift; done
    echo half > "$2"
    sleep 600
fi
while [ "$1" != -o ]; do shift; done
stem=${2//%q\\{RINGSCOPE_RANK\\}/$RINGSCOPE_RANK}
shift 2
"$@" && echo report > "$stem.nsys-rep"
"""


@needs_mpirun
def test_interrupted_while_nsys_exports_nothing_of_it_lives_on(tmp_path: Path, mark: str) -> None:
    program, out = tmp_path / "nsys", tmp_path / "out"
    program.write_text(ENDLESS)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    for path in swept(out, 10, 10).rglob("rank*.jsonl"):
        path.write_text(path.read_text().replace('"device": null', '"device": "GPU-0"'))
    gpus = {"RINGSCOPE_TEST_DEVICE": "GPU-0", "RINGSCOPE_TEST_NSYS": str(program)}
    kept = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}

    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)):
        sweep = start("ok", out, mark, "--resume", "--explain", **gpus)
        wait_until(lambda: named("sleep", carrying(mark)), PATIENCE_S, lambda: "nothing was exported")
        sweep.send_signal(number)  # to this process alone
        said, _ = sweep.communicate(timeout=PATIENCE_S)  # less than the export would take
        assert sweep.returncode == code, said
        wait_until(lambda: not carrying(mark), PATIENCE_S, lambda: carrying(mark))
        assert {path: path.read_bytes() for path in kept if path.suffix in (".jsonl", ".json")}.items() <= kept.items()
        if code > 0:
            assert "continue with: ringscope bench --resume" in said and (out / "results.csv").exists()
            assert not list(out.rglob("*partial*")), said
    assert len(list(out.rglob("*.nsys-rep"))) == 3  # recorded once


# ---- real ranks


@needs_horovod
@pytest.mark.train
@pytest.mark.exhaustive
def test_two_ranks_of_a_small_model_lose_their_time_to_the_exchange(tmp_path: Path, mark: str) -> None:
    out = tmp_path / "out"
    environ = os.environ | {"RINGSCOPE_TEST": mark, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "-1"}
    # Horovod looks that seldom for what is no group of gradients, such as the shares that bf16 exchanges: no machine is
    # so busy that a step of this model computes for as long.
    environ["HOROVOD_CYCLE_TIME"] = "200"  # ms
    cell = ["--models", "mlp", "--feeds", "prefetch", "--per-rank-batch", "256", "--ranks", "1,2", "--steps", "12"]
    cell += ["--compression", "bf16", "--warmup", "3"]
    words = ["bench", "--out", str(out), *cell, "--launches", "1", "--explain"]
    done = subprocess.run(
        [sys.executable, "-m", "harness", *words], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = found_in(out)
    parts = {loss.cause: loss.ns or 0 for loss in found.losses}
    assert found.largest == "exchange" and found.finding and found.finding.code == "all-reduce-exposed", done.stdout
    assert "make batches faster" not in done.stdout

    def work_ns(run: Any) -> float:
        """Of a step without its wait, from the lines that the ranks wrote."""
        lines = [
            json.loads(line)
            for rank in range(run.record.cell.ranks)
            for line in (run.directory / f"rank{rank}.jsonl").read_text().splitlines()[1:-1]
        ]
        return sum(line["step_ns"] - line["input_wait_ns"] for line in lines) / len(lines)

    (timed,) = (work_ns(run) for run in read_runs(out) if run.record.cell.ranks == 2)
    alone = [run for run in read_runs(out / "explain") if run.record.cell.strategy == "independent"]
    assert len(alone) == 2
    assert min(abs(timed - work_ns(run) - parts["exchange"]) for run in alone) <= 1
