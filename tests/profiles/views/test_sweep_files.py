"""`ringscope report DIR --html --markdown --charts`: a sweep's page is its summary.csv."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from profiles.ground import numbers
from profiles.runs.rank_records import RankRecord, write_rank
from profiles.runs.records import Cell, RunRecord, SweepRecord
from profiles.verbs.report import command
from tests.profiles.explaining import test_explained as why

MACHINE = {
    "host": "node1",
    "os": "Debian GNU/Linux 12",
    "cpu": {"model": "EPYC", "usable": 64},
    "gpus": [{"name": "NVIDIA H200"}, {"name": "NVIDIA H200"}],
    "packages": {"tensorflow": "2.21.0", "keras": "3.15.1"},
}
CELLS = [Cell("resnet50", ranks, 64, feed=feed) for feed in ("prefetch", "device") for ranks in (1, 2)]
FAILED = Cell("gru", 1, 64)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory: 3 launches a cell of 40 steps of 64 samples, slower with more ranks; one cell fails."""
    folder = tmp_path_factory.mktemp("runs") / "20261120-node1"
    record = SweepRecord([*CELLS, FAILED], 3, "horovodrun", created_utc_ns=1)
    folder.mkdir()
    (folder / "sweep.json").write_text(json.dumps(record.to_json()))
    for cell in [*CELLS, FAILED]:
        for launch in range(3):
            place = folder / cell.id / str(launch)
            place.mkdir(parents=True)
            status, reason = ("oom", "4 GiB asked of 2") if cell is FAILED else ("ok", "")
            run = RunRecord(cell, launch, status, reason, launch, launch + 10**9, ["x"], "horovodrun", MACHINE)
            (place / "record.json").write_text(json.dumps(run.to_json()))
            step = (100 + 8 * cell.ranks + launch + (20 if cell.feed == "prefetch" else 0)) * 1_000_000
            for rank in range(cell.ranks):
                steps = [step] * 40
                write_rank(
                    place / f"rank{rank}.jsonl",
                    RankRecord(rank, cell.ranks, rank, "node1", None, 0, sum(steps), 40 * 64, steps, [step // 50] * 40),
                )
    return folder


@pytest.fixture(scope="module")
def written(sweep: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    options = ["--html", str(folder / "page.html"), "--markdown", str(folder / "report.md")]
    result = CliRunner().invoke(command, [str(sweep), *options, "--charts", str(folder / "charts")])
    assert result.exit_code == 1, "one cell failed"
    return folder


@pytest.mark.ci
@pytest.mark.browser
def test_page_and_markdown_of_a_sweep_show_what_summary_csv_holds(browser: Any, sweep: Path, written: Path) -> None:
    with (sweep / "summary.csv").open() as file:
        summary = list(csv.DictReader(file))
    assert len(summary) == 5
    page = browser.new_page()
    page.goto((written / "page.html").as_uri())
    heads = [head.strip() for head in page.locator("#t-cells thead th").all_inner_texts()]
    on_page = page.eval_on_selector_all(
        "#t-cells tbody tr", "rows => rows.map(row => [...row.cells].map(cell => cell.textContent.trim()))"
    )
    markdown = (written / "report.md").read_text()
    table = re.search(r"^## Cells\n\n((?:\|.*\n)+)", markdown, re.MULTILINE)
    assert table is not None
    assert [line.strip("| \n").split(" | ") for line in table.group(1).splitlines()[2:]] == on_page
    for row, shown in zip(summary, (dict(zip(heads, cells, strict=True)) for cells in on_page), strict=True):
        rate = float(row["samples_per_s_global"]) if row["samples_per_s_global"] else None
        efficiency = float(row["efficiency"]) if row["efficiency"] else None
        assert shown["throughput"] == numbers.per_s(rate)
        assert shown["efficiency"] == numbers.share(efficiency)
        assert shown["ranks"] == row["ranks"]
    assert on_page[-1][-1] == "oom: 4 GiB asked of 2"
    assert "NVIDIA H200" in page.locator("#machine").inner_text()
    assert "tensorflow 2.21.0" in page.locator("#machine").inner_text()
    page.close()


@pytest.mark.ci
@pytest.mark.browser
def test_the_page_leads_with_the_losses_that_markdown_has_too(browser: Any, tmp_path: Path) -> None:
    folder = why.write(tmp_path / "run", why.SMALL)
    why.write(folder / "explain", why.WITHOUT)
    files = [tmp_path / "page.html", tmp_path / "report.md"]
    CliRunner().invoke(command, [str(folder), "--html", str(files[0]), "--markdown", str(files[1])])
    page = browser.new_page()
    page.goto(files[0].as_uri())
    headings = page.locator("main h2").all_inner_texts()
    assert headings[0] == "Why N ranks are not N times as fast as one"
    rows = page.eval_on_selector_all(
        "#t-losses tbody tr", "rows => rows.map(row => [...row.cells].map(cell => cell.textContent.trim()))"
    )
    table = re.search(r"^## Where the time goes[^\n]*\n\n((?:\|.*\n)+)", files[1].read_text(), re.MULTILINE)
    assert table is not None
    told = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.group(1).splitlines()[2:]]
    assert told == rows and rows[0][1:3] == ["step, 1 to 2 ranks", "+3.599 ms"]
    assert rows[1][1:4] == ["exchange of gradients", "+3.223 ms", "89.6 %"]
    assert page.locator(".change .option").all_inner_texts()[:2] == ["--aggregate", "--per-rank-batch"]
    assert "All reduce exposed" in page.locator("#losses h3").all_inner_texts()[1]
    page.close()


def test_the_curves_are_of_the_models_that_were_measured(written: Path) -> None:
    names = sorted(path.name for path in (written / "charts").iterdir())
    assert names == [f"{name}.{form}" for name in ("efficiency", "throughput-resnet50") for form in ("png", "svg")]
    drawn = (written / "charts" / "throughput-resnet50.svg").read_text()
    # 2 ranks x 40 steps x 64 samples in 40 steps of 117 ms: the middle launch of the `device` cell
    assert any(
        abs(float(rate.replace(",", "")) - 2 * 64 / 0.117) < 0.01
        for rate in re.findall(r"rank[^\"]*: ([\d.,]+)", drawn)
    )
    assert "prefetch" in drawn and "device" in drawn


def test_cells_that_differ_in_the_batch_alone_are_drawn_over_it(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    cells = [Cell("gru", 1, batch) for batch in (64, 128, 512)]
    folder.mkdir()
    (folder / "sweep.json").write_text(json.dumps(SweepRecord(cells, 1, "single", created_utc_ns=1).to_json()))
    for cell in cells:
        place = folder / cell.id / "0"
        place.mkdir(parents=True)
        run = RunRecord(cell, 0, "ok", "", 0, 10**9, ["x"], "single", MACHINE)
        (place / "record.json").write_text(json.dumps(run.to_json()))
        steps = [10_000_000] * 40
        write_rank(
            place / "rank0.jsonl",
            RankRecord(0, 1, 0, "node1", None, 0, sum(steps), 40 * cell.per_rank_batch, steps, [0] * 40),
        )
    options = ["--markdown", str(tmp_path / "report.md"), "--charts", str(tmp_path / "charts")]
    result = CliRunner().invoke(command, [str(folder), *options, "--json", str(tmp_path / "report.json")])
    assert result.exit_code == 0 and "Scaling of" in result.output  # a file of JSON beside it hides nothing
    assert [path.name for path in sorted((tmp_path / "charts").iterdir())] == [
        "throughput-gru.png",
        "throughput-gru.svg",
    ]
    svg = (tmp_path / "charts" / "throughput-gru.svg").read_text()
    assert "samples per rank and step" in svg
    for batch in (64, 128, 512):
        assert f">{batch}</text>" in svg
    assert "n/a (one launch)" in (tmp_path / "report.md").read_text()  # one launch is no interval


def test_where_the_tables_cannot_be_written_the_report_is_shown_all_the_same(sweep: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    shutil.copytree(sweep, kept)
    (kept / "results.csv").unlink(missing_ok=True)
    (kept / "results.csv").mkdir()
    result = CliRunner().invoke(command, [str(kept)])
    assert result.exit_code == 1, "one cell failed"
    assert "results.csv and summary.csv could not be rewritten: " in result.stderr
    assert "resnet50" in result.stdout and "resnet50" not in result.stderr
