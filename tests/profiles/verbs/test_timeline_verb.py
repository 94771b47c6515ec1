"""`ringscope timeline` on real recordings: the page, the JSON, the window, exit codes."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from profiles import analyse
from profiles.gpus import gather
from profiles.model.measures_json import from_json
from profiles.verbs.timeline import command
from profiles.views.tables import report
from profiles.views.tables.table import document_of
from profiles.views.terminal import named
from tests.recordings import DATA

RECORDING = str(DATA / "resnet50-2gpu-device.rank0.sqlite.xz")


def run(*arguments: str):
    return CliRunner().invoke(command, list(arguments))


def test_json_on_the_terminal_is_one_object_that_sums_to_its_windows():
    result = run(RECORDING, "--json", "-")
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    (gpu,) = data["gpus"]
    assert sum(ns for ns in gpu["ledger_ns"].values() if ns is not None) == gpu["span_ns"]
    assert gpu["window_ns"][1] - gpu["window_ns"][0] == gpu["span_ns"]
    assert gpu["window"] == "steps" and gpu["steps"]["rows"] == []
    assert from_json(data).gpus[0].rank == 0


def test_json_in_a_file_stands_beside_the_page(tmp_path):
    result = run(RECORDING, "--json", str(tmp_path / "m.json"), "--window", "capture", "--per-step")
    assert result.exit_code == 0 and "who had the GPU" in result.stdout and "each step" in result.stdout
    (gpu,) = json.loads((tmp_path / "m.json").read_text())["gpus"]
    assert gpu["window"] == "capture" and len(gpu["steps"]["rows"]) == gpu["steps"]["count"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["m.json"]


def test_findings_are_shown_on_a_screen_by_default_and_all_in_full():
    screen, full = run(RECORDING), run(RECORDING, "--full")
    assert len(screen.stdout.splitlines()) <= 60 < len(full.stdout.splitlines())
    data = json.loads(run(RECORDING, "--json", "-").stdout)
    codes = [finding["code"] for finding in data["findings"]]
    assert all(f"• {code}: " in full.stdout for code in codes) and all(code in screen.stdout for code in codes)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The recording's partial file, which is read sooner, and its measures."""
    path = tmp_path_factory.mktemp("measured") / "rank0.partial"
    assert run(RECORDING, "--partial", str(path)).exit_code == 0
    return str(path), analyse([RECORDING]).measures


def test_a_table_of_a_partial_file_is_that_of_its_recording(measured):
    of_both = [run(path, "--show", "copies").stdout for path in (RECORDING, measured[0])]
    assert of_both[0] == of_both[1] and "copy to host" in of_both[0]


def test_without_a_name_all_names_of_tables_are_listed():
    (line,) = run("--show").stdout.splitlines()
    assert set(named.NAMES) <= set(re.findall(r"[\w-]+", line))


@pytest.mark.parametrize("name", named.NAMES)
def test_every_table_can_be_had_by_its_name(measured, name):
    path, measures = measured
    shown = run(path, "--show", name)
    assert shown.exit_code == 0
    if name in report.MAKERS:
        table = report.MAKERS[name](document_of(measures))
        assert table.id == name
        words = {word for row in table.rows for cell in row for word in cell.text.split() if len(word) < 30}
        assert words <= set(shown.stdout.split()) or name in ("doubts", "recordings")


def test_a_wrong_name_of_a_table_is_refused_with_all_names():
    wrong = run(RECORDING, "--show", "operatorz")
    assert wrong.exit_code != 0 and all(name in str(wrong.exception) for name in named.NAMES)


@pytest.mark.parametrize("strict, code", [(False, 0), (True, 2)])
def test_an_unreadable_recording_beside_a_good_one_is_a_doubt_or_with_strict_the_end(tmp_path, strict, code):
    (tmp_path / "bad.sqlite").write_bytes(b"SQLite format 3\0" + bytes(50))
    result = run(RECORDING, str(tmp_path / "bad.sqlite"), "--json", "-", *(["--strict"] if strict else []))
    if strict:
        assert result.exit_code != 0 or result.exception is not None
        assert getattr(result.exception, "exit_code", code) == 2
    else:
        assert result.exit_code == 0
        assert "unreadable" in [doubt["code"] for doubt in json.loads(result.stdout)["doubts"]]


def test_however_many_files_are_asked_for_the_recordings_are_gathered_once(tmp_path, monkeypatch):
    gathered = []
    made_of = gather.made_of

    def counted(taken, timelines, shift_ns):
        gathered.append(len(timelines))
        return made_of(taken, timelines, shift_ns)

    monkeypatch.setattr(gather, "made_of", counted)
    kinds = {"html": "p.html", "perfetto": "t.json.gz", "markdown": "m.md", "parquet": "s.parquet", "json": "j.json"}
    asked = [word for kind, name in kinds.items() for word in (f"--{kind}", str(tmp_path / name))]
    result = run(RECORDING, RECORDING.replace("rank0", "rank1"), *asked)
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kinds.values())
    assert gathered == [1, 1]
