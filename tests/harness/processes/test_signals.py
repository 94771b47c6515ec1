"""Real signals to this process: raised between launches, noted during one, lost nowhere."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from harness.processes.signals import SIGNALS, noted, stopped_by_signals


class Dying:
    """An object in whose finalizer a signal comes; Python drops what a finalizer raises."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in SIGNALS]


@contextmanager
def signals_all_the_time() -> Iterator[None]:
    """SIGTERM comes to this process again and again while this block runs. Its own handler does nothing."""
    ended = threading.Event()

    def send() -> None:
        while not ended.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    before, interval = signal.signal(signal.SIGTERM, lambda *_: None), sys.getswitchinterval()
    sender = threading.Thread(target=send)
    sys.setswitchinterval(1e-6)
    sender.start()
    try:
        yield
    finally:
        ended.set()
        sender.join()
        sys.setswitchinterval(interval)
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_raised_at_once_between_launches(number: signal.Signals) -> None:
    before = handlers()
    with pytest.raises(KeyboardInterrupt), stopped_by_signals():
        os.kill(os.getpid(), number)
    assert handlers() == before


def test_one_that_comes_while_handlers_change_leaves_none_behind() -> None:
    with signals_all_the_time():
        before = handlers()
        for _ in range(1000):
            with suppress(KeyboardInterrupt), stopped_by_signals():
                pass
            assert handlers() == before


def test_during_a_launch_it_is_raised_once_when_the_launch_looks() -> None:
    with stopped_by_signals(), noted() as look:
        look()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            look()
        look()


def test_one_that_comes_in_a_finalizer_is_not_lost() -> None:
    with stopped_by_signals(), noted() as look:
        dying = Dying()
        del dying
        with pytest.raises(KeyboardInterrupt):
            look()


def test_one_that_comes_as_the_last_launch_ends_is_raised_at_the_end() -> None:
    before = handlers()
    with pytest.raises(KeyboardInterrupt), stopped_by_signals(), noted():
        os.kill(os.getpid(), signal.SIGTERM)
    assert handlers() == before


def test_a_second_one_does_not_break_off_the_end_of_a_launch() -> None:
    ended = False
    with pytest.raises(KeyboardInterrupt), stopped_by_signals(), noted() as look:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            look()
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            ended = True
    assert ended
