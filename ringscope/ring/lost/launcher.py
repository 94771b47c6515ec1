"""What a rank and Horovod's elastic launcher say to each other."""

from __future__ import annotations

import os
import threading
from http.client import HTTPException
from typing import Any
from urllib.request import urlopen

from profiles.ground.errors import RingscopeError

from .. import say

__all__ = ["ask_for_rank", "hosts_have_changed", "is_elastic", "listen"]

NAMES = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")  # in the order of the answer
NOT_NEEDED = -1

_changed = threading.Event()
_manager: Any = None


def is_elastic() -> bool:
    return os.environ.get("HOROVOD_ELASTIC", "0") not in ("", "0")


def ask_for_rank() -> None:
    """Have the launcher say which rank of how many this process is now; Horovod reads it from the environment.

    To be asked once for each beginning: it waits until every rank of before has asked too, or has ended. Ends the
    process, with exit code 0, where it is none of the ranks any more.
    """
    address, port = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"]
    this = f"{os.environ['HOROVOD_HOSTNAME']}:{os.environ['HOROVOD_LOCAL_RANK']}"
    # Without a limit: the launcher has one of its own for hosts that are to come (--elastic-timeout).
    try:
        with urlopen(f"http://{address}:{port}/rank_and_size/{this}") as answer:
            numbers = answer.read().decode("ascii").split(",")
    except (OSError, HTTPException) as error:
        raise RingscopeError(
            f"horovodrun has ended, and with it the training ({error}); its own output says why"
        ) from None
    if int(numbers[0]) == NOT_NEEDED:
        say.line(f"{this} was removed from the training and exits")
        raise SystemExit(0)
    os.environ.update({f"HOROVOD_{name}": number for name, number in zip(NAMES, numbers, strict=True)})


def listen() -> None:
    """Be told by the launcher, which tells rank 0 alone, that hosts have come or are to go."""
    global _manager
    from horovod.runner.elastic.worker import WorkerNotificationManager

    _manager = WorkerNotificationManager()
    _manager.register_listener(_Listener())
    _manager.init()


class _Listener:
    def on_hosts_updated(self, timestamp: float, result: Any) -> None:
        _changed.set()


def hosts_have_changed() -> bool:
    """True if this rank has been told so since it began."""
    return _changed.is_set()
