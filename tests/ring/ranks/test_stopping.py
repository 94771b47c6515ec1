"""Two real ranks of which one stops within an epoch, or leaves by an exception (scripts/stops.py)."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.harness.running import PATIENCE_S, prepared, run_python
from tests.ring import SCRIPTS, from_ranks

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.beside]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where the ranks wrote and what they said. It ends: the rank that leaves would live on for days."""
    out = tmp_path_factory.mktemp("stops")
    done = run_python(str(SCRIPTS / "stops.py"), str(out), prefix=prepared("gloo"))
    return out, done.stdout + done.stderr


@pytest.fixture(scope="module")
def facts(ended: tuple[Path, str]) -> list[dict[str, Any]]:
    return from_ranks(ended[0])


@pytest.mark.exhaustive
def test_all_ranks_draw_the_same_data(facts: list[dict[str, Any]]) -> None:
    assert facts[0]["first drawn"] == facts[1]["first drawn"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("step", ["fit", "compiled"])
def test_all_ranks_stop_after_the_same_step_at_most_8_later(facts: list[dict[str, Any]], step: str) -> None:
    assert facts[0][step] == facts[1][step]
    assert 3 <= facts[0][step]["steps"] <= 11


@pytest.mark.exhaustive
def test_a_rank_that_leaves_is_named_and_the_others_end(ended: tuple[Path, str]) -> None:
    assert "rank 1 left the training: ValueError: a mistake of one rank" in ended[1]


def test_who_left_is_named_though_horovod_shuts_down_before_it_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    from ringscope.ring.ranks import channel, stopping

    monkeypatch.setattr(channel, "GRACE_S", 2 * PATIENCE_S)
    shared: list[Any] = []
    first = channel.meet_server(0, 2, lambda value: shared.append(value) or value)
    second = channel.meet_server(1, 2, lambda _: shared[0])
    assert first is not None and second is not None
    later = threading.Timer(0.5, second.tell_failure, ["ValueError: a broken picture"])
    with pytest.raises(stopping.OtherRankLeft, match="rank 1 left the training: ValueError: a broken picture"):  # noqa: SIM117
        with stopping.loop(first):
            later.start()
            raise RuntimeError("Horovod has been shut down. This was caused by an exception on one of the ranks")
    first.close()
    second.close()


def test_who_ended_without_a_word_is_named_in_every_later_loop() -> None:
    from ringscope.ring.ranks import channel, stopping

    shared: list[Any] = []
    first = channel.meet_server(0, 2, lambda value: shared.append(value) or value)
    second = channel.meet_server(1, 2, lambda _: shared[0])
    assert first is not None and second is not None
    threading.Timer(0.5, second._connection.shutdown, [socket.SHUT_RDWR]).start()
    for _ in range(2):
        with pytest.raises(stopping.OtherRankLeft, match="rank 1 "), stopping.loop(first):
            raise RuntimeError("Gloo all-reduce failed: Connection closed by peer [127.0.0.1]:4242")
    first.close()
