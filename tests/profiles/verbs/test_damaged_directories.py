"""Run directories, measures and baselines that were damaged: every verb is right, or refuses in one line."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import click
import pytest

from profiles.cli import HELP
from profiles.comparing.compare import compare
from profiles.gate import baseline_file
from profiles.gate.baseline import baseline_of
from profiles.ground.lazy import LazyGroup, run
from profiles.measuring import subject
from profiles.verbs import VERBS
from tests.made import swept as made
from tests.made.swept import MEASURES, MS, RANK, RECORD, SWEEP, TWO

VERBS_OF_A_SWEEP = (
    ("report",),
    ("report", "--json", "-"),
    ("gate", "--min", "efficiency=0.5", "--max", "feed_gap_share=0.5"),
    ("predict",),
)


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    return made.swept(tmp_path / "swept")


def called(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of the command line; whatever else it raises is the test's end."""
    monkeypatch.setattr(sys, "argv", ["ringscope", *map(str, words)])
    code: Any = 0
    try:
        run(LazyGroup(name="profiles", verbs=VERBS, help=HELP))
    except SystemExit as ended:
        code = ended.code or 0
    said = capsys.readouterr()
    return int(code), said.out, said.err


def files_of(folder: Path) -> dict[str, bytes]:
    """What is in it; pipes and links are only named."""
    found = {}
    for path in folder.rglob("*"):
        if path.name not in ("results.csv", "summary.csv"):
            found[str(path)] = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
    return found


def changed(path: Path, **values: object) -> None:
    """Values of its JSON object; of a file of lines those of the first."""
    first, *rest = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    path.write_text("\n".join([json.dumps(json.loads(first) | values), *rest]) + "\n")


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_text(""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "no text": lambda path: path.write_bytes(b"\xff\xfe\x00" * 40),
    "a list": lambda path: path.write_text("[]"),
    "nested without end": lambda path: path.write_text("[" * 100_000),
    "of another version": lambda path: changed(path, schema="ringscope.run/99"),
    "a directory": as_directory,
    "a link to itself": as_loop,
    "a pipe": as_pipe,
    "gone": Path.unlink,
}
ODD_VALUES = [
    (RECORD, {"started_utc_ns": "late"}),
    (RECORD, {"started_utc_ns": 10**30}),
    (RECORD, {"finished_utc_ns": float("nan")}),
    (RECORD, {"status": 5}),
    (RECORD, {"reason": None}),
    (RECORD, {"machine": []}),
    (RECORD, {"machine": {"gpus": "two"}}),
    (RECORD, {"machine": {"gpus": [1]}}),
    (RECORD, {"cell": {**TWO.to_json(), "ranks": 10**30}}),
    (RECORD, {"cell": {**TWO.to_json(), "ranks": -1}}),
    (RECORD, {"cell": {**TWO.to_json(), "options": [["a", []]]}}),
    (RECORD, {"profiled": []}),
    (RANK, {"samples": float("inf")}),
    (RANK, {"samples": 10**30}),
    (RANK, {"samples": -1}),
    (RANK, {"clock_offset_ns": "none"}),
    (RANK, {"extra": []}),
    (RANK, {"host": None}),
    (RANK, {"window_start_ns": -(10**18), "window_end_ns": -(10**18) + 1000 * MS}),
    (SWEEP, {"launches": 10**30}),
    (SWEEP, {"options": []}),
    (SWEEP, {"machine": "this"}),
    (SWEEP, {"cells": [{}]}),
    (SWEEP, {"created_utc_ns": None}),
    (MEASURES, {"gpus": {}}),
    (MEASURES, {"gpus": [{}]}),
    (MEASURES, {"recordings": "none"}),
    (MEASURES, {"findings": [1]}),
]


def right_or_refused(code: int, said: str, err: str, before: dict[str, bytes], folder: Path) -> None:
    assert code in (0, 1, 2), err
    assert "Traceback" not in said + err
    assert not re.search(r": -?(NaN|Infinity)\b", said)
    assert code != 2 or err.count("\n") <= 1 or "cannot be judged" in said, err
    assert files_of(folder) == before


