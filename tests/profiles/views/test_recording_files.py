"""`ringscope timeline --html --perfetto --markdown --charts --parquet` on real recordings."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

from profiles.ground import numbers
from profiles.ground.errors import UnreadableRecording
from profiles.model.measures import OWNERS
from profiles.verbs.timeline import command
from tests.browser import wait_until
from tests.made.pointer import at_pointer
from tests.recordings import DATA, SHARED
from tests.tiers import few

RECORDINGS = [str(DATA / f"resnet50-2gpu-prefetch.rank{rank}.sqlite.xz") for rank in (0, 1)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    options = ["--html", "page.html", "--perfetto", "trace.json.gz", "--markdown", "report.md", "--charts", "charts"]
    options += ["--parquet", "steps.parquet", "--json", "measures.json"]
    named = [option if option.startswith("--") else str(folder / option) for option in options]
    result = CliRunner().invoke(command, [*RECORDINGS, *named, "--per-step"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return folder


def test_every_file_asked_for_is_there_and_nothing_else(written: Path) -> None:
    assert sorted(path.name for path in written.iterdir()) == [
        "charts",
        "measures.json",
        "page.html",
        "report.md",
        "steps.parquet",
        "trace.json.gz",
    ]


@pytest.mark.ci
@pytest.mark.browser
def test_page_markdown_and_json_of_one_run_agree_number_by_number(browser: Any, written: Path) -> None:
    document = json.loads((written / "measures.json").read_text())
    page = browser.new_page()
    page.goto((written / "page.html").as_uri())
    shown = page.eval_on_selector_all(
        "data[data-at]", "all => all.map(e => [e.dataset.at, e.dataset.of ?? '', e.value, e.textContent])"
    )
    assert len(shown) > 300
    for at, of, value, _ in shown:
        expected = at_pointer(document, at)
        if of and expected is not None:
            expected /= at_pointer(document, of)
        assert value == ("" if expected is None else str(expected)), at
    markdown = (written / "report.md").read_text()
    sections = dict(re.findall(r"^## (.+?)\n\n((?:\|.*\n)+)", markdown, re.MULTILINE))
    for title, name in (("GPUs", "gpus"), ("Ledger", "ledger"), ("Steps", "steps"), ("Collectives", "collectives")):
        rows = [line.strip("| \n").split(" | ") for line in sections[title].splitlines()[2:]]
        on_page = page.eval_on_selector_all(
            f"#t-{name} tbody tr", "rows => rows.map(row => [...row.cells].map(cell => cell.textContent.trim()))"
        )
        assert rows == on_page, title
    for owner, *cells in [line.strip("| \n").split(" | ") for line in sections["Ledger"].splitlines()[2:]]:
        for gpu, (ns, share) in zip(document["gpus"], zip(cells[::2], cells[1::2], strict=True), strict=True):
            key = next(key for key in OWNERS if numbers_of(owner) == key)
            assert ns == numbers.duration(gpu["ledger_ns"][key])
            assert share == numbers.share(gpu["ledger_ns"][key] / gpu["span_ns"])
    page.close()


def numbers_of(label: str) -> str:
    """The owner with this label, said here once more so that a label that changes places is seen."""
    return {
        "compute": "compute",
        "collective": "collective",
        "copy to GPU": "h2d",
        "copy to host": "d2h",
        "copy GPU to GPU": "p2p",
        "copy on GPU": "d2d",
        "memset": "memset",
    }.get(label, label.replace("idle: ", "idle_"))


def test_the_per_step_table_is_the_jsons_and_adds_up(written: Path) -> None:
    document = json.loads((written / "measures.json").read_text())
    table = pd.read_parquet(written / "steps.parquet")
    rows = [(index, row) for index, gpu in enumerate(document["gpus"]) for row in gpu["steps"]["rows"]]
    assert len(table) == len(rows) > 0
    for (_, found), (index, row) in zip(table.iterrows(), rows, strict=True):
        assert (found.gpu, found.step, found.start_ns, found.end_ns) == (
            index,
            row["step"],
            row["start_ns"],
            row["end_ns"],
        )
        assert found.feed_gap_ns == row["feed_gap_ns"]
        assert sum(found[f"{owner}_ns"] for owner in OWNERS) == found.period_ns == found.end_ns - found.start_ns


def test_each_chart_is_a_picture_in_both_forms(written: Path) -> None:
    names = sorted(path.name for path in (written / "charts").iterdir())
    assert names == [
        f"{name}.{form}" for name in ("feed-gaps", "ledger-by-gpu", "ledger-by-step") for form in ("png", "svg")
    ]
    for path in (written / "charts").iterdir():
        if path.suffix == ".svg":
            assert xml.parse(path).getroot().tag.endswith("svg")
        else:
            assert path.read_bytes().startswith(b"\x89PNG")


def test_the_ledger_chart_draws_bars_as_long_as_the_shares(written: Path) -> None:
    document = json.loads((written / "measures.json").read_text())
    drawn = (written / "charts" / "ledger-by-gpu.svg").read_text()
    widths = [
        float(width) for width in re.findall(r'aria-roledescription="bar"[^>]* d="M[\d.]+,[\d.]+h([\d.]+)v', drawn)
    ]
    shares = [
        gpu["ledger_ns"][owner] / gpu["span_ns"]
        for gpu in document["gpus"]
        for owner in OWNERS
        if gpu["ledger_ns"][owner]
    ]
    assert len(widths) == len(shares)
    for width, share in zip(sorted(widths), sorted(shares), strict=True):
        assert width == pytest.approx(720 * share, abs=0.02)


def test_pictures_without_room_for_what_draws_them_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    words = ["--html", "page.html", "--charts", "charts", "--json", "m.json", "--markdown", "m.md"]
    path = DATA / "made" / "k_plain.json.gz"
    ended = subprocess.run(
        [sys.executable, "-m", "profiles", "timeline", str(path), *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30)),
    )
    assert ended.returncode == 2 and ended.stderr.count("\n") == 1, ended.stderr
    assert "address space" in ended.stderr
    assert not list(tmp_path.iterdir())


def test_a_recording_is_not_written_over(tmp_path: Path) -> None:
    copy = tmp_path / "rank0.sqlite.xz"
    copy.write_bytes(Path(RECORDINGS[0]).read_bytes())
    before = copy.read_bytes()
    result = CliRunner().invoke(command, [str(copy), "--html", str(copy)])
    assert result.exception is not None and "does not overwrite it" in str(result.exception)
    assert copy.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [copy.name]


PUBLIC = SHARED / "public"
OTHERS = sorted(path for path in PUBLIC.glob("*/*") if path.suffix != ".md")


@pytest.mark.ci
@pytest.mark.browser
@pytest.mark.parametrize("recording", few(OTHERS), ids=lambda path: path.name)
def test_a_recording_of_another_tool_makes_a_page_without_a_complaint(
    recording: Path, browser: Any, tmp_path: Path
) -> None:
    """Without steps, API rows, ranks or names of GPUs: every view still says what there is."""
    html, complaints = tmp_path / "page.html", []
    result = CliRunner().invoke(command, [str(recording), "--html", str(html), "--perfetto", str(tmp_path / "t.gz")])
    if isinstance(result.exception, UnreadableRecording):
        assert not html.exists()
        return
    assert result.exit_code == 0, repr(result.exception)
    page = browser.new_page()
    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(html.as_uri())
    wait_until(page, "globalThis.picture !== undefined")
    assert complaints == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()
