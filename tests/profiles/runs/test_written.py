"""A file of ringscope's that is given where another is due: every command says what it is, and what takes it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from profiles.ground.errors import RingscopeError
from profiles.model.measures import Measures
from profiles.runs.records import read_sweep
from profiles.runs.written import of_a_run, told
from profiles.scaling.rows import CellRow, LaunchRow
from profiles.scaling.run_directory import csv_text
from profiles.verbs import check, compare, cut, gate, predict, report, timeline
from tests.fuzz.verbs import run
from tests.recordings import DATA, ROOT

KEEPS = ["--json", "measures.json", "--json-summary", "summary.json", "--partial", "host.partial"]
EXPORTS = ["run.bmf.json", "run.benchmark.json", "run.openmetrics"]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what commands write of a recording."""
    folder = tmp_path_factory.mktemp("written")
    recording = str(DATA / "made" / "k_plain.json.gz")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exported = [word for name in EXPORTS for word in ("--export", name)]
        for verb, words in (
            (timeline, [recording, *KEEPS]),
            (check, ["measures.json", "--json", "check.json"]),
            (compare, ["measures.json", "measures.json", "--json", "compared.json"]),
            (gate, ["measures.json", "--write-baseline", "baseline.json", "--history", "runs.jsonl", *exported]),
        ):
            assert run(verb.command, words) == ""
    (folder / "sorted.json").write_text(json.dumps(json.loads((folder / "measures.json").read_text()), sort_keys=True))
    (folder / "results.csv").write_text(csv_text([], LaunchRow))
    (folder / "launches.csv").write_text(csv_text([], CellRow))
    (folder / "cell.json").write_text('{"model": "mlp"}')
    return folder


SAID = {
    "measures.json": "measures that",
    "host.partial": "a partial file",
    "baseline.json": "a baseline of `ringscope gate`; give it to `ringscope gate RUN --baseline",
    "runs.jsonl": "a history of `ringscope gate`; give it to `ringscope gate RUN --history",
    "summary.json": "output of `ringscope timeline --json-summary`",
    "check.json": "output of `ringscope check --json`",
    "compared.json": "output of `ringscope compare --json`",
    **dict.fromkeys(EXPORTS, "output of `ringscope gate --export`"),
    **dict.fromkeys(("results.csv", "launches.csv", "cell.json"), "a file of a run directory"),
}
READ = {"measures.json", "host.partial"}  # by all but `cut`, and measures not by `timeline`


@pytest.mark.parametrize("name", SAID)
def test_every_command_says_what_the_file_is(name: str, written: Path, tmp_path: Path) -> None:
    file = str(written / name)
    verbs = {
        "cut": (cut.command, [file, "--shrink", "-o", str(tmp_path / "new.sqlite")]),
        "timeline": (timeline.command, [file]),
        "check": (check.command, [file]),
        "compare": (compare.command, [file, str(written / "measures.json")]),
        "gate": (gate.command, [file, "--max", "feed_gap_share=0.5"]),
    }
    for verb, (command, words) in verbs.items():
        said = run(command, words)
        reads = name in READ and verb != "cut" and (verb, name) != ("timeline", "measures.json")
        assert said == "" if reads else said.startswith(f"{file}: {SAID[name]}"), (verb, said)
    for command in (report.command, predict.command):
        assert run(command, [file]).startswith(f"{file}: ")


@pytest.mark.parametrize("name", sorted({*SAID, "host.partial"} - {"baseline.json"}))
def test_a_file_that_is_no_baseline_is_named(name: str, written: Path) -> None:
    file = written / name
    said = run(gate.command, [str(written / "measures.json"), "--baseline", str(file)])
    assert said.startswith(f"{file}: {SAID[name].partition(';')[0]}") and "not a baseline; write one with" in said


@pytest.mark.parametrize("name", sorted(set(SAID) - {"runs.jsonl", "host.partial", "cell.json", "measures.json"}))
def test_a_file_that_is_no_history_is_named_and_stays_as_it_is(name: str, written: Path) -> None:
    file = written / name
    before = file.read_bytes()
    said = run(gate.command, [str(written / "measures.json"), "--history", str(file)])
    assert said.startswith(f"{file}: ") and "not a history of runs; name another file" in said
    assert file.read_bytes() == before


def test_measures_are_read_whatever_their_file_is_called_and_its_keys_are_sorted_by(written: Path) -> None:
    assert (written / "sorted.json").read_text().index("ringscope.measures/1") > 4096
    assert run(gate.command, [str(written / "sorted.json"), "--max", "feed_gap_share=0.5"]) == ""
    (written / "measures").write_bytes((written / "measures.json").read_bytes())
    assert run(compare.command, [str(written / "measures"), str(written / "measures.json")]) == ""


@pytest.mark.parametrize("verb", [check, compare, gate])
def test_measures_of_another_version_are_named_by_their_schema(verb: object, written: Path, tmp_path: Path) -> None:
    later = json.loads((written / "measures.json").read_text()) | {"schema": "ringscope.measures/9"}
    (tmp_path / "later.json").write_text(json.dumps(later))
    given = [str(tmp_path / "later.json"), str(written / "measures.json")][: 2 if verb is compare else 1]
    said = run(verb.command, [*given, *(["--max", "feed_gap_share=1"] if verb is gate else [])])  # type: ignore[attr-defined]
    assert "not measures of schema ringscope.measures/1 (found 'ringscope.measures/9'); measure the recording" in said


def test_every_schema_of_ringscope_is_known() -> None:
    sources = (path for room in ("profiles", "harness", "ringscope") for path in (ROOT / room).rglob("*.py"))
    schemas = {name for path in sources for name in re.findall(r'"(ringscope\.[a-z]+/\d+)"', path.read_text())}
    assert Measures.__dataclass_fields__["schema"].default in schemas and len(schemas) > 15
    for schema in schemas:
        assert told(Path("x"), json.dumps({"schema": schema}, indent=1).encode()), schema


def test_a_file_of_somebody_elses_is_not_claimed() -> None:
    for text in (b'{"schema": "other/1"}', b"model,price\n", b"[]", b"", b'{"time": "1", "commit": 2}'):
        assert told(Path("notes.json"), text) is None
    assert of_a_run(Path("a/rank3.end.json")) and not of_a_run(Path("rank3.json"))


def test_a_run_directory_that_is_a_file_is_refused(written: Path) -> None:
    with pytest.raises(RingscopeError, match="a file, not a run directory"):
        read_sweep(written / "measures.json")
