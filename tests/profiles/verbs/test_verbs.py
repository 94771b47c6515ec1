"""The verbs that need no training: no option is ignored in silence, every error is one line, files are as asked for."""

from __future__ import annotations

import importlib
import json
import shlex
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from profiles import analyse, read
from profiles.ground.errors import RingscopeError
from profiles.model import measures_json
from profiles.verbs import VERBS, check, compare, cut, gate, predict, timeline
from profiles.views.terminal import progress_bar
from tests.made.hand import gpu, measures
from tests.recordings import DATA

MARKED = DATA / "dense41m-1gpu-pinned-float32.rank0.sqlite.xz"
UNMARKED = DATA / "lstm-1gpu.rank0.sqlite.xz"
SHOWN = ("--json m.json", "--window steps", "--per-step", "--html p.html", "--perfetto t.gz", "--markdown m.md")
SHOWN += ("--charts charts", "--parquet s.parquet", "--json-summary s.json", "--ranks 1")
SHOWN += ("--from-step 3", "--processes 2", "--partial h.partial", "--full", "--show gpus")

# verb, words, what is said
REFUSED: list[tuple[click.Command, str, str]] = [
    *((timeline.command, f"x --info {words}", f"{words.split()[0]} has no effect with --info") for words in SHOWN),
    (cut.command, "x --time '' -o new", "not a span of time"),
    (cut.command, "x -o new", "nothing to leave out"),
    (cut.command, "x --steps 1:2 --time 1s:2s -o new", "--steps and --time both say what to keep"),
    (cut.command, "x --steps 1-2 -o new", "write it as 10:20"),
    (cut.command, "x --steps : -o new", "write it as 10:20"),
    (cut.command, "x --steps 7:7 -o new", "the last step is not after the first"),
    (predict.command, "x y", "nothing to predict"),
    (predict.command, "x y --ranks many", "--ranks many: write it as --ranks 4,8"),
    (gate.command, "x", "nothing to check"),
    (gate.command, "x --strict", "nothing to check"),
    (gate.command, "x --write-baseline b --junit j.xml", "--junit reports checks"),
    (gate.command, "x --write-baseline b --markdown m.md", "--markdown reports checks"),
]


@pytest.mark.parametrize(("verb", "words", "said"), REFUSED)
def test_what_would_be_ignored_is_refused_in_one_line_before_anything_is_read(verb, words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(verb, shlex.split(words))
    assert isinstance(result.exception, RingscopeError) and result.exception.exit_code == 2
    assert said in str(result.exception) and "\n" not in str(result.exception)
    assert not list(tmp_path.iterdir())


def test_the_table_of_refusals_knows_every_option_of_a_verb_that_writes_another_file():
    """A new option of `timeline` is either for cutting, for reading, or refused beside them."""
    anyway = {"paths", "within", "shrink", "strip_private", "output", "max_size", "no_cache"}
    ignored = {one.split()[0].removeprefix("--") for one in (*SHOWN, "--info", "--strict")}
    options = {one.opts[-1].removeprefix("--") for one in timeline.command.params if one.name not in anyway}
    assert options == ignored


def test_every_verb_has_its_module_and_its_line():
    for module, line in VERBS.values():
        verb = importlib.import_module(module).command
        assert isinstance(verb, click.Command) and line.endswith(".") and len(line) < 90


def run(verb: click.Command, *words: object) -> str:
    result = CliRunner().invoke(verb, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def steps_of(path: Path) -> dict[int, int]:
    """The measured steps of a recording, and how many kernels each has."""
    (found,) = analyse(path).measures.gpus
    return {row.step: row.kernels for row in found.steps.rows}


def test_the_steps_that_are_cut_out_are_measured_as_in_the_whole(tmp_path):
    whole = steps_of(MARKED)
    first = min(whole) + 1
    said = run(cut.command, MARKED, "--steps", f"{first}:{first + 4}", "-o", tmp_path / "four.sqlite")
    assert "four.sqlite: " in said
    part = steps_of(tmp_path / "four.sqlite")
    assert part == {number: whole[number] for number in range(first, first + len(part))} and len(part) >= 3
    names = read(tmp_path / "four.sqlite").marks["name"].astype(str)
    marked = {int(name.removeprefix("step ")) for name in names if name.startswith("step ")}
    assert marked == set(range(first, first + 4))


def test_steps_without_marks_are_cut_out_by_what_the_gpu_did(tmp_path):
    (gpu_of_all,) = analyse(UNMARKED).measures.gpus
    rows = {row.step: row for row in gpu_of_all.steps.rows}
    first, end = sorted(rows)[1], sorted(rows)[4]
    run(cut.command, UNMARKED, "--steps", f"{first}:{end}", "-o", tmp_path / "part.sqlite")
    kernels = read(tmp_path / "part.sqlite").kernels
    inside = (kernels["start_ns"] >= rows[first].start_ns) & (kernels["start_ns"] < rows[end].start_ns)
    assert int(inside.sum()) == sum(rows[step].kernels for step in range(first, end))


def test_a_step_that_is_not_there_says_which_are(tmp_path):
    result = CliRunner().invoke(cut.command, [str(MARKED), "--steps", "9000:", "-o", str(tmp_path / "n.sqlite")])
    assert "has no step 9000; there are steps" in str(result.exception) and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        (check.command, [MARKED]),
        (compare.command, [MARKED, MARKED]),
        (gate.command, [MARKED, "--min", "compute_share=0"]),
        (predict.command, [MARKED, MARKED, "--ranks", "4"]),
    ],
)
def test_a_verb_that_measures_tells_the_progress_bar_of_each_recording(verb, words, monkeypatch):
    told = []

    @contextmanager
    def stages():
        yield lambda doing, done, total, path: told.append((doing, path))

    monkeypatch.setattr(progress_bar, "stages", stages)
    CliRunner().invoke(verb, [str(word) for word in words])
    assert told[:1] == [("reading", MARKED)] and told.count(("measuring", MARKED)) >= words.count(MARKED)


def test_predict_from_recordings_says_the_same_as_text_and_as_json(tmp_path):
    for ranks in (1, 2):
        gpus = [gpu(rank=rank, waiting=0, transfer=10) for rank in range(ranks)]
        (tmp_path / f"{ranks}.json").write_text(measures_json.dumps(measures(gpus)))
    paths = (tmp_path / "1.json", tmp_path / "2.json")
    told = run(predict.command, *paths, "--ranks", "4,8")
    assert "4 ranks: " in told and "8 ranks: " in told
    one = run(predict.command, *paths, "--ranks", "4,8", "--json", "-")
    assert [each["ranks"] for each in json.loads(one)["predictions"]] == [4, 8]
    run(predict.command, *paths, "--ranks", "4", "--json", tmp_path / "p.json")
    assert json.loads((tmp_path / "p.json").read_text())["schema"] == "ringscope.prediction/1"
