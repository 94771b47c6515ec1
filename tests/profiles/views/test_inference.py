"""The report of inference, on a terminal of 80 columns and as charts."""

from __future__ import annotations

import errno
import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from profiles.doubts import inference as doubts
from profiles.ground.errors import RingscopeError
from profiles.inference import crossover, loads
from profiles.inference.records import Call, Inference, Served, Together
from profiles.views.charts import chart
from profiles.views.terminal import inference as view
from tests.figures import figures

MS = 1_000_000
CPU = [Call("dense2", 202, "CPU", batch, 100, ns, 2 * ns) for batch, ns in ((1, 60_000), (1000, 900_000))]
GPU = [
    Call("dense2", 202, "GPU", batch, 100, ns, 2 * ns, 40_000, 5_000, ns - 45_000, 6)
    for batch, ns in ((1, 210_000), (1000, 215_000))
]
ROW = Served(
    "litserve", "mlp", 8, 5.0, 200.0, 4000, 0, 0, 199.5, 8 * MS, 19 * MS, 40 * MS, True, MS, 3.25, 6 * MS, 11 * MS
)
FOUND = Inference(
    calls=[call for pair in zip(CPU, GPU, strict=True) for call in pair],
    crossovers=[crossover.crossover(CPU, GPU)],
    together=[
        Together("resnet50", "replicas", 4, 1, 256, 31_000.0, 33 * MS, 35 * MS),
        Together("resnet50", "synchronous", 1, 4, 256, 15_500.0, 66 * MS, 70 * MS),
    ],
    served=[ROW, replace(ROW, most=1, wait_ms=0.0, keeps_up=False, lost=3, wrong=2, mean_batch=1.0, p99_ns=38 * MS)],
    failures=[{"what": "vgg16 on the GPU with 9999", "why": "[out] of memory"}],
    doubts=[doubts.one_machine()],
)
FOUND.best = loads.best(FOUND.served)


def printed(found: Inference, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    view.show(found, "runs/x", console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def row(text: str, *words: str) -> str:
    """The one line that begins with these words."""
    (line,) = (line for line in text.splitlines() if line.split()[: len(words)] == list(words))
    return line


def test_every_part_has_its_table_and_its_words() -> None:
    text = printed(FOUND, 200)
    longest = row(text, "dense2", "GPU", "1,000")
    parts = ["170.0 µs", "40.00 µs", "5.000 µs"]
    assert figures(longest) == ["1,000", "202", "215.0 µs", "430.0 µs", "4,651,163 samples/s", *parts]
    assert FOUND.crossovers[0].text in " ".join(text.split())
    assert row(text, "resnet50", "replicas").split()[2:5] == ["4", "1", "256"]
    assert "15,500 samples/s" in row(text, "resnet50", "synchronous")
    busy, alone = (row(text, "mlp,", "litserve", "200", most) for most in ("8", "1"))
    assert {"19.00 ms", "11.00 ms", "3.250"} <= set(figures(busy))
    assert alone.split()[-3:] == ["3", "2", "no"] and busy.split()[-3:] == ["0", "0", "yes"]
    assert "[out] of memory" in row(text, "vgg16", "on", "the", "GPU") and "load-beside-server" in text


def test_at_80_columns_the_keys_of_a_row_stand_again_in_each_part_of_its_table() -> None:
    text = printed(FOUND)
    assert max(map(len, text.splitlines())) <= 80
    parts = [line for line in text.splitlines() if line.split()[:3] == ["dense2", "GPU", "1,000"]]
    assert {"4,651,163 samples/s", "170.0 µs"} <= set(figures(" ".join(parts))) and len(parts) == 2


def test_nothing_measured_shows_no_empty_table() -> None:
    assert printed(Inference()).split() == ["Inference,", "runs/x"]


def test_charts_that_do_not_fit_onto_the_disk_leave_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(RingscopeError, match="No space left on device"):
        chart.write(view.charts(FOUND.to_json()), tmp_path / "new" / "charts")
    assert not list(tmp_path.iterdir())


def test_charts_draw_calls_and_latency_of_the_json() -> None:
    calls, latency = view.charts(FOUND.to_json())
    assert (calls.id, latency.id) == ("calls-dense2", "latency-200")
    values = calls.spec["data"]["values"]
    assert {"x": 1000, "y": 0.215, "what": "GPU"} in values and len(values) == 4
    assert {"x": 5.0, "y": 19.0, "what": "p99, batches of up to 8"} in latency.spec["data"]["values"]
    assert calls.svg().startswith("<svg") and latency.svg().startswith("<svg")
