"""Messages between the ranks, beside Horovod's exchanges: meetings with a time limit, a common last step, and failures.

Rank 0 runs a server. Every rank, rank 0 included, keeps one TCP connection to it and sends one JSON object per line.
Nothing here uses TensorFlow or Horovod's operations, so a rank that waits inside an exchange still receives messages.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from .. import say
from ..internals.frameworks import hvd
from ..lost import restart
from .channel_server import Server, parse
from .stalls import Stalls

CONNECT_LIMIT_S = 20.0
GRACE_S = 10.0  # seconds that a rank has to end by a Python error, its own or ring's, before its process is ended
ENDED = "its script has ended; all ranks must take the same steps and make the same calls that exchange"
SILENTLY = "its process ended without a message, by os._exit or a signal"


class Channel:
    """A rank's end of the connection to rank 0's server. Its thread answers at once, even while the main thread
    waits."""

    def __init__(
        self, connection: socket.socket, rank: int, size: int, token: str, when_lost: Callable[[str], None] | None
    ) -> None:
        self.rank, self.size, self._when_lost = rank, size, when_lost
        self._connection = connection
        self._changed = threading.Condition()
        self._met: dict[str, list[Any] | None] = {}
        self._numbers: dict[str, int] = {}
        self._closed = self._over = False
        self.steps_begun = 0
        self.training = False
        self._held = False  # True while ranks agree on a common last step: no step may begin then
        self.last_step: int | None = None
        self.failure: tuple[int, str] | None = None
        self._lost_rank: tuple[int, str] | None = None  # a lost rank stays lost in later loops
        self._ended: tuple[int, str] | None = None  # the first rank whose script has ended well
        self._process = os.getpid()
        self._say({"rank": rank, "token": token})
        self._stalls = Stalls(
            rank,
            ends=when_lost is None,  # elastic ranks would begin again, at the same place
            ask=lambda: self._say({"kind": "look"}),
            step=lambda: self.steps_begun if self.training else 0,
        )
        threading.Thread(target=self._listen, name="ring channel", daemon=True).start()

    @property
    def is_of_this_process(self) -> bool:
        """False in a process that the rank has forked, which is no rank and has no listening thread."""
        return os.getpid() == self._process

    def _say(self, message: dict[str, Any]) -> None:
        if not self.is_of_this_process:
            return
        try:
            self._connection.sendall((json.dumps(message) + "\n").encode())
        except OSError:
            self._closed = True

    def _listen(self) -> None:
        try:
            for line in self._connection.makefile("r", encoding="utf-8"):
                self._hear(parse(line))
        except OSError:
            pass
        self._stalls.over.set()
        if self.rank != 0:
            self._lost(0)
        with self._changed:
            self._closed = True
            self._held = False
            self._changed.notify_all()

    def _lost(self, rank: int) -> None:
        """Handle the end of a rank that did not say goodbye."""
        if self._over:
            return
        if self._when_lost is not None:
            self._when_lost(f"rank {rank} of {self.size} is lost")
            return
        with self._changed:
            self._lost_rank = self._lost_rank or (rank, SILENTLY)
            self._fail(*self._lost_rank)
            self._changed.notify_all()

    def _hear(self, message: dict[str, Any]) -> None:
        if message.get("kind") == "lost":
            self._lost(int(message["rank"]))
            return
        # These wake no thread that waits in a meeting, which would then not stand still.
        if message.get("kind") == "look":
            self._say({"kind": "at", "place": self._stalls.place()})
            return
        if message.get("kind") == "places":
            self._stalls.judge(message["places"])
            return
        with self._changed:
            if message.get("kind") == "met":
                self._met[message["key"]] = message["payloads"]
            elif message.get("kind") == "where":
                self._held = True
                self._say({"kind": "here", "step": self.steps_begun})
            elif message.get("kind") == "stop":
                self.last_step, self._held = int(message["step"]), False
            elif message.get("kind") == "ended":
                self._ended = self._ended or (int(message["rank"]), ENDED)
                self._over = self._over or message["rank"] == 0
            elif message.get("kind") == "failed" and message["rank"] != self.rank and self._when_lost is None:
                # Elastic ranks wait until that rank's connection ends, and continue without it.
                self._fail(int(message["rank"]), str(message["what"]))
            self._changed.notify_all()

    def _fail(self, rank: int, what: str) -> None:
        """Note that this rank takes no further step of the loop. Only the first failure is kept, because the others
        follow from it."""
        if self.failure is None:
            self.failure = (rank, what)
            if self.training:
                threading.Thread(target=self._end_process, daemon=True).start()

    def _end_process(self) -> None:
        """End this process if it stays in a loop that another rank has left by an error: it would wait for that rank in
        an exchange, where no Python exception reaches it."""
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline:
            if not self.training:
                return
            time.sleep(0.1)
        assert self.failure is not None
        say.line(f"rank {self.rank} ends: {left(*self.failure)}")
        os._exit(1)

    def meet(self, kind: str, payload: Any = None, *, limit_s: float = -1) -> list[Any] | None:
        """Meet all ranks, and return their payloads, by rank. The k-th meeting of a kind on one rank is the k-th of
        that kind on all.

        None, on every rank that asks, if not all ranks came within `limit_s` seconds of the first (-1: no limit), if
        one has ended, or if ranks wait at different meetings (without a limit: if all ranks wait, at several meetings).
        """
        if not self.is_of_this_process:
            return None
        self._numbers[kind] = self._numbers.get(kind, 0) + 1
        key = f"{kind} {self._numbers[kind]}"
        self._say({"kind": "meet", "key": key, "payload": payload, "limit_s": limit_s})
        with self._changed:
            limit = limit_s + CONNECT_LIMIT_S if limit_s >= 0 else None
            self._changed.wait_for(lambda: key in self._met or self._closed, timeout=limit)
            met = self._met.pop(key, None)
        if met is None:
            restart.check()
        return met

    def begin_loop(self) -> None:
        with self._changed:
            self.steps_begun, self.last_step, self.failure, self.training = 0, None, self._lost_rank, True

    def end_loop(self) -> None:
        self.training = False

    def begin_step(self) -> bool:
        """Count a step that is about to begin; wait while ranks agree on a common last step. Returns False if that step
        is already past."""
        with self._changed:
            if self._held:
                self._changed.wait_for(lambda: not self._held)
            if self.last_step is not None and self.steps_begun >= self.last_step:
                return False
            self.steps_begun += 1
            return True

    def agree_on_last_step(self) -> int:
        """Ask all ranks to stop together. Returns the number of this loop's last step, which no rank has passed."""
        with self._changed:
            if self.last_step is None:
                self._say({"kind": "stop"})
                self._changed.wait_for(lambda: self.last_step is not None or self._closed)
            return self.steps_begun if self.last_step is None else self.last_step

    def tell_failure(self, what: str) -> None:
        self._say({"kind": "failed", "what": what})

    def heard_failure(self) -> tuple[int, str] | None:
        """The failure that another rank has sent, if any, or the end of its script. The message may arrive after
        Horovod has shut down here."""
        with self._changed:
            if self._when_lost is None:
                self._changed.wait_for(
                    lambda: self.failure is not None or self._ended is not None or self._closed, timeout=GRACE_S / 2
                )
            return self.failure or self._ended

    def close(self) -> None:
        self._say({"kind": "bye"})


