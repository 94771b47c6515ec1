"""Horovod's published 512 GPUs: the benchmark against the command line, sums made by hand, and what was published."""

from __future__ import annotations

import json
import shlex

import pytest
from click.testing import CliRunner

from benchmarks import horovod_512
from profiles.verbs import predict
from tests.recordings import ROOT

MODELS = list(horovod_512.PUBLISHED)


@pytest.mark.parametrize("model", MODELS)
def test_the_command_that_is_printed_says_what_the_benchmark_says(model: str) -> None:
    program, verb, *words = horovod_512.command(model)
    assert (program, verb) == ("ringscope", "predict")
    result = CliRunner().invoke(predict.command, [*words, "--json", "-"], catch_exceptions=False)
    (asked,) = (row for row in json.loads(result.output)["forecasts"][0]["rows"] if row["gpus"] == 512)
    row = horovod_512.expected(model)
    for key in ("efficiency", "low", "high", "per_s"):
        assert asked[key] == pytest.approx(getattr(row, key))


@pytest.mark.parametrize("model", MODELS)
def test_what_was_published_lies_in_the_interval_and_within_4_points_of_the_estimate(model: str) -> None:
    row, published = horovod_512.expected(model), horovod_512.PUBLISHED[model].efficiency
    assert row.low <= published <= row.high
    assert abs(row.efficiency - published) <= 0.04


def test_vgg_16_by_hand() -> None:
    # On 1, 2 and 4 GPUs 154, 295 and 584. Loss by growth 4^0.3 - 1 = 0.5157: least squares of 2 x 154 / 295 - 1 and
    # 4 x 154 / 584 - 1, drawn to 0.02.
    grown = (2**0.3 - 1, 4**0.3 - 1)
    lost = (2 * 154 / 295 - 1, 4 * 154 / 584 - 1)
    own = (grown[0] * lost[0] + grown[1] * lost[1]) / (grown[0] ** 2 + grown[1] ** 2)
    inside = 1 / (1 + (0.7 * own + 0.3 * 0.02) * grown[1])
    step_ms = 64 / 154 * 1e3 / inside
    size = 4 * 138_357_544
    moved_ms = size / (25e9 / 8) * 1e3
    ring = 2 * 127 * 0.03 + 2 * 127 / 128 * moved_ms
    tree = 2 * 7 * 0.03 + 2 * moved_ms
    takes, hideable = min(ring, tree), 2 / 3 * step_ms
    assert takes > hideable
    row = horovod_512.expected("VGG-16")
    assert row.efficiency == pytest.approx(inside * step_ms / (step_ms + takes - hideable / 2))
    assert row.low == pytest.approx((inside - 0.05) * step_ms / (step_ms + takes))
    assert row.high == pytest.approx(min(inside + 0.05, 1) * step_ms / (step_ms + takes - hideable))


def test_resnet_101_lies_midway_between_its_neighbours() -> None:
    # 16, 33 and 50 residual blocks. 1 GPU: 219 and 91.8 images/s; 4: 852 and 356
    one, _, four = horovod_512.points("ResNet-101")
    assert 1 / one.per_s == pytest.approx((1 / 219 + 1 / 91.8) / 2, rel=1e-3)
    assert 1 / four.per_s == pytest.approx((1 / 852 + 1 / 356) / 2, rel=1e-3)


def test_the_help_and_the_guide_ask_for_these_very_models() -> None:
    asked = [shlex.join(horovod_512.command(model)) for model in MODELS]
    help_text = " ".join(str(predict.command.epilog).replace("\\", " ").split())
    guide = " ".join((ROOT / "docs/guides/slow-cluster.md").read_text().split())
    assert asked[0] in help_text
    assert asked[2] in guide
