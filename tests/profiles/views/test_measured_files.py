"""Pages of `infer`, `rules` and Inspector's logs in a browser: numbers are the JSON's, and a phone can read them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from profiles.ground import numbers
from profiles.measuring import logged
from profiles.rules import RULES, Found, judge, to_json
from profiles.views.files import measured_files
from tests.made.pointer import at_pointer
from tests.profiles.measuring.test_logged import line, write
from tests.profiles.views.test_inference import FOUND
from tests.profiles.views.test_page import Opened

pytestmark = [pytest.mark.browser, pytest.mark.ci]
COMMAND = ["ringscope", "infer", "--models", "my model.keras"]
MACHINE = {"host": "<node1>", "cpu": {"model": "a CPU", "usable": 4}}


@pytest.fixture(scope="module")
def inference() -> dict[str, Any]:
    FOUND.machine = MACHINE
    found: dict[str, Any] = json.loads(json.dumps(FOUND.to_json()))
    return found


@pytest.fixture(scope="module")
def rules() -> dict[str, Any]:
    turns = [{"advised": k % 4 in (1, 2), "samples": 200 if k % 4 in (1, 2) else 100, "ns": 10**8} for k in range(12)]
    found = [
        judge(RULES["cache"], turns, "planted <b>"),
        Found(RULES["tf32"], "needs-gpu"),
        Found(RULES["prefetch"], "failed", reason="no room"),
    ]
    told: dict[str, Any] = json.loads(json.dumps(to_json(found, MACHINE)))
    return told


def checked(browser: Any, path: Path, found: dict[str, Any]) -> Opened:
    """The page open as on a phone, where each number that points into the JSON has been found equal."""
    opened = Opened(browser, path, viewport={"width": 390, "height": 800})
    pointing = opened.page.eval_on_selector_all(
        "data[data-at]", "all => all.map(e => [e.dataset.at, e.dataset.of, e.value])"
    )
    assert json.loads(opened.page.locator("#measures").text_content()) == found
    for at, of, value in pointing:
        expected = at_pointer(found, at)
        if of and expected is not None:
            expected /= at_pointer(found, of)
        assert value == ("" if expected is None else str(expected)), at
    assert opened.complaints == [] and all(url.startswith(("file:", "data:", "blob:")) for url in opened.requests)
    assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    nav = opened.page.eval_on_selector_all("nav a", "links => links.map(a => a.getAttribute('href'))")
    assert all(opened.page.locator(link).count() == 1 for link in [*nav, ".skip"])
    assert "<node1>" in opened.page.locator("#machine").inner_text()
    return opened


def shown(opened: Opened, table: str) -> list[dict[str, str]]:
    heads = [head.strip() for head in opened.page.locator(f"#t-{table} thead th").all_inner_texts()]
    told = opened.page.eval_on_selector_all(
        f"#t-{table} tbody tr", "rows => rows.map(row => [...row.cells].map(cell => cell.textContent.trim()))"
    )
    return [dict(zip(heads, cells, strict=True)) for cells in told]


def test_a_page_of_inference_has_every_part_with_its_words(
    browser: Any, inference: dict[str, Any], tmp_path: Path
) -> None:
    measured_files.write_inference(tmp_path / "infer.html", inference, title="runs/x", command=COMMAND)
    opened = checked(browser, tmp_path / "infer.html", inference)
    headings = opened.page.locator("main h2").all_inner_texts()
    assert headings == ["CPU and GPU", "Replicas", "Serving", "What failed", "Doubts", "Machine and versions"]
    assert [row["call, median"] for row in shown(opened, "calls")] == ["60.00 µs", "210.0 µs", "900.0 µs", "215.0 µs"]
    assert [row["throughput"] for row in shown(opened, "together")] == [numbers.per_s(31_000), numbers.per_s(15_500)]
    first, second = shown(opened, "served")
    assert (first["p99"], first["p99 alone"], first["keeps up"]) == ("19.00 ms", "11.00 ms", "yes")
    assert (second["lost"], second["wrong"], second["keeps up"]) == ("3", "2", "no")
    said = opened.page.locator("#calls .looks, #served .looks").all_inner_texts()
    assert inference["crossovers"][0]["text"] in said[0] and inference["best"][0]["text"] in said[1]
    assert shown(opened, "failures") == [{"what": "vgg16 on the GPU with 9999", "why": "[out] of memory"}]
    assert opened.page.locator("#chart-calls-dense2 svg").count() == 1
    assert "load-beside-server" in opened.page.locator("#doubts").inner_text()
    assert opened.page.locator("#command").inner_text() == "ringscope infer --models 'my model.keras'"
    opened.page.context.close()


def test_a_page_of_rules_has_a_row_for_each_also_for_one_that_was_not_measured(
    browser: Any, rules: dict[str, Any], tmp_path: Path
) -> None:
    measured_files.write_rules(tmp_path / "rules.html", rules, title="runs/x", command=["ringscope", "rules"])
    opened = checked(browser, tmp_path / "rules.html", rules)
    assert opened.page.locator("main h2").all_inner_texts() == ["Rules of thumb", "Doubts", "Machine and versions"]
    cache, tf32, prefetch = shown(opened, "rules")
    assert (cache["ratio"], cache["from"], cache["trained"]) == ("2.00 x", "2.00 x", "planted <b>")
    assert "there is no GPU here" in tf32["what that says"] and tf32["ratio"].startswith("n/a")
    assert "no room" in prefetch["what that says"]
    opened.page.context.close()


def test_a_page_of_inspectors_logs_has_every_kind_and_who_waits_in_it(browser: Any, tmp_path: Path) -> None:
    lines = [[line(rank, 0, 10 * (rank + 1)), line(rank, 1, 7, kind="Broadcast")] for rank in range(3)]
    for one in (one for rank in lines for one in rank):
        one["metadata"]["hostname"], one["header"]["comm_name"] = "<node1>", "<b>data"
    found = json.loads(json.dumps(asdict(logged.measure(write(tmp_path, *lines)))))
    measured_files.write_logged(tmp_path / "logs.html", None, found, title="logs/", given=["logs/"])
    opened = checked(browser, tmp_path / "logs.html", found)
    reduce, broadcast = shown(opened, "kinds")
    assert (reduce["communicator"], reduce["bytes"], reduce["transfer"]) == ("<b>data", "1.05 MB", "10.00 µs")
    assert broadcast["transfer"].startswith("n/a")
    assert "one rank only sends or only receives" in broadcast["why transfer is unknown"]
    waits = [(row["rank"], row["waiting"], row["arrived last"]) for row in shown(opened, "ranks")[:3]]
    assert waits == [("0", "0 ns", "100.0 %"), ("1", "10.00 µs", "0 %"), ("2", "20.00 µs", "0 %")]
    assert [row["process"] for row in shown(opened, "processes")] == [f"<node1> {100 + rank}" for rank in range(3)]
    assert "ranks-not-logged" in opened.page.locator("#doubts").inner_text()
    assert opened.page.locator("#command").inner_text() == f"ringscope timeline logs/ --html {tmp_path / 'logs.html'}"
    opened.page.context.close()
