"""The sweep's end of the line that keepers hold (harness/keeper.py): while it stands, ranks may live."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Sequence

from ..launch.hosts import Host, is_local


class Lifeline:
    """A listening socket and all connections made to it. `close`, or this process's end, ends the ranks of a launch."""

    def __init__(self, hosts: Sequence[Host] = ()) -> None:
        remote = [host.name for host in hosts if not is_local(host.name)]
        self._listener = socket.create_server(("0.0.0.0" if remote else "127.0.0.1", 0), backlog=1024)
        self.address = f"{_own_address(remote)}:{self._listener.getsockname()[1]}"
        self._lines: list[socket.socket] = []
        threading.Thread(target=self._accept, name="lifeline", daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                line, _ = self._listener.accept()
                self._lines.append(line)

    def close(self) -> None:
        """Let go of every rank."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for line in self._lines:
            line.close()

    def __enter__(self) -> Lifeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _own_address(remote: Sequence[str]) -> str:
    """The address of this machine that the remote hosts can reach: the one that its packets to them bear."""
    for name in remote:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
            probe.connect((name, 9))  # no packet is sent
            return str(probe.getsockname()[0])
    return "127.0.0.1"
