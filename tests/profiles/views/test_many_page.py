"""The page and the Markdown of many GPUs: small, quick to open, and with the planted rank in front."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.browser import wait_until
from tests.made.pointer import at_pointer
from tests.profiles.views.test_ranks import SHAPE, record, run

MOST_BYTES = 2_000_000
MOST_ELEMENTS = 10_000  # that a browser lays out before the page can be used


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = record(SHAPE, tmp_path_factory.mktemp("many"))
    written = [folder / "page.html", folder / "page.md"]
    result = run(folder, "--html", written[0], "--markdown", written[1], "--ranks", "7")
    assert result.exit_code == 0, result.output
    return written[0]


def embedded(page: Path) -> Any:
    (text,) = re.findall(r'<script type="application/json" id="measures">(.*?)</script>', page.read_text(), re.S)
    return json.loads(text)


def test_every_number_of_the_page_is_in_its_json_and_only_some_gpus_are(page: Path) -> None:
    data, text = embedded(page), page.read_text()
    assert [gpu["rank"] for gpu in data["gpus"]] == [0, 7, 19, 31]
    assert len(data["summary"]["titles"]) == 32
    shown = re.findall(r'<data value="([^"]*)" data-at="([^"]+)">', text)
    assert len(shown) > 100 and any(at.startswith("/summary/outliers/0") for _, at in shown)
    for value, at in shown:
        assert value == "" or float(value) == pytest.approx(at_pointer(data, at)), at
    assert len(text.encode()) <= MOST_BYTES


def test_the_markdown_begins_with_the_planted_rank_and_ends_with_the_command(page: Path) -> None:
    text = page.with_suffix(".md").read_text()
    first = text[text.index("## What to change") :].splitlines()[2]
    assert "rank 19, GPU 19" in first
    titles = re.findall(r"^## (.*)$", text, re.M)
    assert titles[:4] == ["What to change", "Who differs", "Over all GPUs", "Hosts"] and "Doubts" in titles
    assert "--ranks 7" in text and "rank 8, GPU 8" not in text


@pytest.mark.ci
@pytest.mark.browser
def test_the_gpus_one_by_one_unfold_and_are_drawn(browser: Any, page: Path) -> None:
    shown = browser.new_page(viewport={"width": 1200, "height": 900})
    try:
        errors: list[str] = []
        shown.on("pageerror", lambda error: errors.append(str(error)))
        shown.goto(page.as_uri())
        wait_until(shown, "globalThis.picture !== undefined")
        assert "rank 19" in shown.locator("#verdicts .finding").first.inner_text().lower()
        assert "rank 19, GPU 19" in shown.locator("#t-outliers").inner_text()
        assert shown.locator("#together h3").all_inner_texts() == ["Who differs", "Over all GPUs", "Hosts"]
        assert not shown.locator("#picture").is_visible()
        shown.locator("details.each > summary").click()
        wait_until(shown, "picture.width > 0")
        drawn = "() => picture.c.getImageData(0, 0, picture.canvas.width, picture.canvas.height).data.some((v) => v)"
        wait_until(shown, drawn)
        assert not errors
    finally:
        shown.close()


@pytest.fixture(scope="module")
def of_512(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where the page and the summary of 512 ranks lie, one host of theirs slow; and what the terminal showed."""
    folder, slow = tmp_path_factory.mktemp("of_512"), tuple(range(8 * 37, 8 * 38))
    record(replace(SHAPE, gpus=512, processes=512, skew_ns=10, slow_gpus=slow, steps=10), folder)
    result = run(folder, "--html", folder / "page.html", "--json-summary", folder / "summary.json")
    assert result.exit_code == 0, result.output
    return folder, result.stdout


@pytest.mark.exhaustive
def test_five_hundred_and_twelve_ranks_fit_120_lines(of_512: tuple[Path, str]) -> None:
    folder, shown = of_512
    assert len(shown.splitlines()) <= 120
    summary = json.loads((folder / "summary.json").read_text())
    assert [(one["what"], one["name"]) for one in summary["outliers"]] == [("host", "node37")]
    assert "ranks 296 to 303" in summary["findings"][0]["text"]


@pytest.mark.exhaustive
@pytest.mark.browser
def test_the_page_of_512_ranks_is_small_and_little_of_it_is_laid_out(browser: Any, of_512: tuple[Path, str]) -> None:
    page = of_512[0] / "page.html"
    assert page.stat().st_size <= MOST_BYTES
    shown = browser.new_page()
    try:
        shown.goto(page.as_uri())
        wait_until(shown, "globalThis.picture !== undefined")
        assert 0 < shown.evaluate("document.querySelectorAll('*').length") <= MOST_ELEMENTS
        assert not shown.locator("#picture").is_visible()  # and drawn once it is unfolded
    finally:
        shown.close()
