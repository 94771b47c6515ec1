"""Terminals that know few characters get everything said in those."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from profiles.ground.files import write_whole
from profiles.ground.terminals import shortened, show_everything
from profiles.runs.cell import Cell
from profiles.runs.rank_records import RankRecord, write_rank
from profiles.runs.records import RunRecord, SweepRecord
from tests.harness.running import ROOT
from tests.tiers import few

RECORDING = ROOT / "tests" / "data" / "gru-1gpu.rank0.sqlite.xz"
TEXT = "█▊░· → 3 µs ±1 鎖"


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii", "##.. > 3 us ~1 ?"), ("latin-1", "##.· > 3 µs ±1 ?"), ("utf-8", TEXT)]
)
def test_what_an_encoding_lacks_is_shown_in_what_it_has(encoding: str, shown: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    show_everything(stream)
    stream.write(TEXT)
    stream.flush()
    assert raw.getvalue().decode(encoding) == shown


@pytest.mark.parametrize(
    ("encoding", "verb", "says"),
    few(
        [
            ("ascii", "timeline", "what to change"),
            ("ascii", "report", "100 %"),
            ("latin-1", "timeline", "what to change"),
            ("latin-1", "report", "100 %"),
        ]
    ),
)
def test_the_verbs_print_on_such_a_terminal(encoding: str, verb: str, says: str, tmp_path: Path) -> None:
    cell = Cell("mlp", 1, 8)
    write_whole(tmp_path / "sweep.json", json.dumps(SweepRecord([cell], 1, "single").to_json()))
    folder = tmp_path / cell.id / "0"
    folder.mkdir(parents=True)
    write_whole(folder / "record.json", json.dumps(RunRecord(cell, 0, "ok", "", 0, 9, [], "single", {}).to_json()))
    write_rank(folder / "rank0.jsonl", RankRecord(0, 1, 0, "a", None, 0, 30, 24, [10] * 3, [0] * 3))
    environ = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    argv = [sys.executable, "-m", "harness", verb, str(RECORDING if verb == "timeline" else tmp_path)]
    done = subprocess.run(argv, cwd=tmp_path, env=environ, capture_output=True, timeout=900)
    assert done.returncode == 0, done.stderr.decode(encoding)
    assert says in done.stdout.decode(encoding)


def test_a_name_beyond_ascii_is_printed_in_the_c_locale(tmp_path: Path) -> None:
    recording = tmp_path / "räng.sqlite.xz"
    recording.write_bytes(RECORDING.read_bytes())
    environ = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "profiles", "timeline", str(recording)]
    done = subprocess.run(argv, env=environ, capture_output=True, timeout=900)
    assert done.returncode == 0, done.stderr.decode("latin-1")
    assert b"r??ng.sqlite.xz" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full, which is a full disk")
@pytest.mark.parametrize(
    "words", [["--help"], ["predict", "--points", "1:100,2:196"], ["timeline", RECORDING, "--json", "-"]]
)
def test_a_full_disk_that_is_printed_to_is_a_line_and_not_a_broken_budget(words: list[object]) -> None:
    """Exit code 1 has a meaning of its own, 120 is Python's where it cannot print what is left."""
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    with open("/dev/full", "w") as full:
        argv = [sys.executable, "-m", "profiles", *map(str, words)]
        done = subprocess.run(argv, env=environ, stdout=full, stderr=subprocess.PIPE, text=True, timeout=900)
    assert (done.returncode, done.stderr) == (2, "ringscope: what is printed: No space left on device\n")


@pytest.mark.parametrize("words", [["--help"], ["timeline", RECORDING], ["timeline", RECORDING, "--json", "-"]])
def test_a_pipe_that_nobody_reads_any_more_ends_a_verb_quietly(words: list[object]) -> None:
    """As `ringscope ... | head -1` does; 141 is what a shell says of a program that SIGPIPE ended."""
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    reader, writer = os.pipe()
    os.close(reader)
    argv = [sys.executable, "-m", "profiles", *map(str, words)]
    done = subprocess.run(argv, env=environ, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=900)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_words_longer_than_a_line_lose_their_middle_and_others_nothing() -> None:
    path = "/data/" + "d" * 300 + "/rank0.sqlite"
    short = shortened(f"{path}: no such file; check the path")
    assert short.startswith("/data/ddd") and short.endswith("/rank0.sqlite: no such file; check the path")
    assert max(map(len, short.split())) <= 77
    for text in ("a " * 200, "k" * 77, ""):
        assert shortened(text) == text
