"""Rules of thumb against planted effects: the ratio, its interval and the verdict, on turns whose answer is known."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest
from rich.console import Console

from profiles import rules
from profiles.ground.stats import Spread
from profiles.rules import RULES, VERDICTS, Found, judge, words
from profiles.views.terminal import rules as view
from tests.figures import figures

RULE = RULES["cache"]


def planted(
    ratio: float, *, noise: float = 0.0, drift: float = 0.0, seed: int = 0, pairs: int = 12
) -> list[dict[str, Any]]:
    """Turns of 300 ms in which the advised way is `ratio` times as fast; the machine gets slower by `drift` per turn,
    and every turn takes longer or shorter by chance, one in ten much longer."""
    dice = random.Random(seed)
    turns = []
    for number in range(2 * pairs):
        advised = (number % 2 == 1) is (number // 2 % 2 == 0)
        slow = dice.lognormvariate(0, noise) * (1 + drift * number)
        if noise and dice.random() < 0.1:
            slow *= 1.5
        turns.append({"advised": advised, "samples": 1000, "ns": round(3e8 * slow / (ratio if advised else 1))})
    return turns


def test_without_noise_the_ratio_is_the_planted_one() -> None:
    found = judge(RULE, planted(1.25), "x")
    assert found.ratio is not None and found.ratio.median == pytest.approx(1.25, rel=1e-6)
    assert (found.verdict, words(found)) == ("holds", "supported: 1.25 x as fast with the advice")
    assert found.against_per_s == pytest.approx(1000 / 0.3) and found.advised_per_s == pytest.approx(1250 / 0.3)


def test_a_machine_that_gets_slower_all_the_time_does_not_look_like_an_effect() -> None:
    """Of 2 % per turn: by pairs of one order the second of each would seem 2 % slower."""
    found = judge(RULE, planted(1.0, drift=0.02, pairs=24))
    assert found.ratio is not None and found.ratio.median == pytest.approx(1.0, abs=0.003)
    assert found.verdict == "no-difference"


@pytest.mark.parametrize("ratio", [0.5, 0.9, 1.0, 1.1, 3.0])
def test_the_interval_holds_the_planted_ratio_as_often_as_it_says(ratio: float) -> None:
    trials = 400
    held, said = 0, 1.0
    for seed in range(trials):
        found = judge(RULE, planted(ratio, noise=0.05, drift=0.001, seed=seed)).ratio
        assert found is not None
        held += found.low <= ratio <= found.high
        said = min(said, found.coverage)
    assert said >= 0.95
    assert held / trials >= said - 0.03  # three sigmas of 400 trials at 96 %


@pytest.mark.parametrize(
    ("ratio", "noise", "verdict"),
    [
        (1.2, 0.02, "holds"),
        (3.0, 0.2, "holds"),
        (0.8, 0.02, "costs"),
        (1.0, 0.004, "no-difference"),
        (1.005, 0.004, "no-difference"),
        (1.0, 0.5, "undecided"),  # of which 1 in 20 may be wrong
    ],
)
def test_planted_effects_get_their_verdict_or_none(ratio: float, noise: float, verdict: str) -> None:
    """Three pairs of twelve that something disturbed the same way leave it undecided; none gets a wrong one."""
    found = [judge(RULE, planted(ratio, noise=noise, seed=seed)).verdict for seed in range(200)]
    assert found.count(verdict) >= 140
    assert found.count(verdict) + found.count("undecided") >= 200 * (0.98 if verdict != "undecided" else 0)


def test_no_effect_is_seldom_taken_for_one() -> None:
    """With noise of 10 % and no effect: an interval with 95 % misses 1 in 5 % at most."""
    found = [judge(RULE, planted(1.0, noise=0.1, seed=seed)).verdict for seed in range(400)]
    assert (found.count("holds") + found.count("costs")) / len(found) <= 0.08


@pytest.mark.parametrize(
    ("low", "median", "high", "verdict"),
    [
        (1.01, 1.02, 1.025, "no-difference"),
        (1.01, 1.05, 1.2, "holds"),
        (0.99, 1.05, 1.2, "undecided"),
        (0.8, 0.95, 0.99, "costs"),
        (0.95, 0.98, 0.99, "undecided"),
    ],
)
def test_a_verdict_is_of_the_interval_and_of_what_is_worth_a_change(
    low: float, median: float, high: float, verdict: str
) -> None:
    assert rules.verdict(Spread(12, median, low, high, 0.96, 0.01)) == verdict


def test_turns_that_are_no_pairs_are_refused() -> None:
    turns = planted(1.0)
    with pytest.raises(ValueError):
        judge(RULE, [turns[0], turns[3], *turns[4:]])
    with pytest.raises(ValueError):
        judge(RULE, turns[:3])


@pytest.mark.parametrize("width", [80, 120])
def test_the_terminal_shows_every_verdict_with_its_advice(width: int) -> None:
    found = [
        judge(RULE, planted(1.25), "JPEG files"),
        Found(RULES["tf32"], "needs-gpu"),
        Found(RULES["quiet"], "failed", reason="oom: held too much"),
    ]
    out = io.StringIO()
    view.show(found, Console(file=out, width=width))
    said = " ".join(out.getvalue().split())
    of_cache = said[said.index("cache 1.25 x") :]
    assert figures(of_cache)[:4] == ["1.25 x", "1.25", "1.25", "1.25 x"] and " supported" in of_cache
    assert "there is no GPU here" in said and "oom: held too much" in said
    assert "12 pairs of turns" in said and "3,333" in said
    assert max(map(len, out.getvalue().splitlines())) <= width


def test_the_json_says_what_the_terminal_says() -> None:
    found = [judge(RULE, planted(1.25), "x"), Found(RULES["tf32"], "needs-gpu")]
    one, other = rules.to_json(found, {"host": "a"})["rules"]
    assert (one["verdict"], one["ratio"]["median"], one["text"]) == ("holds", pytest.approx(1.25), words(found[0]))
    assert other["ratio"] is None and other["text"] == VERDICTS["needs-gpu"]
