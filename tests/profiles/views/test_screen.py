"""One screen: at most 60 lines of up to 8 GPUs at any usual width, the owners whole, what does not fit counted."""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from profiles import analyse
from profiles.ground import numbers
from profiles.ground.errors import RingscopeError
from profiles.model.findings import Consequence, Finding
from profiles.model.gpu_metrics import KINDS_OF_TIME, METRICS, Energy, GpuMetrics
from profiles.model.measures import CAUSES, CLASSES, MANY_GPUS, GpuMeasures, Measures
from profiles.model.steps import ToldBreak
from profiles.model.timeline import Doubt
from profiles.views.palette import OWNERS as LOOKS
from profiles.views.terminal import screen
from tests.made import hand
from tests.recordings import DATA, SHARED, needs_shared
from tests.tiers import few

WIDTHS = [80, 100, 120]
COUNTS = few(range(1, MANY_GPUS + 1), MANY_GPUS - 1)  # one and as many as have columns; between them now and then
LONG = "a sentence that goes on for as long as sentences of findings do, with numbers such as 12.34 ms, " * 6
OWNERS = (*CLASSES, *(f"idle_{cause}" for cause in CAUSES))


def printed(measures: Measures, width: int, only: Sequence[int] = ()) -> str:
    out = io.StringIO()
    screen.show(measures, Console(file=out, width=width, highlight=False, markup=False, emoji=False), only=only)
    return out.getvalue()


def crowded(gpus: int, *, ranks: bool = True) -> Measures:
    """As much to say as there can be: each owner owns time, and there are more and longer texts than have room."""
    ledger = {owner: 500_000 + place for place, owner in enumerate(OWNERS)}
    made = [hand.gpu(rank=place, ledger=ledger) for place in range(gpus)]
    if not ranks:
        made = [replace(gpu, rank=None, device=0) for gpu in made]
    found = hand.measures(made)
    waits = [Consequence([0], 0.2, 5, [], LONG), Consequence([0], 0.1, 5, [], LONG)]
    found.findings = [
        Finding(f"code-{place}", gpus - 1, 1, 0.5, LONG, LONG, {}, "", {"compute": 1}, waits) for place in range(7)
    ]
    found.breaks = [ToldBreak(0, 3, 1, 2, 1, "host", 1, LONG, 0.5)] * 4
    found.doubts = [Doubt(f"doubt-{place}", LONG, LONG, ("/gpus/0/ledger_ns/compute",)) for place in range(9)]
    return found


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("ranks", [True, False], ids=["ranks", "the same device on each host"])
@pytest.mark.parametrize("gpus", COUNTS)
def test_a_screen_holds_sixty_lines_whatever_there_is_to_say(gpus: int, ranks: bool, width: int) -> None:
    found = crowded(gpus, ranks=ranks)
    text = printed(found, width)
    lines = text.splitlines()
    assert len(lines) <= screen.LINES - screen.BESIDE and max(map(len, lines)) <= width
    for owner in OWNERS:  # none is left out
        (row,) = {line for line in lines if f" {LOOKS[owner].label} " in line} or {""}
        shares = numbers.share_of(found.gpus[0].ledger_ns[owner], found.gpus[0].span_ns)
        assert row.count(shares) >= 1
    codes = [finding.code for finding in found.findings]
    assert all(f"• {code}: " in text for code in codes[:3]) and not any(f"• {code}: " in text for code in codes[3:])
    assert "and 4 more: " in text


