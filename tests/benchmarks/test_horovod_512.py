"""Horovod's published 512 GPUs: the benchmark against the command line, sums made by hand, and what was published."""

from __future__ import annotations

import json
import shlex

import pytest
from click.testing import CliRunner

from benchmarks import horovod_512
from profiles.predicting.curve import Point
from profiles.predicting.curve import predict as predict_on_more
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


def test_vgg_16s_prediction_is_the_one_counted_by_hand() -> None:
    # What the curve says of 4 GPUs on one host, where 154, 295 and 584 were measured; the network by hand.
    (four,) = predict_on_more([Point(1, 154), Point(2, 295), Point(4, 584)], [4], 4)
    step_ms = 64 / 154 * 1e3 / four.efficiency
    size = 4 * 138_357_544
    moved_ms = size / (25e9 / 8) * 1e3
    ring = 2 * 127 * 0.03 + 2 * 127 / 128 * moved_ms
    tree = 2 * 7 * 0.03 + 2 * moved_ms
    takes, hideable = min(ring, tree), 2 / 3 * step_ms
    assert takes > hideable
    row = horovod_512.expected("VGG-16")
    assert row.efficiency == pytest.approx(four.efficiency * step_ms / (step_ms + takes - hideable / 2))
    assert row.low == pytest.approx(four.low * step_ms / (step_ms + takes))
    assert row.high == pytest.approx(four.high * step_ms / (step_ms + takes - hideable))


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
