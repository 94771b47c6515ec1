"""A port that is held is given to nobody else, and to the service that it is held for."""

from __future__ import annotations

import errno
import socket

import pytest

from harness.training.strategies.ports import held


def test_a_held_port_is_the_services_and_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_GRPC_REUSE_PORT", "")  # as it was, afterwards
    with held(2) as (port, other):
        assert port != other
        with pytest.raises(OSError) as refused, socket.create_server(("", port)):
            pass
        assert refused.value.errno == errno.EADDRINUSE
        # As gRPC takes it: of both families, sharing.
        with socket.create_server(
            ("::", port), family=socket.AF_INET6, dualstack_ipv6=True, reuse_port=True
        ) as service:
            for _ in range(8):  # all of them reach the one that listens
                with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                    accepted, _ = service.accept()
                    with accepted:
                        accepted.sendall(b"here")
                        assert connection.recv(4) == b"here"
    with socket.create_server(("", port)):
        pass
