"""The page and the tables show which of the user's lines the host was in, with a link to the longest span."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from profiles import analyse
from profiles.ground import numbers
from profiles.model import measures_json
from profiles.views.page import page
from profiles.views.tables import places
from profiles.views.tables.table import Document
from profiles.views.terminal import screen
from tests.profiles.verdicts.test_people import MS, US
from tests.profiles.verdicts.test_places import training, under


def test_a_finding_and_the_table_lead_to_the_longest_span(tmp_path: Path) -> None:
    made = under(training(MS), "callback", "Norms.on_train_batch_end", 41)
    analysis = analyse([made.timeline()], operations=True)
    (tmp_path / "page.html").write_text(page.render(title="a", command="b", analysis=analysis))
    html = (tmp_path / "page.html").read_text()
    (place,) = analysis.measures.gpus[0].places.rows  # type: ignore[union-attr]
    start, end = place.longest_start_ns, (place.longest_start_ns or 0) + place.longest_ns
    assert len(re.findall(f'data-from="{start}" data-to="{end}"', html)) == 2
    assert "my_train.py:41" in html and 'id="places"' in html


def test_the_table_has_what_is_in_no_place_too() -> None:
    made = under(training(MS), "callback", "Norms.on_train_batch_end", 41)
    measures = analyse([made.timeline()]).measures
    table = places.places(Document(measures_json.to_json(measures)))
    left = sum(measures.gpus[0].places.elsewhere_ns.values())  # type: ignore[union-attr]
    assert [row[0].text for row in table.rows] == ["callback Norms.on_train_batch_end", "elsewhere"]
    assert [row[4].text for row in table.rows] == [numbers.duration(11 * 980 * US), numbers.duration(left)]


def test_the_screen_has_the_second_level_of_the_ledger(capsys: pytest.CaptureFixture[str]) -> None:
    slow, fast = (under(training(gap), "callback", "Norms.on_train_batch_end", 41) for gap in (MS, MS // 2))
    for rank, one in enumerate((slow, fast)):
        one.recording = replace(one.recording, path=f"rank{rank}.sqlite", rank=rank)
    measures = analyse([slow.timeline(), fast.timeline()]).measures
    screen.show(measures, Console(width=120))
    said = f"launch: callback Norms.on_train_batch_end (my_train.py:41) {numbers.duration(11 * 980 * US // 12)} a step"
    assert said in capsys.readouterr().out
