"""Measures as JSON: exact in both directions, safe for readers whose integers end at 2**53."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from profiles import measure
from profiles.ground.errors import RingscopeError
from profiles.model import measures_json as views_json
from profiles.model.measures import gpu_titles
from tests.made.build import Build
from tests.made.sample import sample


def test_measures_come_back_from_their_json_as_they_were():
    measures = sample(steps=4, gpus=2, kernels_per_step=20)[0].measures
    assert views_json.from_json(json.loads(views_json.dumps(measures))) == measures


def test_what_was_measured_comes_back_too():
    made = Build(rank=3, rank_source="marks", origin_ns=1_700_000_000_123_456_789)
    made.kernel(0, 10, call=(-5, -4))
    made.copy("h2d", 20, 30, call=(12, 30))
    measures = measure([made.timeline()])
    text = views_json.dumps(measures)
    assert views_json.from_json(json.loads(text)) == measures
    assert json.loads(text)["recordings"][0]["origin_ns"] == "1700000000123456789"


def test_rows_of_steps_are_left_out_on_request():
    measures = sample(steps=4, gpus=1, kernels_per_step=20)[0].measures
    short = views_json.to_json(measures, per_step=False)
    assert short["gpus"][0]["steps"]["rows"] == []
    assert len(measures.gpus[0].steps.rows) == views_json.to_json(measures)["gpus"][0]["steps"]["count"]


def test_keys_of_a_later_version_are_left_aside():
    measures = sample(steps=4, gpus=1, kernels_per_step=20)[0].measures
    data = views_json.to_json(measures)
    data["later"] = data["gpus"][0]["later"] = 1
    assert views_json.from_json(data) == measures


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "ringscope.measures/9"}', '{"schema": 1', "\ufffe"])
def test_what_is_not_measures_is_refused_in_one_line(tmp_path: Path, text: str):
    path = tmp_path / "measures.json"
    path.write_text(text)
    with pytest.raises(RingscopeError) as refused:
        views_json.load(path)
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)


def test_damaged_measures_are_refused():
    data = views_json.to_json(sample(steps=4, gpus=1, kernels_per_step=20)[0].measures)
    del data["gpus"][0]["kernels"]["count"]
    data["gpus"][0]["copies"] = 7
    with pytest.raises(RingscopeError, match="damaged"):
        views_json.from_json(data)


def test_no_number_is_left_that_json_cannot_hold():
    measures = sample(steps=4, gpus=1, kernels_per_step=20)[0].measures
    wrong = dataclasses.replace(measures.gpus[0], input_stall_share=float("nan"))
    with pytest.raises(ValueError):
        views_json.dumps(dataclasses.replace(measures, gpus=[wrong]))


def test_every_gpu_has_a_title_of_its_own():
    titles = gpu_titles([(0, 0), (1, 0), (None, 0), (None, 1), (None, 0), (1, -1), (None, -1)])
    assert titles == ["rank 0, GPU 0", "rank 1, GPU 0", "GPU 0 (1)", "GPU 1", "GPU 0 (2)", "rank 1, GPU ?", "GPU ?"]
