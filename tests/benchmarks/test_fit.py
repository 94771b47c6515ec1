"""The comparison of frameworks: its table by hand, and its runs on the CPU, as far as the frameworks are here."""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import fit
from benchmarks.fit_today import TODAY

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"
COMMITTED = RESULTS / "2026-11-22-2xh200-families/runs.jsonl"
PAGE = (RESULTS / "index.md").read_text()
# Of its first table, newest first: a model's figures are of the first that has it, others of it in brackets.
SHOWN = [RESULTS / f"2026-11-25-2xh100-{letter}/runs.jsonl" for letter in "cb"]
OTHERS = ("2026-11-24-2xh100", "2026-11-24-2xh100-b", "2026-11-25-2xh100", "2026-11-25-2xh100-d")
OF_FOUR = RESULTS / "2026-11-26-4xh200/runs.jsonl"
OF_H200S = [RESULTS / f"{name}/runs.jsonl" for name in ("2026-11-23-1xh200-autotune", "2026-11-23-2xh200-forms")]


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
    for model in fit.MODELS:
        for way in fit.WAYS:
            for gpus in (1, 2):
                argv = fit.Run(model, way, gpus).argv(options)
                assert model in argv and ("horovodrun" in argv) == (way == "ring" and gpus == 2)
                assert ("torch.distributed.run" in argv) == (way == "torch" and gpus == 2)


def test_batches_of_todays_models_are_as_large_as_asked_and_from_the_seed() -> None:
    for model, family in TODAY.items():
        one, again = (family.batch(np.random.default_rng(1), 2) for _ in range(2))
        for part, same in zip(one, again, strict=True):
            np.testing.assert_array_equal(part, same)
            assert len(part) == 2, model
    tokens, words, weights = TODAY["bert_base"].batch(np.random.default_rng(1), 64)
    assert (weights[tokens == 0] == 0).all() and 0.08 < weights.mean() < 0.15
    np.testing.assert_array_equal(tokens[tokens > 0], words[tokens > 0])


def test_what_is_no_model_or_way_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit.main(["run", "--models", "decoder,lstn", "--out", str(tmp_path / "x")]) == 2
    assert "'lstn' is none of" in capsys.readouterr().err and not (tmp_path / "x").exists()


def test_the_committed_rows_make_a_table() -> None:
    rows = [json.loads(line) for line in COMMITTED.read_text().splitlines()]
    assert fit.table(rows).count("\n") >= 7


NAMES = {"ResNet-50": "resnet50", "decoder": "decoder", "ViT-S/16": "vit_s", "ConvNeXt-Tiny": "convnext_tiny"}
NAMES |= {"recommender": "recommender", "LSTM": "lstm", "GRU": "gru", "encoder": "encoder", "U-Net": "unet"}


COLUMNS = [(way, gpus) for gpus in (1, 2) for way in ("ring", "jax", "torch")]
Key = tuple[str, str, int]  # model, way, GPUs


def _rates(*files: Path) -> dict[Key, list[float]]:
    rates: dict[Key, list[float]] = {}
    for row in (json.loads(line) for path in files for line in path.read_text().splitlines()):
        # The page's rows have no option, and no recorder.
        if not any(
            map(row.get, ("XLA_FLAGS", "xla_flags", "flags", "CUDA_DEVICE_MAX_CONNECTIONS", "recorded", "card"))
        ):
            rates.setdefault((row["model"], row["way"], row["gpus"]), []).append(row["samples_per_s"])
    return rates


def _shown(rate: float) -> str:
    return f"{rate / 1e6:.1f}M" if rate >= 1e6 else f"{rate:.0f}"


def test_the_page_shows_the_committed_rates() -> None:
    newest: dict[str, dict[Key, list[float]]] = {}
    for rates in map(_rates, SHOWN):
        for model in {model for model, _, _ in rates}:
            newest.setdefault(model, {key: of_it for key, of_it in rates.items() if key[0] == model})
    best = {key: _shown(max(of_it)) for model in NAMES.values() for key, of_it in newest.get(model, {}).items()}
    files = [*SHOWN, *(RESULTS / name / "runs.jsonl" for name in OTHERS)]
    others = {key: set(map(_shown, of_it)) for key, of_it in _rates(*files).items()}
    of_fit = PAGE[PAGE.index("python -m benchmarks.fit") : PAGE.index("The harness's own grid")]
    seen = set()
    for line in of_fit.splitlines():
        name, *cells = (cell.strip(" *").replace(" ", "") for cell in line.strip("|").split("|"))
        if name.split(",")[0] not in NAMES:
            continue
        for (way, gpus), shown in zip(COLUMNS, cells, strict=True):
            key = NAMES[name.split(",")[0]], way, gpus
            if key in best:
                assert shown == best[key], line
                seen.add(key)
            elif shown not in ("", "fails"):
                assert shown.startswith("(") and shown.strip("()") in others[key], line
    assert seen == set(best)
    compared = _rates(*OF_H200S, COMMITTED)
    for way, gpus in (("jax", 1), ("torch", 1), ("ring", 2)):
        assert f"{max(compared['resnet50', way, gpus]):,.0f}".replace(",", " ") in of_fit
    # With the option that ring sets since.
    of_one = (
        json.loads(line) for line in OF_H200S[0].read_text().splitlines() if '"ring", "model": "resnet50"' in line
    )
    assert f"{max(row['samples_per_s'] for row in of_one):,.0f}".replace(",", " ") in of_fit