def left(rank: int, what: str) -> str:
    return f"rank {rank} left the training: {what}"


def launcher_share(rank: int) -> Callable[[Any], Any]:
    """A function that sends rank 0's value to every rank through the launcher. Horovod's broadcast would make
    TensorFlow initialise its devices before the script has configured them."""
    if not hvd.gloo_enabled():
        from mpi4py import MPI

        return lambda value: MPI.COMM_WORLD.bcast(value, root=0)
    from horovod.runner.http import http_client

    where = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"]), "ringscope"
    numbers = iter(range(1 << 30))

    def share(value: Any) -> Any:
        key = f"value{next(numbers)}"
        if rank == 0:
            http_client.put_data_into_kvstore(*where, key, value)
            return value
        deadline = time.monotonic() + CONNECT_LIMIT_S
        while True:
            try:
                return http_client.read_data_from_kvstore(*where, key)
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    return share


def _address(server: Server, token: str) -> dict[str, Any]:
    """The data that other ranks need to connect to rank 0's server."""
    import psutil

    addresses = [
        address.address
        for interface in psutil.net_if_addrs().values()
        for address in interface
        if address.family == socket.AF_INET and not address.address.startswith("127.")
    ]
    return {"host": socket.gethostname(), "addresses": addresses, "port": server.port, "token": token}


def meet_server(
    rank: int, size: int, share: Callable[[Any], Any], when_lost: Callable[[str], None] | None = None
) -> Channel | None:
    """Connect this rank to a server in rank 0's process. Returns None if the server cannot be reached.

    share: gives every rank rank 0's value. when_lost: called on a thread, with a message, when a rank ends without
    saying goodbye.
    """
    said = None
    if rank == 0:
        token = secrets.token_hex(16)
        said = _address(Server(size, token), token)
    found = share(said)
    same_host = found["host"] == socket.gethostname()
    for address in [*(["127.0.0.1"] if same_host else []), *found["addresses"], found["host"]]:
        try:
            connection = socket.create_connection((address, found["port"]), timeout=CONNECT_LIMIT_S / 4)
        except OSError:
            continue
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Channel(connection, rank, size, found["token"], when_lost)
    return None
