"""Where a rank stands when another is lost: in an exchange, which will not end, or in something of its own."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType

import pytest

from tests.harness.running import wait_until

pytest.importorskip("horovod.tensorflow")

from ringscope.ring.internals import main_thread
from ringscope.ring.ranks.channel import Channel


def _waiting(target: Callable[[], object]) -> FrameType:
    """Where a thread stands that waits in Python's threading."""
    thread = threading.Thread(target=target, daemon=True)
    thread.start()

    def frame() -> FrameType | None:
        return sys._current_frames().get(thread.ident or 0)

    wait_until(lambda: (at := frame()) is not None and at.f_code.co_filename == threading.__file__, 20, lambda: "")
    found = frame()
    assert found is not None
    return found


def test_a_rank_that_waits_in_a_meeting_stands_in_an_exchange() -> None:
    own, other = socket.socketpair()
    channel = Channel(own, 0, 2, "", None)
    assert main_thread.may_exchange(_waiting(lambda: channel.meet("end")))
    other.close()


def test_a_rank_that_waits_for_a_thread_of_its_own_does_not() -> None:
    event = threading.Event()
    assert not main_thread.may_exchange(_waiting(event.wait))
    event.set()
