"""The page on a terminal: every owner's share, every doubt, at any width."""

from __future__ import annotations

import json
import re

import pytest
from rich.console import Console

from profiles import verdicts
from profiles.ground import numbers
from profiles.model.findings import OF_RANKS
from profiles.model.measures import Measures
from profiles.model.steps import StepRow
from profiles.views.charts import recording
from profiles.views.charts.lanes import of_gpus
from profiles.views.files import markdown
from profiles.views.page import page
from profiles.views.palette import OWNERS as LOOKS
from profiles.views.tables import table, time
from profiles.views.terminal import recording as terminal
from tests.made import hand
from tests.made.sample import sample


def shown(measures: Measures, width: int = 120, *, per_step: bool = False) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"), force_terminal=False)  # noqa: SIM115
    terminal.show(measures, console, per_step=per_step)
    return console.export_text()


def test_every_owner_stands_with_its_time_and_share():
    measures = sample(steps=4, gpus=2, kernels_per_step=20)[0].measures
    text = shown(measures)
    for gpu in measures.gpus:
        for owner, ns in gpu.ledger_ns.items():
            if ns:
                assert f"{LOOKS[owner].label} {numbers.share_of(ns, gpu.span_ns)}" in text
                assert numbers.duration(ns) in text


def test_the_bar_is_as_wide_as_the_page_and_parted_by_time():
    (gpu,) = sample(steps=4, gpus=1, kernels_per_step=20)[0].measures.gpus
    bar = terminal.bar(gpu, 200)
    assert len(bar.plain) == 201
    for span in bar.spans:
        (owner,) = (name for name in LOOKS if LOOKS[name].colour == span.style)
        assert abs((span.end - span.start) - 200 * (gpu.ledger_ns[owner] or 0) / gpu.span_ns) <= 1


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width):
    measures = sample(steps=4, gpus=3, kernels_per_step=20)[0].measures
    assert max(len(line) for line in shown(measures, width).splitlines()) <= width


def test_doubts_and_findings_stand_beneath():
    measures = sample(steps=4, gpus=2, kernels_per_step=20)[0].measures
    text = " ".join(shown(measures).split())
    for doubt in measures.doubts:
        assert doubt.code in text and " ".join(doubt.next.split()) in text
    for finding in measures.findings:
        assert " ".join(finding.change.split()) in text


def test_each_step_is_a_row_on_request():
    measures = sample(steps=5, gpus=1, kernels_per_step=20)[0].measures
    rows = measures.gpus[0].steps.rows
    text = shown(measures, 200, per_step=True)
    for row in rows:
        assert re.search(rf"^ *{row.step} +{re.escape(numbers.duration(row.end_ns - row.start_ns))} ", text, re.M)
    assert "each step" not in shown(measures)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_times_of_a_step_are_whole_at_any_width(width: int):
    """Owners that do not fit beside each other come below, with the steps again."""
    measures = sample(steps=5, gpus=1, kernels_per_step=20)[0].measures
    (gpu,) = measures.gpus
    lines = shown(measures, width, per_step=True).split("each step")[1].splitlines()
    assert max(map(len, lines)) <= width
    for row in gpu.steps.rows:
        mine = " ".join(line for line in lines if re.match(rf" *{row.step}  +{re.escape(period_of(row))} ", line))
        for owner in LOOKS:
            if any(other.ledger_ns[owner] for other in gpu.steps.rows):
                assert f" {numbers.duration(row.ledger_ns[owner])}" in mine


def period_of(row: StepRow) -> str:
    return numbers.duration(row.end_ns - row.start_ns)


def test_every_view_calls_a_gpu_the_same() -> None:
    analysis, _ = sample(steps=2, gpus=2, kernels_per_step=5)
    document = table.document_of(analysis.measures)
    titles = ["rank 0, GPU 0", "rank 1, GPU 1"]
    assert document.titles == analysis.measures.titles == [lane.title for lane in of_gpus(analysis)] == titles
    views = {
        "terminal": shown(analysis.measures, 140),
        "page": page.render(title="t", command="c", analysis=analysis),
        "markdown": markdown.of_recordings(document, title="t", command="c"),
        "charts": json.dumps([chart.spec for chart in recording.of_recordings(document)]),
    }
    assert {view: [title in words for title in titles] for view, words in views.items()} == dict.fromkeys(
        views, [True, True]
    )


def test_an_owner_of_batch_gaps_that_one_recording_cannot_show_is_no_number_there() -> None:
    analysis, _ = sample(steps=2, gpus=2, kernels_per_step=5)
    first, second = (gpu.batch_gap_ledger_ns or {} for gpu in analysis.measures.gpus)
    del second["idle_sync"]
    (shown_row,) = [
        row for row in time.batch_gaps(table.document_of(analysis.measures)).rows if row[0].look == "idle_sync"
    ]
    assert [cell.value for cell in shown_row[1:]] == [first["idle_sync"], None]


def test_a_finding_that_compares_gpus_names_its_gpu_once() -> None:
    slow = {"compute": 9_000_000, "idle_launch": 1_000_000}
    found = hand.measures(
        [
            hand.gpu(
                rank=0, ledger={"compute": 5_000_000, "collective": 5_000_000}, waiting=4_900_000, arrived_last=0.0
            ),
            hand.gpu(rank=1, ledger=slow, waiting=0, arrived_last=1.0),
        ]
    )
    found.findings = [one for one in verdicts.find(found) if one.code in OF_RANKS]
    assert {one.code for one in found.findings} == {"slow-gpu", "straggler"} <= set(OF_RANKS)
    document = table.document_of(found)
    for text in (shown(found, 300), markdown.of_recordings(document, title="t", command="c")):
        for one in found.findings:
            (line,) = (line for line in text.splitlines() if one.text in line)
            assert line.count(found.titles[1]) == 1


@pytest.mark.parametrize(("columns", "width"), [(None, 120), ("72", 72), ("160", 160)])
def test_into_a_pipe_the_page_is_as_wide_as_columns_says(
    columns: str | None, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    assert terminal.console().width == width