def test_the_page_shows_the_committed_rates_of_one_two_and_four_gpus() -> None:
    table = PAGE[PAGE.index("On one, two and four H200s") : PAGE.index("The harness's own grid")]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    (_, *models), _, *rows = ([cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines)
    best = {key: max(of_it) for key, of_it in _rates(OF_FOUR).items()}
    for gpus, (_, *shown) in zip((1, 2, 4), rows, strict=False):
        for model, cell in zip(models, shown, strict=True):
            assert cell.replace(" ", "") == f"{best[NAMES[model], 'ring', gpus]:.0f}"
    for model, cell in zip(models, rows[3][1:], strict=True):
        one, four = (best[NAMES[model], "ring", gpus] for gpus in (1, 4))
        assert cell == f"{four / one / 4:.1%}".replace("%", " %")


def test_every_figure_of_the_readme_is_on_the_page() -> None:
    text = (ROOT / "README.md").read_text()
    section = text[text.index("## Measured") : text.index("## Why you can trust")]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    figures = {figure for row in rows for figure in re.findall(r"\d[\d ]*\.?\d*(?: %)?", row.split("|", 2)[2])}
    assert len(rows) == 5 and len(figures) > 15
    assert not {figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure.strip())}(?![\d.])", PAGE)}


@pytest.mark.exhaustive
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


def test_the_page_of_starts_shows_the_committed_rows() -> None:
    folder = RESULTS / "2026-11-29-2xh200"
    rows = [json.loads(line) for line in (folder / "starts.jsonl").read_text().splitlines()]
    starts = {(row["model"], row["way"], row["start"]): row for row in rows}
    stages = [json.loads(line) for line in (folder / "second-starts.jsonl").read_text().splitlines()]
    page = folder.with_suffix(".md").read_text()
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"]
    tall = 2 + len(stages)
    (head, _, *first), (_, _, *second), (_, _, *newer) = lines[:tall], lines[tall : 2 * tall], lines[2 * tall :]
    ways = {"ring": ("ring", 1), "ring again": ("ring", 2), "plain Keras": ("plain", 1), "Keras on JAX": ("jax", 1)}
    ways |= {"torch.compile": ("torch", 1), "torch.compile again": ("torch", 2)}
    models = list(dict.fromkeys(row["model"] for row in rows))
    shown = set()
    for model, (_, *cells), (_, *seconds) in zip(models, first, second, strict=True):
        for way, cell in zip(head[1:], cells, strict=True):
            row = starts.get((model, *ways[way]))
            if row is not None:
                shown.add((model, *ways[way]))
                none = f"none in {row['limit_s']}" if "limit_s" in row else "fails" if "fails" in row else ""
                assert cell == (none or f"{row['first_step_s']:.0f}"), (model, way)
            else:
                assert not cell
        stage = next(each for each in stages if each["model"] == model)
        parts = [value for name, value in stage.items() if name.endswith("_s") and name != "first_step_s"]
        assert seconds == [f"{value:.1f}" for value in parts]
        assert abs(sum(parts) - starts[model, "ring", 2]["first_step_s"]) < 0.3
    assert shown == set(starts)
    rows = [json.loads(line) for line in (folder / "newer-cudnn.jsonl").read_text().splitlines()]
    for row, (name, *cells) in zip((row for row in rows if not row["recorded"]), newer, strict=True):
        assert name.endswith(", again") == (row["start"] == 2)
        *parts, whole = (value for name, value in row.items() if name.endswith("_s") and name != "samples_per_s")
        assert cells == [*(f"{value:.1f}" for value in parts), f"{whole:.0f}"]
        assert abs(sum(parts) - whole) < 0.3
    stacks = lzma.decompress((folder / "nasnet-again-stacks.txt.xz").read_bytes()).decode().splitlines()
    calls = sum(int(stack.rsplit(" ", 1)[1]) for stack in stacks if "quick_execute" in stack)
    assert f"{calls / 20:.1f} calls of TensorFlow" in page  # 20 samples a second


def test_what_the_page_says_of_cudnn_is_in_the_rows() -> None:
    text = (RESULTS / "2026-11-29-2xh200/cudnn-checked.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert {row["cudnn"] for row in rows} == {91400, 92800}
    for row in rows:
        most = 0.0015 if row["dtype"] == "float32" else 0.007
        assert row["value_error"] < most
        if row["dtype"] == "bfloat16" and row["case"] in ("LSTM", "GRU"):
            assert any(row["gradients_not_finite"]) or min(row["gradient_errors"]) > 1e7
        else:
            assert max(row["gradient_errors"]) < most and not any(row["gradients_not_finite"])
