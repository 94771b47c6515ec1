"""The sweep's side of the keepers' connections: a rank runs as long as its keeper's connection is open (see
harness/processes/__init__.py).

A keeper first sends the lifeline's token. A connection without the token within TOKEN_S is closed, so that strangers on
the network cannot use up the connections of this process.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import resource
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from profiles.ground.errors import RingscopeError

from ..launch.hosts import Host, is_local

TOKEN_S = 10.0
SPARE_FILES = 64  # number of open files that the sweep itself needs: logs, records, libraries
RETRY_S = 0.2
LETTING_GO_S = 15  # seconds that a keeper has to end after the lifeline closes


class Lifeline(contextlib.AbstractContextManager["Lifeline"]):
    """A listening socket and its connections. Closing it, or the end of this process, ends the ranks of a launch.

    lines: the number of keepers that will connect. Raises RingscopeError if this process may not open that many files.
    """

    def __init__(self, hosts: Sequence[Host] = (), *, lines: int = 8) -> None:
        _make_room(lines)
        address = _own_address([host.name for host in hosts if not is_local(host.name)])
        self._token = secrets.token_hex(8)
        self._listener = socket.create_server((address, 0), backlog=1024)
        self._listener.setblocking(False)
        self.address = f"{address}:{self._listener.getsockname()[1]}/{self._token}"
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._ended, self._end = socket.socketpair()
        self._selector.register(self._ended, selectors.EVENT_READ)
        self._strangers: dict[socket.socket, float] = {}  # connection that has not sent the token yet -> its deadline
        self._most_strangers = 2 * lines + SPARE_FILES
        self._lines: set[socket.socket] = set()
        self._complained = False
        self._thread = threading.Thread(target=self._serve, name="lifeline", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select(timeout=1.0 if self._strangers else None):
                if key.fileobj is self._ended:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._hear(key.fileobj)
            for line in [line for line, until in self._strangers.items() if time.monotonic() > until]:
                self._drop(line)

    def _accept(self) -> None:
        try:
            line, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:  # no file descriptor is left: connections wait in the queue until one is free
            if not self._complained:
                print(f"ringscope: another rank cannot connect: {error.strerror}; raise ulimit -n", file=sys.stderr)
            self._complained = True
            time.sleep(RETRY_S)
            return
        line.setblocking(False)
        if len(self._strangers) >= self._most_strangers:
            self._drop(min(self._strangers, key=lambda one: self._strangers[one]))
        self._strangers[line] = time.monotonic() + TOKEN_S
        self._selector.register(line, selectors.EVENT_READ)

    def _hear(self, line: socket.socket) -> None:
        """Read the token of a new connection, or notice that a connection has ended."""
        try:
            said = line.recv(64)
        except OSError:
            said = b""
        if line in self._strangers and hmac.compare_digest(said, self._token.encode()):
            del self._strangers[line]
            self._lines.add(line)
        elif line in self._strangers or not said:
            self._drop(line)

    def _drop(self, line: socket.socket) -> None:
        self._strangers.pop(line, None)
        self._lines.discard(line)
        self._selector.unregister(line)
        line.close()

    def close(self) -> None:
        """Close all connections, which ends every rank."""
        with contextlib.suppress(OSError):
            self._end.send(b"x")
        self._thread.join()
        for one in (self._listener, self._ended, self._end, *self._lines, *self._strangers):
            one.close()
        self._selector.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def let_go(keeper: subprocess.Popen[bytes]) -> None:
    """Wait for a keeper to end after its lifeline is closed; if it does not, kill it and its session."""
    try:
        keeper.wait(LETTING_GO_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(keeper.pid, signal.SIGKILL)
        keeper.wait()


def _make_room(lines: int) -> None:
    """Raise this process's limit of open files to the files open now plus `lines`."""
    needed = len(os.listdir("/proc/self/fd")) + lines + SPARE_FILES if os.path.isdir("/proc/self/fd") else 0
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise RingscopeError(
            f"{lines - 1} ranks need {needed} open files here, and {hard} are allowed; raise ulimit -Hn"
        )
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _own_address(remote: Sequence[str]) -> str:
    """This machine's address on the route to the remote hosts, at which these hosts can reach it."""
    for name in remote:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
            probe.connect((name, 9))  # connecting a UDP socket sends no packet
            return str(probe.getsockname()[0])
    return "127.0.0.1"
