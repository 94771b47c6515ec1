"""Ask Horovod's elastic launcher for ranks, and listen to its notifications."""

from __future__ import annotations

import os
import threading
from http.client import HTTPException
from typing import Any
from urllib.request import urlopen

from profiles.ground.errors import RingscopeError

from .. import say

# in the order in which the launcher's answer has these numbers
NAMES = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
NOT_NEEDED = -1

_changed = threading.Event()
_manager: Any = None


def is_elastic() -> bool:
    return os.environ.get("HOROVOD_ELASTIC", "0") not in ("", "0")


def ask_for_rank() -> None:
    """Ask the launcher for this process's current rank and the number of ranks, and set them in the environment for
    Horovod.

    Call this once for each start of the script: it waits until every earlier rank has asked, too, or has ended. If this
    process is no longer a rank, it exits with code 0.
    """
    address, port = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"]
    this = f"{os.environ['HOROVOD_HOSTNAME']}:{os.environ['HOROVOD_LOCAL_RANK']}"
    # No timeout here, since the launcher itself limits the time for hosts to come (--elastic-timeout).
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
    """Listen to the launcher, which notifies only rank 0 that hosts were added or are to be removed."""
    global _manager
    from horovod.runner.elastic.worker import WorkerNotificationManager

    _manager = WorkerNotificationManager()
    _manager.register_listener(_Listener())
    _manager.init()


class _Listener:
    def on_hosts_updated(self, timestamp: float, result: Any) -> None:
        _changed.set()


def hosts_have_changed() -> bool:
    """True if the launcher has notified this rank since the script started."""
    return _changed.is_set()