def sampled(gpu: GpuMeasures, unknown: str | None = None, per_step: float | None = 19.47) -> GpuMeasures:
    """The same with counters: half of its compute is tensor-bound."""
    compute = gpu.ledger_ns["compute"] or 0
    bound = {"tensor": compute // 2, "memory": compute // 4, "latency": 0}
    bound["unsampled"] = compute - sum(bound.values())
    owned = dict.fromkeys(KINDS_OF_TIME, 0)
    means: dict[str, dict[str, float | None]] = {kind: dict.fromkeys(METRICS) for kind in (*KINDS_OF_TIME, "window")}
    power = Energy(214.2, 382.1, gpu.span_ns, per_step, 20)
    found = GpuMetrics(100_000, 9, 0, owned, means, None if unknown else bound, unknown, 0, 0, power, None)
    return replace(gpu, gpu_metrics=found)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("gpus", COUNTS)
def test_a_screen_with_gpu_metrics_holds_sixty_lines_too(gpus: int, width: int) -> None:
    found = crowded(gpus)
    found.gpus = [sampled(gpu) for gpu in found.gpus]
    lines = printed(found, width).splitlines()
    assert len(lines) <= screen.LINES - screen.BESIDE and max(map(len, lines)) <= width
    found.findings, found.breaks, found.doubts = [], [], []
    (row,) = (line for line in printed(found, width).splitlines() if line.strip().startswith("tensor-bound"))
    assert row.count("50.0 %") == gpus and "latency, other" not in printed(found, width)
    energy = [line for line in printed(found, width).splitlines() if line.startswith("energy, per step")]
    assert [line.count("214 J, 19.5 J") for line in energy] in ([gpus], [])
    found.gpus = [sampled(gpu, per_step=None) for gpu in found.gpus]
    energy = [line for line in printed(found, width).splitlines() if line.startswith("energy")]
    assert [line.split()[:3] for line in energy] in ([["energy", "214", "J"]], [])
    found.gpus = [sampled(gpu, "the set has no Tensor Active") for gpu in found.gpus]
    assert "n/a (the set has no Tensor Active)" in " ".join(printed(found, width).split())


@pytest.mark.parametrize("width", WIDTHS)
def test_what_has_room_is_said_whole(width: int) -> None:
    found = crowded(2)
    finding, doubt = found.findings[0], found.doubts[0]
    finding.text, finding.change, finding.consequences[0].text = "the cause in short", "the change", "rank 0 waits"
    found.findings, found.doubts, found.breaks = [finding], [doubt], []
    text = " ".join(printed(found, width).split())
    assert "the cause in short (at most +50.0 %) → the change and rank 0 waits (and 1 more)" in text
    assert LONG.strip() in text and "what to doubt" in text


def test_doubts_that_touch_nothing_shown_are_named_alone() -> None:
    found = crowded(2)
    found.findings, found.breaks = [], []
    found.doubts = [
        Doubt("of-the-ledger", "one", "do", ("/gpus/1/ledger_ns/idle_sync",)),
        Doubt("of-all", "two", "do"),
        Doubt("of-operators", "three", "do", ("/gpus/0/operators",)),
        Doubt("of-another-gpu", "four", "do", ("/gpus/0/ledger_ns",)),
    ]
    text = printed(found, 100, only=[1])
    assert "of-the-ledger: one" in text and "of-all: two" in text
    assert "also: doubts: of-operators, of-another-gpu" in " ".join(text.split()) and "three" not in text


def test_a_screen_leads_with_the_capture_where_the_steps_are_little_of_it() -> None:
    (gpu,) = (
        found := hand.measures([hand.gpu(rank=0, ledger={"compute": 900, "idle_launch": 100}, step_ns=1_000)])
    ).gpus
    whole = gpu.ledger_ns | {"compute": 10_000, "idle_launch": 90_000}
    gpu.window, gpu.capture = "steps", {"window_ns": [0, 100_000], "span_ns": 100_000, "ledger_ns": whole}
    text = " ".join(printed(found, 100).split())
    assert re.search(r"idle: launch +90\.00 µs +90\.0 %", text) and "the steps cover 10.0 % of it" in text
    assert "sums to the recording" in text and "sums to the window" not in text


def sets(folder: Path) -> dict[str, list[Path]]:
    """Recordings of the same training together."""
    found = defaultdict(list)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "hostile" not in path.parts and path.suffix not in (".md", ".py"):
            found[re.sub(r"\.?rank-?\d+.*", "", str(path.relative_to(folder)))].append(path)
    return found


def check(paths: Sequence[Path]) -> None:
    try:
        measures = analyse([str(path) for path in paths]).measures
    except RingscopeError:
        return  # it is no timeline, and what is said then is one line
    assert len(measures.gpus) <= MANY_GPUS
    for width in WIDTHS:
        text = printed(measures, width)
        assert len(text.splitlines()) <= screen.LINES - screen.BESIDE and "Thunk:#" not in text


@pytest.mark.ci
@pytest.mark.parametrize("name", sets(DATA))
def test_our_recordings_fit_a_screen(name: str) -> None:
    check(sets(DATA)[name])


@needs_shared
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sets(SHARED))
def test_recordings_of_others_fit_a_screen(name: str) -> None:
    check(sets(SHARED)[name])
