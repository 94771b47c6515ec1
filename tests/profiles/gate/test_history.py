"""The history of a gate: what it keeps, what it judges by it, and that nothing in it is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from profiles.gate import exported, history
from profiles.gate.checks import BROKEN, HOLDS, UNJUDGED, Check
from profiles.gate.history import Run, from_text, judged_and_kept, run_of
from profiles.ground.errors import RingscopeError
from profiles.measuring.subject import Subject, load
from profiles.model import measures_json
from profiles.runs.records import Cell
from profiles.scaling.measure import Scaling
from profiles.scaling.rows import CellRow
from profiles.verbs.gate import command
from tests.made.hand import gpu, measures
from tests.recordings import DATA, ROOT

MS = 1_000_000


def run(step_ns: float, name: str = "NVIDIA H200", **ledger: int | None) -> Subject:
    one = gpu(step_ns=round(step_ns), ledger=ledger)
    one.name = name
    return Subject("run", measures([one]), None)


def keep(path: Path, subject: Subject, commit: str | None = None) -> Check:
    (check,) = judged_and_kept(path, subject, "2026-11-28T12:00:00+00:00", commit)
    return check


def filled(path: Path, runs: int = 20, seed: int = 0, **ledger: int | None) -> list[float]:
    times = list(10 * MS * np.exp(np.random.default_rng(seed).normal(0, 0.01, runs)))
    lines = [json.dumps(history.asdict(run_of(run(ns, **ledger), f"t{at}", f"c{at}"))) for at, ns in enumerate(times)]
    path.write_text("".join(line + "\n" for line in lines))
    return times


def cli(*arguments: Any) -> Result:
    return CliRunner().invoke(command, [str(one) for one in arguments])


def test_a_slower_step_is_told_with_its_first_run_its_owner_and_its_doubt(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    filled(path, idle_feed=MS)
    checks = [keep(path, run(10.4 * MS + ns, idle_feed=1_400_000), f"new{ns}") for ns in range(5)]
    last = checks[-1]
    assert last.status == BROKEN and "commit new0" in last.message and "±" in last.message
    assert last.where.startswith("per step: idle_feed +400,000") and "\n" not in last.message
    assert len(path.read_text().splitlines()) == 25


def test_the_owners_changes_sum_to_the_steps_and_are_means_of_the_runs() -> None:
    def made(*steps: dict[str, int]) -> list[Run]:
        of = run_of(run(MS), "", None).of
        return [Run("", None, step, of) for step in steps]

    before = made({"compute": 7, "idle_feed": 2}, {"compute": 8, "idle_feed": 2, "idle_unknown": 1}, {"compute": 9})
    since = made({"compute": 9, "idle_feed": 5}, {"compute": 8, "idle_launch": 3})
    found = history.changes_ns(before, since)  # one of them cannot tell idle_feed, so none can
    assert sum(found.values()) == Fraction(25, 2) - Fraction(29, 3)
    assert found["compute"] == Fraction(17, 2) - 8 and found["idle_unknown"] == 4 - Fraction(5, 3)
    assert set(found) == {"compute", "idle_unknown"}


def test_a_history_and_a_baseline_of_windows_powershell_are_read(tmp_path: Path) -> None:
    kept, baseline, run_file = tmp_path / "history.jsonl", tmp_path / "baseline.json", tmp_path / "measures.json"
    run_file.write_text(measures_json.dumps(run(10 * MS).measures))
    filled(kept)
    assert cli(run_file, "--write-baseline", baseline).exit_code == 0
    for path in (kept, baseline):
        path.write_bytes(path.read_text().replace("\n", "\r\n").encode("utf-16"))
    assert cli(run_file, "--baseline", baseline, "--history", kept).exit_code == 0
    assert len(kept.read_text().splitlines()) == 21


@pytest.mark.root
def test_a_full_disk_leaves_a_history_as_it_was_and_makes_no_empty_one(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], capture_output=True).returncode:
        pytest.skip("no file system may be mounted here")
    try:
        filled(small / "old.jsonl", runs=3)
        old = (small / "old.jsonl").read_bytes()
        (small / "rest").write_bytes(bytes(64 * 1024 - len(old) // 4096 * 4096 - 4096))
        for name in ("old.jsonl", "new.jsonl"):
            with pytest.raises(RingscopeError, match="cannot be used for the history: No space left on device"):
                keep(small / name, run(11 * MS))
        assert sorted(one.name for one in small.iterdir()) == ["old.jsonl", "rest"]
        assert (small / "old.jsonl").read_bytes() == old
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_run_alone_holds_with_a_doubt_and_the_next_like_it_breaks(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    filled(path)
    first, second = keep(path, run(12 * MS), "a"), keep(path, run(12 * MS + 1), "b")
    assert first.status == HOLDS and "20.2 % slower" in first.message and "run it again" in first.message
    assert second.status == BROKEN and "commit a" in second.message and "2 runs" in second.message


def test_a_faster_step_holds_and_is_told(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    filled(path)
    check = [keep(path, run(9 * MS + ns)) for ns in range(4)][-1]
    assert check.status == HOLDS and "faster" in check.message


def test_a_first_run_holds_and_another_machine_or_work_is_never_compared(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    assert keep(path, run(10 * MS)).status == HOLDS
    other = keep(path, run(5 * MS, name="Tesla V100"))
    assert other.status == UNJUDGED and "Tesla V100" in other.message
    assert keep(path, run(5 * MS, name="Tesla V100")).status == HOLDS  # the same run again
    assert keep(path, run(5 * MS + 1, name="Tesla V100")).status == HOLDS
    assert keep(path, run(20 * MS, name="Tesla V100")).status == BROKEN
    assert keep(path, run(10 * MS + 1)).status == HOLDS and len(path.read_text().splitlines()) == 5


def test_a_sweep_is_judged_by_each_cells_throughput(tmp_path: Path) -> None:
    cells = [Cell("mlp", ranks, 64) for ranks in (1, 2)]

    def swept(*rates: float) -> Subject:
        pairs = zip(cells, rates, strict=True)
        rows = [CellRow(cell, 1, 1, "ok", "", samples_per_s_global=rate) for cell, rate in pairs]
        return Subject("", None, Scaling([], rows, [], [], {}))

    path = tmp_path / "history.jsonl"
    for rates, statuses in (((100, 190), [HOLDS] * 2), ((101, 100), [HOLDS, BROKEN]), ((130, 190), [HOLDS] * 2)):
        checks = judged_and_kept(path, swept(*rates), "t", None)
        assert [check.status for check in checks] == statuses
        assert [check.value for check in checks] == pytest.approx(list(rates)) and checks[0].bound == "min"


def test_logs_of_nccls_inspector_are_judged_by_the_bandwidth_of_each_kind(tmp_path: Path) -> None:
    subject, path = load([DATA / "nccl-inspector"]), tmp_path / "history.jsonl"
    checks = judged_and_kept(path, subject, "t", None)
    assert {one.metric for one in checks} == {"bus_gb_per_s[AllReduce]", "bus_gb_per_s[AllGather]"}
    assert all(one.status == HOLDS for one in judged_and_kept(path, subject, "t", None))
    logged = subject.logged
    assert logged is not None
    slow = [replace(one, bus_gb_per_s=one.bus_gb_per_s and one.bus_gb_per_s * 0.6) for one in logged.kinds]
    broken = judged_and_kept(path, replace(subject, logged=replace(logged, kinds=slow)), "t", None)
    assert [(one.status, one.bound) for one in broken] == [(BROKEN, "min")] * 2
    assert all("GB/s" in one.message or "MB/s" in one.message for one in broken)
    two_ranks_more = [replace(one, ranks=one.ranks + 2) for one in logged.kinds]
    (other,) = judged_and_kept(path, replace(subject, logged=replace(logged, kinds=two_ranks_more)), "t", None)
    assert other.status == UNJUDGED and "of 4" in other.message
    told = {(one.benchmark, one.measure, one.unit, one.smaller_is_better) for one in exported.values(subject)}
    assert ("AllReduce", "bus_gb_per_s", "GB/s", False) in told


def test_the_same_run_gated_again_is_kept_once_and_judged_alike(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    filled(path)
    doubted, slow = run(12 * MS), run(16 * MS)
    for commit in "abc":  # without a new recording: one doubt, and no change
        check = keep(path, doubted, commit)
        assert check.status == HOLDS and "run it again" in check.message
    assert "the history has this run already" in check.message and check.message.endswith("commit a")
    first = keep(path, slow, "d")
    kept = path.read_text()
    for again in (keep(path, slow, "d"), keep(path, slow, "e")):
        assert again.status == first.status == BROKEN and again.message.startswith(first.message)
    assert keep(path, doubted, "f").status == HOLDS  # a branch from before
    assert path.read_text() == kept and len(kept.splitlines()) == 22


def test_only_the_last_runs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_RUNS", 4)
    path = tmp_path / "history.jsonl"
    for commit in "abcdef":
        keep(path, run(10 * MS + ord(commit)), commit)
    assert [one.commit for one in from_text(path, path.read_text())] == list("cdef")


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b"no json",
        b'{"schema": "ringscope.baseline/1"}',
        b"\xff\xfe",
        b"",
        b"[" * 100_000,
        *(
            json.dumps(
                {"schema": "ringscope.run/1", "time": "t", "commit": None, "ledger_ns": ledger, "of": of}
            ).encode()
            for ledger, of in (
                ({"compute": -1}, {"metrics": {}, "gpus": []}),
                ({"compute": 0}, {"metrics": {}, "gpus": []}),
                ({"lunch": 5}, {"metrics": {}, "gpus": []}),
                ({"compute": 1.5}, {"metrics": {}, "gpus": []}),
                ({}, {"metrics": {}, "gpus": []}),
                ({"compute": 5}, {"metrics": {}}),
                ({}, {"metrics": {"samples_per_s_global[a]": 1e-320}, "gpus": []}),
            )
        ),
    ],
)
def test_a_line_that_is_no_run_is_refused_in_one_line_and_nothing_is_lost(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "history.jsonl"
    filled(path, 2)
    path.write_bytes(before := path.read_bytes() + line + b"\n")
    with pytest.raises(RingscopeError) as refused:
        keep(path, run(10 * MS))
    assert "\n" not in str(refused.value) and str(path) in str(refused.value)
    assert path.read_bytes() == before and os.listdir(tmp_path) == [path.name]


def test_what_has_no_steps_is_refused_and_not_kept(tmp_path: Path) -> None:
    one = gpu()
    one.steps.rows.clear()
    one.window = "capture"
    with pytest.raises(RingscopeError, match="no step time"):
        keep(tmp_path / "history.jsonl", Subject("run", measures([one]), None))
    assert not list(tmp_path.iterdir())


def test_gates_at_the_same_time_lose_no_run(tmp_path: Path) -> None:
    for at, name in enumerate(name + str(at) for name in "ab" for at in range(4)):
        (tmp_path / f"{name}.json").write_text(measures_json.dumps(measures([gpu(step_ns=10 * MS + at)])))
    script = (
        "import sys\nfrom pathlib import Path\nfrom profiles.gate.history import judged_and_kept\n"
        "from profiles.measuring.subject import load\nfor at in '0123':\n"
        "    subject = load([Path(f'{sys.argv[1]}{at}.json')])\n"
        "    judged_and_kept(Path('h.jsonl'), subject, 't', sys.argv[1] + at)\n"
    )
    start = [sys.executable, "-c", script]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    gates = [subprocess.Popen([*start, name], cwd=tmp_path, env=environment) for name in "ab"]
    assert [one.wait(300) for one in gates] == [0, 0]
    kept = [one.commit for one in from_text(tmp_path, (tmp_path / "h.jsonl").read_text())]
    assert sorted(kept, key=str) == sorted(name + str(at) for name in "ab" for at in range(4))


def test_the_command_keeps_the_run_with_its_commit_and_ends_with_0_1_or_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_SHA", "f00")
    written = {}
    for name, step_ns in (("good", 10), ("slow", 16)):
        written[name] = tmp_path / f"{name}.json"
        written[name].write_text(measures_json.dumps(measures([gpu(step_ns=step_ns * MS)])))
    path = tmp_path / "history.jsonl"
    assert cli(written["good"], "--history", path).exit_code == 0
    slow = cli(written["slow"], "--history", path, "--markdown", tmp_path / "m.md", "--junit", tmp_path / "j.xml")
    assert slow.exit_code == 1 and "step_ns" in (tmp_path / "m.md").read_text()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["commit"], sum(line["ledger_ns"].values())) for line in lines] == [("f00", 10 * MS), ("f00", 16 * MS)]
    other = measures([replace(gpu(), name="Tesla V100")])
    written["good"].write_text(measures_json.dumps(other))
    assert cli(written["good"], "--history", path).exit_code == 2


@pytest.mark.parametrize("metric", [{"feed_gap_share": -0.1}, {"feed_gap_share": 1.5}, {"efficiency": -2}])
def test_a_run_with_a_number_that_no_run_has_is_refused_as_a_baseline_with_it_is(
    metric: dict[str, float], tmp_path: Path
) -> None:
    kept = history.asdict(run_of(run(MS), "", None))
    assert from_text(tmp_path, json.dumps(kept))
    with pytest.raises(RingscopeError, match="line 1 is not a run of a history"):
        from_text(tmp_path, json.dumps(kept | {"of": kept["of"] | {"metrics": metric}}))
