"""`fit` after the two lines is Keras's: to the digit on one process, on two ranks up to rounding (the joined batch).

They alone catch a callback, a log or a history of `fit` that is not Keras's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.harness.running import run_in_turn
from tests.ring import SCRIPTS, from_ranks

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.beside, pytest.mark.exhaustive]

# Both steps and both feeds once, and the other two combinations. Plain feeds first: staged ones change the process.
STARTS = [(("fit", "plain"), ("compiled", "staged")), (("compiled", "plain"), ("fit", "staged"))]
WAYS = [pytest.param(way, marks=[pytest.mark.exhaustive] * place) for place, ways in enumerate(STARTS) for way in ways]
Way = tuple[str, str]
Asked = Callable[[Way, str | None], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    """What each rank of scripts/like_keras.py wrote, by way and launcher; two ways a start."""

    @cache
    def of(ways: tuple[Way, ...], launcher: str | None) -> dict[Way, list[dict[str, Any]]]:
        places = {way: tmp_path_factory.mktemp("-".join(way)) for way in ways}
        scripts = [[SCRIPTS / "like_keras.py", place, *way] for way, place in places.items()]
        run_in_turn(scripts, launcher)
        return {way: from_ranks(place, 2 if launcher else 1) for way, place in places.items()}

    return lambda way, launcher: of(next(ways for ways in STARTS if way in ways), launcher)[way]


@pytest.fixture(scope="module", params=WAYS, ids="-".join)
def alone(request: pytest.FixtureRequest, asked: Asked) -> tuple[str, dict[str, Any]]:
    (found,) = asked(request.param, None)
    return request.param[0], found


@pytest.fixture(scope="module", params=WAYS, ids="-".join)
def pair(request: pytest.FixtureRequest, asked: Asked) -> list[dict[str, Any]]:
    found = asked(request.param, "gloo")
    assert len(found) == 2
    return found


def test_on_one_process_history_logs_and_weights_are_kerass_own(alone: tuple[str, dict[str, Any]]) -> None:
    step, found = alone
    assert len(found) >= 8
    for name, case in found.items():
        ring, plain = case["ring"], case["plain"]
        assert ring["iterations"] == plain["iterations"] > 0, name
        if step == "fit":
            assert ring == plain, name
        else:  # XLA adds in another order
            _nearly(ring, plain, name)


def test_on_two_ranks_history_and_weights_are_those_of_the_joined_batch(pair: list[dict[str, Any]]) -> None:
    for name in pair[0]:
        first, second = (rank[name] for rank in pair)
        assert first["ring"]["weights"] == second["ring"]["weights"], name
        assert first["ring"]["history"] == second["ring"]["history"], name
        ring, plain = first["ring"], first["plain"]
        assert ring["iterations"] == plain["iterations"] > 0, name
        calls = [[call[:2] for call in each["calls"]] for each in (ring, plain)]
        assert calls[0] == calls[1], name
        _nearly(ring | {"calls": 0}, plain | {"calls": 0}, name)


def _nearly(ring: Any, plain: Any, name: str) -> None:
    """Equal structure, names and counts; numbers up to rounding."""
    if isinstance(plain, dict):
        assert ring.keys() == plain.keys(), name
        for key in plain:
            _nearly(ring[key], plain[key], name)
    elif isinstance(plain, list) and plain and not isinstance(plain[0], float):
        assert len(ring) == len(plain), name
        for mine, theirs in zip(ring, plain, strict=True):
            _nearly(mine, theirs, name)
    elif isinstance(plain, str):
        assert ring == plain, name
    else:
        np.testing.assert_allclose(ring, plain, rtol=2e-5, atol=2e-6, err_msg=name)
