"""No verb writes over what it was given to read, two things into one file, or a file called `-`."""

from __future__ import annotations

import importlib
import lzma
import resource
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from harness.verbs import VERBS as HARNESS_VERBS
from profiles.ground.errors import RingscopeError
from profiles.verbs import VERBS, compare, gate, predict, report, timeline
from profiles.verbs.options import Output
from tests.recordings import ROOT

READ = "this command reads that file and does not overwrite it"
TWICE = "cannot write the same file"
TERMINAL = "only JSON can go to stdout; name a file"
REFUSED: list[tuple[click.Command, str, str]] = [
    (timeline.command, "a.sqlite --html a.sqlite", READ),
    (timeline.command, "a.sqlite --json ./a.sqlite", READ),
    (timeline.command, "run --markdown run/rank0.sqlite", READ),
    (timeline.command, "a.sqlite --json m --html m", TWICE),
    (timeline.command, "a.sqlite --html -", TERMINAL),
    (timeline.command, "a.sqlite --charts -", TERMINAL),
    (timeline.command, "a.sqlite --html nowhere/p.html", "cannot be written"),
    (gate.command, "a.sqlite --write-baseline a.sqlite", READ),
    (gate.command, "a.sqlite --baseline b.json --write-baseline b.json", READ),
    (gate.command, "a.sqlite --max compute_share=1 --junit j --markdown j", TWICE),
    (gate.command, "a.sqlite --max compute_share=1 --markdown -", TERMINAL),
    (compare.command, "a.sqlite b.json --json a.sqlite", READ),
    (compare.command, "run a.sqlite --json run/rank0.sqlite", READ),
    (predict.command, "a.sqlite b.json --ranks 4 --json b.json", READ),
    (report.command, "run --json run/sweep.json", READ),
    (report.command, "run --html p --markdown p", TWICE),
]


@pytest.mark.parametrize(("verb", "words", "said"), REFUSED)
def test_a_file_that_would_be_lost_is_refused_before_anything_is_read(verb, words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    there = ("a.sqlite", "b.json", "run/rank0.sqlite", "run/sweep.json")
    for name in there:
        Path(name).write_text("kept")
    result = CliRunner().invoke(verb, shlex.split(words))
    assert isinstance(result.exception, RingscopeError) and result.exception.exit_code == 2
    assert said in str(result.exception) and "\n" not in str(result.exception)
    assert all(Path(name).read_text() == "kept" for name in there)
    assert {str(path) for path in Path().rglob("*") if path.is_file()} == set(there)


def test_measures_are_shown_though_the_page_does_not_fit_onto_the_disk(tmp_path):
    recording, page = tmp_path / "rank0.sqlite", tmp_path / "page.html"
    recording.write_bytes(
        lzma.decompress((ROOT / "tests/data/dense41m-1gpu-pinned-float32.rank0.sqlite.xz").read_bytes())
    )
    full = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (4096, 4096))  # a write beyond fails as on a full disk
    words = ["timeline", "--no-cache", str(recording)]
    call = partial(subprocess.run, capture_output=True, text=True, cwd=ROOT)
    shown = call([sys.executable, "-m", "ringscope", *words])
    failed = call([sys.executable, "-m", "ringscope", *words, "--html", str(page)], preexec_fn=full)
    assert (shown.returncode, failed.returncode) == (0, 2)
    assert failed.stdout == shown.stdout and "who had the GPU" in shown.stdout
    assert failed.stderr.startswith(f"ringscope: {page}: ") and failed.stderr.count("\n") == 1
    assert not page.exists()


def test_what_was_written_before_is_written_again_beside_the_recordings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "page.html").write_text("of last time")
    result = CliRunner().invoke(timeline.command, ["run", "--html", "run/page.html"])
    assert "no recordings there" in str(result.exception)  # and not that the page is in the way


def test_every_option_that_writes_a_file_is_known_to_do_so():
    """Those that make a directory, or a file that must not be there yet, look after themselves."""
    writing = ("Write", "A page")
    for module, _ in (*VERBS.values(), *HARNESS_VERBS.values()):
        for option in importlib.import_module(module).command.params:
            if isinstance(option, click.Option) and (option.help or "").startswith(writing):
                assert isinstance(option.type, Output), f"{module}: {option.opts[-1]}"