@pytest.mark.parametrize(
    ("file", "damage"),
    # Measures of another version are told by the schema that their file begins with.
    [pair for pair in product([SWEEP, RECORD, RANK, MEASURES], DAMAGES) if pair != (MEASURES, "of another version")],
)
def test_a_damaged_file_leaves_the_rest_reported_or_is_refused_in_a_line(
    damage: str, file: str, swept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    DAMAGES[damage](swept / file)
    before = files_of(swept)
    for verb, *options in VERBS_OF_A_SWEEP:
        code, said, err = called(monkeypatch, capsys, verb, swept, *options)
        right_or_refused(code, said, err, before, swept)
        if file in (RECORD, RANK) and verb == "report":
            assert code in (0, 1), err
            nothing_there = file == RECORD and damage in ("gone", "a link to itself")
            assert "damaged" in said or nothing_there
        if file == SWEEP:
            assert code == 2 and str(swept) in err


@pytest.mark.parametrize(("file", "values"), ODD_VALUES, ids=str)
def test_values_that_nobody_measures_are_refused_or_make_a_row(
    file: str,
    values: dict[str, Any],
    swept: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    changed(swept / file, **values)
    before = files_of(swept)
    for verb, *options in VERBS_OF_A_SWEEP:
        code, said, err = called(monkeypatch, capsys, verb, swept, *options)
        right_or_refused(code, said, err, before, swept)
        if file in (RECORD, RANK) and verb == "report":
            assert code in (0, 1) and "damaged" in said, err
        if file == SWEEP:
            assert code == 2 and SWEEP in err


@pytest.mark.parametrize("damage", [name for name in DAMAGES if name not in ("gone", "of another version")])
def test_damaged_measures_are_named_and_what_needs_none_is_judged(
    damage: str, swept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    DAMAGES[damage](swept / MEASURES)
    of_both = ("--min", "efficiency=0.5", "--max", "feed_gap_share=0.5")
    code, said, err = called(monkeypatch, capsys, "gate", swept, *of_both)
    assert (code, err) == (2, "") and "holds: efficiency" in said
    (line,) = (line for line in said.splitlines() if "feed_gap_share" in line)
    assert "cannot be judged" in line and str(swept / MEASURES) in line
    assert called(monkeypatch, capsys, "gate", swept, "--min", "efficiency=0.5")[0] == 0
    assert called(monkeypatch, capsys, "gate", swept, "--min", "efficiency=1.5", *of_both[2:])[0] == 1
    assert called(monkeypatch, capsys, "predict", swept)[0] == 0
    code, said, err = called(monkeypatch, capsys, "compare", swept, swept, "--json", "-")
    found = json.loads(said)
    assert (code, err) == (0, "") and len(found["cells"]) == 2
    assert all(str(swept / MEASURES) in reason for reason in found["reasons"]) and found["reasons"]
    code, said, err = called(monkeypatch, capsys, "predict", swept, swept, "--ranks", "4")
    assert code == 2 and err.count("\n") == 1 and str(swept / MEASURES) in err


def test_damaged_measures_of_one_side_make_no_other_machine(swept: Path) -> None:
    whole = subject.load([swept])
    (swept / MEASURES).write_text("{")
    assert compare(whole, subject.load([swept])).likeness.unlike == {}


@pytest.mark.parametrize("damage", ["gone", "a directory", "a link to itself", "a pipe"])
def test_without_sweep_json_it_is_that_what_is_missed_and_not_another_file(
    damage: str, swept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (swept / ".lock").touch()
    DAMAGES[damage](swept / SWEEP)
    for words in (("compare", swept, swept), ("gate", swept, "--min", "efficiency=0.5"), ("predict", swept)):
        code, said, err = called(monkeypatch, capsys, *words)
        assert (code, said) == (2, "") and err.startswith(f"ringscope: {swept / SWEEP} is ") and err.count("\n") == 1
    (launch,) = set(re.findall(r"such as (.*)\n", err))
    assert called(monkeypatch, capsys, "gate", launch, "--max", "feed_gap_share=0.5")[0] == 0  # as it advises
    code, said, err = called(monkeypatch, capsys, "timeline", swept)
    assert (code, said) == (2, "") and "no recordings there" in err


@pytest.mark.parametrize("damage", [name for name in DAMAGES if name != "of another version"])
def test_a_damaged_baseline_is_refused_in_a_line(
    damage: str, swept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    baseline = swept.parent / "baseline.json"
    baseline.write_text(json.dumps(baseline_file.to_json(baseline_of(subject.load([swept])))))
    assert called(monkeypatch, capsys, "gate", swept, "--baseline", baseline)[0] == 0
    DAMAGES[damage](baseline)
    code, said, err = called(monkeypatch, capsys, "gate", swept, "--baseline", baseline)
    assert (code, said) == (2, "") and err.count("\n") == 1 and "baseline" in err


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "0.1", None, True])
@pytest.mark.parametrize("key", ["idle_launch_share", "relative"])
def test_a_baseline_without_numbers_holds_nothing(
    value: object, key: str, swept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is compared with NaN would hold whatever it is."""
    data = baseline_file.to_json(baseline_of(subject.load([swept])))
    (data if key == "relative" else data["metrics"])[key] = value
    (swept.parent / "baseline.json").write_text(json.dumps(data))
    code, said, err = called(monkeypatch, capsys, "gate", swept, "--baseline", swept.parent / "baseline.json")
    assert (code, said) == (2, "") and err.count("\n") == 1


@click.command()
def command() -> None:
    """A verb that Ctrl-C reaches."""
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_ends_a_verb_with_130_and_not_with_what_means_a_broken_budget(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ringscope", "verb"])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(SystemExit) as ended:
            run(LazyGroup(name="profiles", verbs={"verb": (__name__, "")}, help=HELP))
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.value.code == 130
    assert capsys.readouterr().err == "\nringscope: interrupted\n"
