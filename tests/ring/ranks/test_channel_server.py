"""What rank 0 keeps of the ranks' meetings: nothing of one that all have heard of."""

from __future__ import annotations

import json
import socket
import threading

import pytest

from ringscope.ring.ranks.channel_server import Server


class Rank:
    """Says and hears lines."""

    def __init__(self, server: Server, number: int) -> None:
        self.connection = socket.create_connection(("127.0.0.1", server.port))
        self.lines = self.connection.makefile("r", encoding="utf-8")
        self.say(rank=number, token="t")

    def say(self, **message: object) -> None:
        self.connection.sendall((json.dumps(message) + "\n").encode())

    def meet(self, key: str, limit_s: float) -> None:
        self.say(kind="meet", key=key, payload=7, limit_s=limit_s)

    def met(self) -> tuple[str, object]:
        heard = json.loads(self.lines.readline())
        return heard["key"], heard["payloads"]


@pytest.fixture
def server() -> Server:
    return Server(2, "t")


def timers() -> int:
    return sum(isinstance(thread, threading.Timer) for thread in threading.enumerate())


def test_nothing_is_kept_of_meetings_that_all_came_to(server: Server) -> None:
    before, ranks = timers(), [Rank(server, number) for number in range(2)]
    for number in range(50):
        for rank in ranks:
            rank.meet(f"end {number}", 60.0 if number % 2 else -1)
        assert [rank.met() for rank in ranks] == [(f"end {number}", [7, 7])] * 2
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(10)  # they have been told to end
    assert timers() <= before
    assert not server._given_up and not server._patient and not server._meetings and not server._limits


def test_who_comes_too_late_hears_so_and_then_it_is_forgotten(server: Server) -> None:
    first, second = (Rank(server, number) for number in range(2))
    first.meet("end 1", 0.05)
    assert first.met() == ("end 1", None)
    second.meet("end 1", 0.05)
    assert second.met() == ("end 1", None)
    for number in range(2, 4):
        first.meet(f"end {number}", 60.0)
        second.meet(f"end {number}", 60.0)
        assert first.met() == second.met() == (f"end {number}", [7, 7])
    assert not server._given_up
