"""The comparison of frameworks: its table by hand, and its runs on the CPU, as far as the frameworks are here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import fit
from benchmarks.fit_families import FAMILIES

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "docs/results/2026-11-22-2xh200-families/runs.jsonl"
LATER = [ROOT / f"docs/results/2026-11-23-2xh200-{part}/runs.jsonl" for part in ("fit", "forms")]  # in its place


def _row(way: str, rate: float, first: float, **more: Any) -> dict[str, Any]:
    row = {"model": "decoder", "gpus": 1, "way": way, "start": 1, "samples_per_s": rate, "first_step_s": first}
    return {**row, "peak_gib": 2.5, **more}


def test_the_table_has_rates_ratios_and_both_starts() -> None:
    rows = [
        _row("ring", 1200.0, 60.0),
        _row("ring", 1210.0, 20.0, start=2),
        _row("jax", 1100.0, 25.0),
        {"model": "decoder", "gpus": 1, "way": "torch", "start": 1, "error": "out of memory"},
        _row("ring", 9.0, 1.0, model="lstm", peak_gib=None),
    ]
    head, _, *lines = (line.strip("| ").split(" | ") for line in fit.table(rows).splitlines())
    assert head[2:5] == ["ring, samples/s", "Keras on JAX, samples/s", "torch.compile + DDP, samples/s"]
    assert lines[0][:7] == ["decoder", "1", "1,210.0", "1,100.0", "failed", "1.10", ""]
    assert lines[0][7:] == ["60.0 (again 20) / 25.0 / failed", "2.5 / 2.5 / failed"]
    assert lines[1][:3] == ["lstm", "1", "9.0"] and lines[1][-1].startswith("n/a")


def test_every_family_can_be_started_in_every_way() -> None:
    options = fit.argparse.Namespace(steps=3, epochs=2, samples=None)
    for model in FAMILIES:
        for way in fit.WAYS:
            for gpus in (1, 2):
                argv = fit.Run(model, way, gpus).argv(options)
                assert model in argv and ("horovodrun" in argv) == (way == "ring" and gpus == 2)
                assert ("torch.distributed.run" in argv) == (way == "torch" and gpus == 2)


def test_what_is_no_model_or_way_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit.main(["run", "--models", "decoder,lstn", "--out", str(tmp_path / "x")]) == 2
    assert "'lstn' is none of" in capsys.readouterr().err and not (tmp_path / "x").exists()


def test_the_committed_rows_make_a_table() -> None:
    rows = [json.loads(line) for line in COMMITTED.read_text().splitlines()]
    assert fit.table(rows).count("\n") >= 7


NAMES = {"ResNet-50": "resnet50", "decoder": "decoder", "ViT-S/16": "vit_s", "ConvNeXt-Tiny": "convnext_tiny"}
NAMES |= {"recommender": "recommender", "LSTM": "lstm", "GRU": "gru", "encoder": "encoder", "U-Net": "unet"}


def _best(runs: Path) -> dict[tuple[str, str, int], float]:
    best: dict[tuple[str, str, int], float] = {}
    for row in map(json.loads, runs.read_text().splitlines()):
        if row.get("xla_flags"):  # README's rows have no option
            continue
        key = row["model"], row["way"], row["gpus"]
        best[key] = max(best.get(key, 0.0), row["samples_per_s"])
    return best


def test_the_readme_shows_the_committed_rates() -> None:
    best = _best(COMMITTED) | _best(LATER[0]) | _best(LATER[1])
    text = (ROOT / "README.md").read_text()
    of_fit = text[text.index("python -m benchmarks.fit") : text.index("The harness's own grid")]
    seen = 0
    for line in of_fit.splitlines():
        cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
        if cells[0].split(",")[0] not in NAMES:
            continue
        for way, shown in zip(("ring", "jax", "torch"), cells[1:], strict=True):
            rate = best.get((NAMES[cells[0].split(",")[0]], way, 1))
            assert shown.replace(" ", "") in ({"", "fails"} if rate is None else {f"{rate:.0f}"}), line
            seen += rate is not None
    assert seen == sum(gpus == 1 for _, _, gpus in best)
    for model in ("resnet50", "decoder"):
        on_two = best[model, "ring", 2]
        assert f"{on_two:,.0f}".replace(",", " ") in of_fit
        assert f"{on_two / best[model, 'ring', 1] / 2:.1%}".replace("%", " %") in of_fit


@pytest.mark.long
@pytest.mark.train
def test_a_run_on_the_cpu_says_what_it_measured_and_what_failed(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    out = tmp_path / "rows.jsonl"
    words = ["--models", "lstm", "--ways", "ring,plain,torch", "--gpus", "0", "--samples", "4"]
    code = fit.main(["run", *words, "--steps", "2", "--epochs", "2", "--starts", "2", "--out", str(out)])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["way"], row["start"]) for row in rows] == [("ring", 1), ("ring", 2), ("plain", 1), ("torch", 1)]
    for row in rows[:3]:
        assert row["samples_per_s"] > 0 and row["first_step_s"] > 0 and row["peak_gib"] is None
    assert rows[0]["loss"] == pytest.approx(rows[2]["loss"], rel=1e-3)  # two lines train what none do
    assert code == ("error" in rows[3])
