"""Rank 0's server for messages between ranks (channel.py). It keeps the last message of each rank."""

from __future__ import annotations

import hmac
import json
import socket
import threading
from collections.abc import Collection
from typing import Any


class Server:
    """Serves all ranks, rank 0 included, each over its own connection."""

    def __init__(self, size: int, token: str) -> None:
        self._size, self._token = size, token
        self._lock = threading.Lock()
        self._connections: dict[int, socket.socket] = {}
        self._gone: set[int] = set()
        self._meetings: dict[str, dict[int, Any]] = {}
        self._limits: dict[str, threading.Timer] = {}
        self._given_up: dict[str, int] = {}  # failed meeting -> number of ranks that do not know of its failure yet
        self._patient: set[str] = set()  # meetings without a time limit
        self._steps: dict[int, int] = {}
        self._places: dict[int, Any] = {}
        self._listener = socket.create_server(("", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="ring channel", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), name="ring channel", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        lines = connection.makefile("r", encoding="utf-8")
        hello = parse(lines.readline())
        if not hmac.compare_digest(str(hello.get("token")), self._token):
            connection.close()
            return
        rank = int(hello["rank"])
        with self._lock:
            self._connections[rank] = connection
        try:
            for line in lines:
                with self._lock:
                    self._hear(rank, parse(line))
        except OSError:
            pass  # the rank's host is gone
        with self._lock:
            if rank not in self._gone:
                self._tell({"kind": "lost", "rank": rank})
            self._leave(rank)

    def _hear(self, rank: int, message: dict[str, Any]) -> None:
        kind = message.get("kind")
        if kind == "meet":
            self._meet(rank, str(message["key"]), message.get("payload"), float(message["limit_s"]))
        elif kind == "failed":
            self._tell(message | {"rank": rank})
        elif kind == "stop":
            self._steps = {}
            self._tell({"kind": "where"})
        elif kind == "here":
            self._steps[rank] = int(message["step"])
            if len(self._steps) == self._size:
                self._tell({"kind": "stop", "step": max(self._steps.values())})
        elif kind == "look":
            self._places = {}
            self._tell({"kind": "look"})
        elif kind == "at":
            self._places[rank] = message["place"]
            if len(self._places) == self._size:
                self._tell({"kind": "places", "places": [self._places[each] for each in range(self._size)]})
        elif kind == "bye":
            self._tell({"kind": "ended", "rank": rank})  # the server ends with rank 0
            self._leave(rank)

    def _meet(self, rank: int, key: str, payload: Any, limit_s: float) -> None:
        if key in self._given_up:
            self._tell({"kind": "met", "key": key, "payloads": None}, only=[rank])
            self._given_up[key] -= 1
            if not self._given_up[key]:
                del self._given_up[key]
            return
        there = self._meetings.setdefault(key, {})
        there[rank] = payload
        if limit_s < 0:
            self._patient.add(key)
        elif len(there) == 1:
            timer = self._limits[key] = threading.Timer(limit_s, self._give_up, args=(key,))
            timer.daemon = True
            timer.start()
        if len(there) == self._size:
            self._decide(key, [there[each] for each in range(self._size)])
        elif self._gone:
            self._decide(key, None)
        else:
            self._part()

    def _part(self) -> None:
        """End meetings that cannot succeed: one with a time limit, if ranks wait at different meetings; one without,
        only if all ranks wait, and not all at one meeting."""
        if len(self._meetings) > 1:
            limited = [key for key in self._meetings if key not in self._patient]
            nobody_comes = sum(map(len, self._meetings.values())) == self._size
            for key in limited or (list(self._meetings) if nobody_comes else []):
                self._decide(key, None)

    def _give_up(self, key: str) -> None:
        with self._lock:
            if key in self._meetings:
                self._decide(key, None)

    def _decide(self, key: str, payloads: list[Any] | None) -> None:
        there = self._meetings.pop(key, {})
        self._patient.discard(key)
        if limit := self._limits.pop(key, None):
            limit.cancel()
        if len(there) < self._size:
            self._given_up[key] = self._size - len(there)
        self._tell({"kind": "met", "key": key, "payloads": payloads}, only=there)

    def _leave(self, rank: int) -> None:
        self._gone.add(rank)
        for key in list(self._meetings):
            self._decide(key, None)

    def _tell(self, message: dict[str, Any], *, only: Collection[int] | None = None) -> None:
        """Send a message to ranks, to rank 0 last. This thread runs in rank 0's process, whose main thread may go on
        to a call that waits for other ranks and holds Python's lock, as TensorFlow's start of its services does."""
        line = (json.dumps(message) + "\n").encode()
        for rank, connection in sorted(self._connections.items(), reverse=True):
            if only is None or rank in only:
                try:
                    connection.sendall(line)
                except OSError:
                    continue


def parse(line: str) -> dict[str, Any]:
    """The message in a line; empty if the line holds none."""
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}
