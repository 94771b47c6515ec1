"""The load against a server whose every answer is known: nothing is hidden by waiting, and nothing is lost unseen."""

from __future__ import annotations

import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("aiohttp")

from harness.inference import load
from harness.inference.load import WARM_UP
from profiles.inference import batching, loads
from tests.harness.inference.http_server import Answer, serving
from tests.harness.running import PATIENCE_S

LATE_S = 10.0  # no other answer takes so long, however busy the machine is
INSTANCES = [[float(number), 1.0] for number in range(3)]


def right(asked: Any) -> dict[str, Any]:
    return {"predictions": [[sum(one)] for one in asked["instances"]]}


def asked(tmp_path: Path) -> int:
    """The load's exit code. In a thread: where another test has a browser, playwright's loop runs in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(load.main, str(tmp_path / "plan.json"), str(tmp_path / "out.json")).result()


def run(answer: Answer, tmp_path: Path, **more: Any) -> tuple[loads.Answers, dict[str, int]]:
    """What a load of this server finds, and its errors."""
    with serving(answer) as url:
        plan = {"url": url, "per_s": 100.0, "seconds": 1.0, "seed": 4, "limit_s": PATIENCE_S, "instances": INSTANCES}
        plan |= more
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        assert asked(tmp_path) == 0
    told = json.loads((tmp_path / "out.json").read_text())
    return loads.from_json(told), told["errors"]


def test_answers_of_several_outputs_are_compared_by_their_names_up_to_rounding(tmp_path: Path) -> None:
    """As TensorFlow Serving's REST gives them, text among them; batches of other sizes round otherwise."""

    def answer(number: int, asked: Any) -> tuple[int, Any]:
        first = asked["instances"][0][0]
        told = {"score": [first + 1e-6 * number, float("nan")], "label": f"class {first:g}"}
        if number == 20:
            told["score"] = [first + 1, 0.0]
        if number == 30:
            told["label"] = "another"
        if number == 40:
            del told["label"]
        return 200, {"predictions": [told]}

    found, errors = run(answer, tmp_path)
    assert found.good.all() and not errors and int(found.wrong.sum()) == 3


def test_every_request_is_sent_once_answered_and_checked(tmp_path: Path) -> None:
    seen: list[list[float]] = []

    def answer(number: int, asked: Any) -> tuple[int, Any]:
        seen.append(asked["instances"][0])
        return 200, right(asked) | {"batch": 2, "service_ns": 7}

    found, errors = run(answer, tmp_path)
    assert found.due_ns.tolist() == batching.poisson(100.0, 1.0, 4).tolist()
    assert found.good.all() and not found.wrong.any() and not errors
    assert len(seen) == len(found.due_ns) + WARM_UP
    assert sorted(seen[WARM_UP:]) == sorted(INSTANCES[number % 3] for number in range(len(found.due_ns)))
    assert (found.sent_ns >= found.due_ns).all() and (found.done_ns > found.sent_ns).all()
    assert set(found.batch.tolist()) == {2} and set(found.service_ns.tolist()) == {7}


def test_a_server_that_stands_still_is_asked_all_the_same_and_its_pause_is_in_every_latency(tmp_path: Path) -> None:
    """Coordinated omission: a load that waits for answers would see one slow request of 3 s. This sees them all."""
    pause_s, all_are_there, free = 3.0, threading.Event(), threading.Event()
    last = WARM_UP + len(batching.poisson(100.0, 1.0, 4)) - 1

    def answer(number: int, asked: Any) -> tuple[int, Any]:
        if number == last:
            all_are_there.set()
        if number == WARM_UP:  # the first of the load: nobody is answered before all have asked
            time.sleep(pause_s)
            assert all_are_there.wait(PATIENCE_S)
            free.set()
        elif number > WARM_UP:
            assert free.wait(PATIENCE_S)
        return 200, right(asked)

    found, errors = run(answer, tmp_path, limit_s=2 * PATIENCE_S)
    until = int(found.due_ns[0]) + round(pause_s * 1e9)
    latency = found.done_ns - found.due_ns
    assert found.good.all() and not errors and found.due_ns[-1] < until
    assert (latency >= until - found.due_ns).all()  # each waits at least for what is left of the pause
    assert found.sent_ns.max() < found.done_ns.min()  # and is sent meanwhile
    assert np.median(latency) > 2e9


@pytest.mark.ci
def test_errors_wrong_answers_and_answers_too_late_are_lost_or_wrong_and_never_slow(tmp_path: Path) -> None:
    over = threading.Event()

    def answer(number: int, asked: Any) -> tuple[int, Any]:
        at = number - WARM_UP
        if at < 0:
            return 200, right(asked)
        if at % 10 == 3:
            return 503, {"error": "busy"}
        if at % 10 == 5:
            return 200, {"predictions": [[99.0]]}
        if at % 10 == 7:
            return 200, {"something": "else"}
        if at == 11:
            over.wait(PATIENCE_S)  # it is never answered
        return 200, right(asked)

    found, errors = run(answer, tmp_path, limit_s=LATE_S)
    over.set()
    count = len(found.due_ns)
    tenth = [sum(at % 10 == which for at in range(count)) for which in range(10)]
    late = sum(number for error, number in errors.items() if error.startswith("TimeoutError"))
    assert late == 1
    assert np.count_nonzero(~found.good) == tenth[3] + tenth[7] + late
    assert np.count_nonzero(found.wrong) == tenth[5]
    assert errors['ValueError: status 503: {"error": "busy"}'] == tenth[3]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "Cannot connect"),
        ((404, {"error": "no such model"}), "status 404: .*no such model"),
        ((200, {"outputs": [1]}), "without a list of predictions"),
    ],
)
def test_a_server_that_does_not_answer_as_asked_is_said_in_one_line(
    answer: Any, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(lambda number, asked: answer) as url:
        if answer:
            refused(url, why, tmp_path, capsys)
    if not answer:
        refused(url, why, tmp_path, capsys)


def refused(url: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = {"url": url, "per_s": 10.0, "seconds": 0.2, "seed": 0, "limit_s": PATIENCE_S, "instances": INSTANCES}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert asked(tmp_path) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{url} does not answer as asked: ") and re.search(why, line)
    assert not (tmp_path / "out.json").exists()
