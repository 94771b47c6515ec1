"""The page in a real browser: what is there, that it works, and that its numbers are those of the JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from profiles import analyse
from profiles.ground import numbers
from profiles.model.analysed import Analysis
from profiles.model.timeline import Timeline
from profiles.views.files import markdown
from profiles.views.page import page
from profiles.views.tables import table
from tests.browser import PATIENCE_S, wait_until
from tests.made.build import Build
from tests.made.pointer import at_pointer
from tests.made.sample import sample

pytestmark = pytest.mark.browser
COMMAND = "ringscope timeline sample.rank*.sqlite --html page.html"


def cell(model: str, ranks: int, rate: float, one: float) -> dict[str, Any]:
    """A row of summary.csv."""
    efficiency = rate / one / ranks
    settings = {"per_rank_batch": 64, "feed": "prefetch", "step": "fit", "precision": "float32"}
    return {
        "model": model,
        "ranks": ranks,
        **settings,
        "strategy": "horovod",
        "input_dtype": "float32",
        "samples_per_s_global": rate,
        "samples_per_s_low": rate * 0.97,
        "samples_per_s_high": rate * 1.02,
        "speedup": rate / one,
        "efficiency": efficiency,
        "efficiency_low": efficiency * 0.95,
        "efficiency_high": efficiency * 1.03,
        "step_ms_p50": 1000 * 64 * ranks / rate,
        "input_wait_share": 0.031,
        "status": "ok",
        "reason": "",
    }


CELLS = [cell("resnet50", 1, 801.0, 801.0), cell("resnet50", 2, 1530.0, 801.0), cell("resnet50", 4, 2790.0, 801.0)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Analysis, list[Timeline]]:
    analysis, timelines = sample()
    path = tmp_path_factory.mktemp("page") / "page.html"
    sweep = page.Sweep(CELLS, looks=[{"text": "4 ranks lose 13 %.", "next": "record them"}])
    path.write_text(page.render(title="sample", command=COMMAND, analysis=analysis, sweep=sweep))
    return path, analysis, timelines


class Opened:
    """The page in a browser that notes every complaint and every request beyond the file itself."""

    def __init__(self, browser: Any, path: Path, **context: Any) -> None:
        self.page = browser.new_context(**context).new_page()
        self.page.set_default_timeout(PATIENCE_S * 1000)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        if self.page.query_selector("#packed"):
            wait_until(self.page, "globalThis.picture !== undefined")


def opening(browser: Any, path: Path) -> Iterator[Opened]:
    found = Opened(browser, path, viewport={"width": 1240, "height": 900})
    yield found
    assert found.complaints == []
    assert [url for url in found.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    found.page.context.close()


@pytest.fixture
def opened(browser: Any, made: tuple[Path, Analysis, list[Timeline]]) -> Iterator[Opened]:
    yield from opening(browser, made[0])


@pytest.fixture(scope="module")
def still(browser: Any, made: tuple[Path, Analysis, list[Timeline]]) -> Iterator[Opened]:
    """The page for the tests that only look at it: to open it takes a second of CPU."""
    yield from opening(browser, made[0])


def test_twelve_steps_of_four_gpus_make_a_page_under_5_mb(made: tuple[Path, Analysis, list[Timeline]]) -> None:
    assert made[0].stat().st_size < 5_000_000


@pytest.mark.parametrize("text", ["launching takes 8.4 %", "launching takes 8.4 %."])
def test_the_first_finding_is_a_whole_sentence_before_the_next(text: str) -> None:
    assert page._first_change({"findings": [{"text": text}]}) == " First to change: launching takes 8.4 %."


def test_every_part_of_the_page_is_there_and_the_verdicts_come_first(still: Opened) -> None:
    headings = still.page.locator("h2").all_inner_texts()
    assert headings == [
        "What to change",
        "Where the time goes",
        "Timeline",
        "Steps",
        "Scaling",
        "Feed",
        "Kernels",
        "Copies",
        "Collectives",
        "Doubts",
        "Machine and versions",
    ]
    assert still.page.locator(".finding").count() == 2
    assert still.page.locator(".ledger .gpu").count() == 4
    for chart in ("ledger-by-step", "feed-gaps", "throughput-resnet50", "efficiency"):
        assert still.page.locator(f"#chart-{chart} svg").count() == 1
    assert still.page.locator("#command").inner_text() == COMMAND
    nav = still.page.eval_on_selector_all("nav a", "links => links.map(a => a.getAttribute('href'))")
    assert all(still.page.locator(link).count() == 1 for link in nav)


def test_every_number_on_the_page_is_the_one_in_the_json(
    still: Opened, made: tuple[Path, Analysis, list[Timeline]]
) -> None:
    document = json.loads(json.dumps(table.document_of(made[1].measures).json))
    shown = still.page.eval_on_selector_all(
        "data[data-at]", "all => all.map(e => [e.dataset.at, e.dataset.of ?? '', e.value, e.textContent])"
    )
    assert len(shown) > 500
    assert json.loads(still.page.locator("#measures").text_content()) == document
    for at, of, value, _ in shown:
        expected = at_pointer(document, at)
        if of and expected is not None:
            expected = expected / at_pointer(document, of)
        assert value == ("" if expected is None else str(expected)), at
    texts = {(at, of): text for at, of, _, text in shown}
    span, compute = document["gpus"][2]["span_ns"], document["gpus"][2]["ledger_ns"]["compute"]
    assert texts["/gpus/2/ledger_ns/compute", ""] == numbers.duration(compute)
    assert texts["/gpus/2/ledger_ns/compute", "/gpus/2/span_ns"] == numbers.share(compute / span)


def test_the_markdown_has_the_digits_of_the_page(still: Opened, made: tuple[Path, Analysis, list[Timeline]]) -> None:
    document = table.document_of(made[1].measures)
    text = markdown.of_recordings(document, title="sample", command=COMMAND)
    sections = dict(re.findall(r"^## (.+?)\n\n((?:\|.*\n)+)", text, re.MULTILINE))
    compared = 0
    for title, name in (("GPUs", "gpus"), ("Ledger", "ledger"), ("Steps", "steps"), ("Copies", "copies")):
        rows = [[cell.strip() for cell in line.strip("| \n").split(" | ")] for line in sections[title].splitlines()[2:]]
        on_page = still.page.eval_on_selector_all(
            f"#t-{name} tbody tr", "rows => rows.map(row => [...row.cells].map(cell => cell.textContent.trim()))"
        )
        assert rows == on_page
        compared += sum(map(len, rows))
    assert compared > 500


def test_a_table_sorts_by_any_column_both_ways(opened: Opened) -> None:
    times = "rows => rows.map(row => Number(row.cells[3].dataset.sort))"
    button = opened.page.locator("#t-kernels thead th:nth-child(4) button")
    before = opened.page.eval_on_selector_all("#t-kernels tbody tr", times)
    button.click()
    assert opened.page.eval_on_selector_all("#t-kernels tbody tr", times) == sorted(before, reverse=True)
    assert opened.page.locator("#t-kernels thead th:nth-child(4)").get_attribute("aria-sort") == "descending"
    button.focus()
    opened.page.keyboard.press("Enter")
    assert opened.page.eval_on_selector_all("#t-kernels tbody tr", times) == sorted(before)
    opened.page.locator("#t-kernels thead th:nth-child(1) button").click()
    names = opened.page.eval_on_selector_all("#t-kernels tbody tr", "rows => rows.map(row => row.cells[0].innerText)")
    assert names == sorted(names, key=str.casefold)


def test_a_table_is_filtered_by_what_is_typed(opened: Opened) -> None:
    opened.page.get_by_text("Every step as a table").click()
    opened.page.fill("input[data-for=t-steps]", "Rank 2")
    assert opened.page.locator("#t-steps tbody tr:visible").count() == 12


def test_a_kernel_has_one_row_and_each_gpu_two_columns(still: Opened) -> None:
    heads = still.page.locator("#t-kernels thead th").all_inner_texts()
    titles = [f"rank {rank}, GPU {rank}" for rank in range(4)]
    assert heads == ["kernel", *(head for title in titles for head in (title, f"{title}, share"))]
    names = still.page.locator("#t-kernels tbody th").all_inner_texts()
    assert len(names) == len(set(names)) == 9


@pytest.mark.ci
def test_a_refusal_of_steps_is_said_once_for_all_gpus(browser: Any, tmp_path: Path) -> None:
    timelines = []
    for rank in range(3):
        made = Build(path=f"r{rank}.sqlite", rank=rank)
        for at in (0, 5_000, 9_000):
            made.kernel(at, at + 1_000 + at // 3, f"kernel_{at}", device=rank, pid=10 + rank)
        timelines.append(made.timeline())
    analysis = analyse(timelines, operations=True)
    (refused,) = {gpu.steps.refused for gpu in analysis.measures.gpus}
    assert refused and len(analysis.measures.gpus) == 3
    (tmp_path / "page.html").write_text(page.render(title="no steps", command=COMMAND, analysis=analysis))
    opened = Opened(browser, tmp_path / "page.html")
    opened.page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    everywhere, doubts = (opened.page.locator(where).inner_text() for where in ("body", "#t-doubts"))
    assert (everywhere.count(refused), doubts.count(refused)) == (2, 1), "beside the table of times, and as a doubt"
    opened.page.context.close()


def test_a_click_on_a_gap_shows_it_in_the_timeline(browser: Any, tmp_path: Path) -> None:
    timelines = []
    for rank in range(2):
        made = Build(path=f"r{rank}.sqlite", rank=rank)
        for number in range(12):
            start = 5_000_000 + 1_000_000 * number + 70_000 * number * rank
            made.kernel(start, start + 300_000, f"kernel_{number}", device=rank, pid=10 + rank)
        timelines.append(made.timeline())
    analysis = analyse(timelines, operations=True)
    (tmp_path / "page.html").write_text(page.render(title="gaps", command=COMMAND, analysis=analysis))
    opened = Opened(browser, tmp_path / "page.html", viewport={"width": 1240, "height": 500})
    buttons = opened.page.locator("#t-idle-gaps tbody button.when")
    rows = opened.page.locator("#t-idle-gaps tbody tr")
    assert buttons.count() == rows.count() == 20
    for place in (0, 19):
        rank = int(re.findall(r"rank (\d)", rows.nth(place).inner_text())[0])
        gap = 770_000 if rank else 700_000
        opened.page.evaluate("scrollTo(0, 0)")
        buttons.nth(place).click()
        wait_until(opened.page, f"Math.abs(picture.view[1] - picture.view[0] - {2 * gap}) < 2")
        low, high = opened.page.evaluate("picture.view.map(ns => ns + picture.data.start)")
        starts, ends = (timelines[rank].kernels[name].tolist() for name in ("start_ns", "end_ns"))
        inside = [end for end, start in zip(ends, starts[1:], strict=False) if low - 2 < end and start < high + 2]
        assert len(inside) == 1, "the gap as a whole, and no other of its GPU"
        at_an_end = inside[0] in (ends[0], ends[-2])
        assert at_an_end or abs((low + high) / 2 - inside[0] - gap / 2) < 2, "in the middle"
        assert opened.page.evaluate("document.activeElement.id") == "picture"
        top = "document.querySelector('#picture').getBoundingClientRect()"
        assert opened.page.evaluate(f"{top}.top < innerHeight && {top}.bottom > 0"), "scrolled to"
    assert opened.complaints == []
    opened.page.context.close()


def test_doubts_say_in_words_what_they_touch(still: Opened) -> None:
    said = still.page.locator("#t-doubts tbody tr td:last-child").all_inner_texts()
    assert said and not any("/" in one for one in said)


@pytest.mark.ci
def test_paper_shows_what_is_folded_away_on_the_screen(opened: Opened) -> None:
    folded = "document.querySelectorAll('details:not([open])').length"
    before = opened.page.evaluate(folded)
    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert before > 3 and opened.page.evaluate(folded) == 0
    assert opened.page.locator(".finding dl").first.is_visible()
    opened.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert opened.page.evaluate(folded) == before


@pytest.mark.ci
def test_paper_holds_every_column_and_is_light(opened: Opened) -> None:
    opened.page.set_viewport_size({"width": 720, "height": 1000})  # A4 less its margins
    opened.page.emulate_media(media="print", color_scheme="dark")
    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    cut_off = """() => [...document.querySelectorAll('.scroll, .drawing, pre')]
        .filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.ariaLabel || one.className)"""
    assert opened.page.evaluate(cut_off) == []
    assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(245, 246, 248)"
    kept = "getComputedStyle(document.querySelector('.strip i')).printColorAdjust"
    assert opened.page.evaluate(kept) == "exact"  # else browsers print no bar at all


def test_the_chart_of_the_steps_takes_the_whole_width(still: Opened) -> None:
    chart, place = (still.page.locator(one).bounding_box() for one in ("#chart-ledger-by-step svg", "#steps .steps"))
    assert chart["width"] == pytest.approx(place["width"], abs=2)


@pytest.mark.ci
def test_streams_are_named_on_a_phone(browser: Any, made: tuple[Path, Analysis, list[Timeline]]) -> None:
    phone = Opened(browser, made[0], viewport={"width": 390, "height": 844}, has_touch=True)
    written = phone.page.evaluate(
        """() => { const said = [], paint = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (...all) { said.push(all[0]); paint.apply(this, all); };
        picture.paint(); CanvasRenderingContext2D.prototype.fillText = paint; return said; }"""
    )
    assert {"ledger", "stream 17", "stream 21"} <= set(written)
    phone.page.context.close()


def view(opened: Opened, *, after: tuple[float, float] | None = None) -> tuple[float, float]:
    """What the picture shows; `after`: once that is no longer this."""
    if after is not None:
        wait_until(opened.page, "before => picture.view.some((at, i) => at !== before[i])", list(after))
    return tuple(opened.page.evaluate("picture.view"))


@pytest.mark.ci
def test_the_timeline_zooms_by_button_key_wheel_and_drag(opened: Opened) -> None:
    whole = view(opened)
    opened.page.get_by_role("button", name="Zoom in").click()
    half = view(opened, after=whole)
    assert half[1] - half[0] == pytest.approx((whole[1] - whole[0]) / 2)
    canvas = opened.page.locator("#picture")
    canvas.scroll_into_view_if_needed()
    canvas.focus()
    opened.page.keyboard.press("+")
    near = view(opened, after=half)
    assert near[1] - near[0] == pytest.approx((half[1] - half[0]) * 0.6)
    opened.page.keyboard.press("ArrowRight")
    moved = view(opened, after=near)
    assert moved[0] > half[0]
    box = canvas.bounding_box()
    opened.page.mouse.move(box["x"] + 600, box["y"] + 60)
    opened.page.keyboard.down("Control")
    opened.page.mouse.wheel(0, -200)
    opened.page.keyboard.up("Control")
    closer = view(opened, after=moved)
    assert closer[1] - closer[0] < moved[1] - moved[0]
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + 400, box["y"] + 60)
    opened.page.mouse.up()
    dragged = view(opened, after=closer)
    assert dragged[0] > closer[0]
    opened.page.keyboard.press("Home")
    assert view(opened, after=dragged) == whole


@pytest.mark.ci
def test_the_worst_step_is_offered_and_drawn_operation_by_operation(
    opened: Opened, made: tuple[Path, Analysis, list[Timeline]]
) -> None:
    rows = made[1].measures.gpus[0].steps.rows
    worst = max(rows, key=lambda row: row.end_ns - row.start_ns)
    whole = view(opened)
    opened.page.get_by_role("button", name=f"worst: step {worst.step}").click()
    start, end = view(opened, after=whole)
    rank0 = "picture.rows.find(row => row.lane.name == 'stream 17')"
    drawn = opened.page.evaluate(f"picture.raws({rank0}).map(raw => raw.start.length)")
    kernels = made[2][0].kernels
    at = (kernels.stream == 17) & (kernels.start_ns < worst.end_ns) & (kernels.end_ns > worst.start_ns)
    memsets = made[2][0].memsets
    set_in_step = (memsets.start_ns < worst.end_ns) & (memsets.end_ns > worst.start_ns)
    assert drawn[-1:] == [int(at.sum()) + int(set_in_step.sum())]
    assert end - start < 2.5 * (worst.end_ns - worst.start_ns)
    wait_until(opened.page, "document.querySelector('#picture-says').innerText.includes('Showing')")
    assert "Showing" in opened.page.locator("#picture-says").inner_text()


@pytest.mark.ci
def test_a_kernel_is_found_in_the_timeline_and_shown(
    opened: Opened, made: tuple[Path, Analysis, list[Timeline]]
) -> None:
    whole = view(opened)
    opened.page.fill("#find", "AllReduce")
    windows = opened.page.evaluate("picture.data.gpus.map(gpu => gpu.raw.map(raw => [raw.start, raw.end]))")
    start, shifts = opened.page.evaluate("picture.data.start"), made[1].shift_ns
    expected = 0
    for timeline, shift, of_gpu in zip(made[2], shifts, windows, strict=True):
        kernels = timeline.kernels[timeline.kernels["name"].astype(str).str.contains("AllReduce")]
        for low, high in of_gpu:
            begins, ends = kernels.start_ns + shift - start, kernels.end_ns + shift - start
            expected += int(((ends > low) & (begins < high)).sum())
    assert expected > 4
    assert opened.page.locator("#found").inner_text().startswith(f"{expected} in the steps")
    opened.page.locator("#find").press("Enter")
    near = view(opened, after=whole)
    first, length = opened.page.evaluate("picture.matches[0]")
    assert near[0] < first and near[1] > first + length and near[1] - near[0] < (whole[1] - whole[0]) / 3
    opened.page.fill("#find", "")
    assert opened.page.locator("#found").inner_text() == "" and opened.page.evaluate("picture.wanted === undefined")


@pytest.mark.ci
def test_what_the_picture_unpacks_is_what_was_recorded(
    still: Opened, made: tuple[Path, Analysis, list[Timeline]]
) -> None:
    """Start and length of every kernel of the worst step of one GPU, exactly."""
    raw = still.page.evaluate(
        """() => { const gpu = picture.data.gpus[1], raw = gpu.raw[1];
        const lane = raw.lanes[gpu.lanes.findIndex(lane => lane.name == 'stream 23')];
        return {from: raw.start + picture.data.start, to: raw.end + picture.data.start,
                start: [...lane.start].map(x => x + picture.data.start), length: [...lane.length],
                label: [...lane.label].map(i => picture.data.labels[i])}; }"""
    )
    kernels = made[2][1].kernels
    mine = kernels[(kernels.stream == 23) & (kernels.end_ns > raw["from"]) & (kernels.start_ns < raw["to"])]
    assert raw["start"] == mine.start_ns.tolist()
    assert raw["length"] == (mine.end_ns - mine.start_ns).tolist()
    assert raw["label"] == mine.name.tolist()


@pytest.mark.ci
def test_the_timeline_says_what_is_under_the_pointer(opened: Opened) -> None:
    row = opened.page.evaluate("(({y, height}) => ({y, height}))(picture.rows[0])")
    opened.page.locator("#timeline").scroll_into_view_if_needed()
    box = opened.page.locator("#picture").bounding_box()
    opened.page.mouse.move(box["x"] + 500, box["y"] + row["y"] + row["height"] - 2)
    said = opened.page.locator("#tip").inner_text()
    assert "rank 0, GPU 0" in said
    assert "compute" in said


@pytest.mark.ci
def test_a_phone_shows_the_page_without_moving_it_sideways(
    browser: Any, made: tuple[Path, Analysis, list[Timeline]]
) -> None:
    for scheme in ("light", "dark"):
        phone = Opened(browser, made[0], viewport={"width": 390, "height": 844}, color_scheme=scheme, has_touch=True)
        assert phone.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert phone.complaints == []
        phone.page.context.close()


# WCAG 2.2, 1.4.3: 4.5:1 for text.
CONTRAST = """() => {
    const channel = c => (c /= 255) <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
    const parse = text => (text.match(/[\\d.]+/g) ?? []).map(Number);
    const light = ([r, g, b]) => .2126 * channel(r) + .7152 * channel(g) + .0722 * channel(b);
    const ground = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
        if (c.length === 3 || c[3] === 1) return c; } return [255, 255, 255]; };
    const low = [], TEXT = 'p, h1, h2, h3, td, th, dt, dd, summary, nav a, .what, .where, button, caption';
    for (const e of document.querySelectorAll(TEXT)) {
        const a = light(parse(getComputedStyle(e).color)), b = light(ground(e));
        const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
        if (ratio < 4.5) low.push([e.tagName, e.className, e.textContent.trim().slice(0, 40), ratio]);
    }
    return low;
}"""


@pytest.mark.ci
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(
    browser: Any, made: tuple[Path, Analysis, list[Timeline]], scheme: str
) -> None:
    opened = Opened(browser, made[0], viewport={"width": 1240, "height": 900}, color_scheme=scheme)
    assert opened.page.evaluate(CONTRAST) == []
    opened.page.context.close()


@pytest.mark.ci
def test_everything_is_named_and_reached_by_keyboard(opened: Opened) -> None:
    unnamed = opened.page.evaluate(
        """() => [...document.querySelectorAll('button, a, input, canvas, svg[role], [role=region], [role=img]')]
        .filter(e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label') || e.ariaLabel
                       || e.closest('[aria-hidden]') || e.parentElement.closest('figure')))
        .map(e => e.outerHTML.slice(0, 80))"""
    )
    assert unnamed == []
    seen = set()
    for _ in range(120):
        opened.page.keyboard.press("Tab")
        seen.add(opened.page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        if {"theme", "picture"} <= seen:
            break
    assert {"theme", "picture", "A", "SUMMARY", "BUTTON"} <= seen


def test_a_name_in_a_recording_runs_nothing(still: Opened) -> None:
    assert still.page.locator("#t-kernels").get_by_text("<script>alert('x')</script>").count() == 1


@pytest.mark.ci
def test_a_page_of_a_sweep_alone_shows_how_it_scales(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "sweep.html"
    path.write_text(
        page.render(title="runs", command="ringscope report runs --html sweep.html", sweep=page.Sweep(CELLS))
    )
    opened = Opened(browser, path, viewport={"width": 1240, "height": 900})
    assert opened.page.locator("#chart-efficiency svg").count() == 1
    assert opened.page.locator("#verdicts").count() == 0  # nothing was found, or looked for
    assert opened.page.locator(opened.page.locator(".skip").get_attribute("href")).count() == 1
    assert opened.page.locator("#t-cells tbody tr").count() == 3
    assert "2,790 samples/s" in opened.page.locator("#t-cells").inner_text()
    assert opened.complaints == []
    opened.page.context.close()
