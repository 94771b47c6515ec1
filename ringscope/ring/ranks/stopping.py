"""If a rank leaves a training loop by an exception, it tells the other ranks, and they end too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from profiles.ground.errors import RingscopeError

from ..lost import restart
from .channel import Channel, left


class OtherRankLeft(RingscopeError):
    """Raised on a rank whose training cannot continue because another rank has ended."""


@contextmanager
def loop(channel: Channel | None) -> Iterator[None]:
    """Within this context all ranks are needed: a rank that leaves by an exception tells the others. A slow rank is no
    failure."""
    if channel is None:
        yield
        return
    channel.begin_loop()
    try:
        yield
    except BaseException as error:
        restart.instead_of(error)
        if restart.is_of_lost_ranks(error) and (failure := channel.heard_failure()) is not None:
            raise OtherRankLeft(left(*failure)) from None
        if not isinstance(error, OtherRankLeft):  # the rank that caused this error has already told the others
            lines = str(error).strip().splitlines()
            channel.tell_failure(f"{type(error).__name__}: {lines[0] if lines else ''}")
        raise
    finally:
        channel.end_loop()


def everybodys(channel: Channel | None, kind: str, payload: Any) -> list[Any]:
    """The payloads of all ranks at a meeting, by rank. They are sent as JSON, in a tenth of the time of Horovod's
    allgather_object."""
    said = [payload] if channel is None else channel.meet(kind, payload)
    if said is None and channel is not None and channel.failure is not None:
        raise OtherRankLeft(left(*channel.failure))
    if said is None:
        raise RingscopeError("another rank has ended, or calls another function; read that rank's output")
    return said
