"""Reserve ports for TensorFlow's services: other processes must know the ports before TensorFlow opens them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def held(count: int) -> Iterator[list[int]]:
    """Free ports of this host, held by sockets that do not listen, so that no other process gets them. TensorFlow
    services started in the block may share these ports (SO_REUSEPORT)."""
    os.environ["TF_GRPC_REUSE_PORT"] = "1"
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            each.bind(("", 0))
        yield [each.getsockname()[1] for each in sockets]
