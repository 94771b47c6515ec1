"""Horovod's service on a host, which finds the way between hosts, as scripts/build_horovod.py edits it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.harness.running import PATIENCE_S

pytest.importorskip("horovod")
pytestmark = [pytest.mark.train, pytest.mark.beside]

START_TIMEOUT_S = 2


def test_it_ends_by_itself_where_the_launcher_never_answers() -> None:
    from horovod.runner.common.util import codec, secret, timeout

    settings = SimpleNamespace(
        key=secret.make_secret_key(),
        nics=None,
        verbose=0,
        start_timeout=timeout.Timeout(START_TIMEOUT_S, "{activity}"),
    )
    # It listens and never answers, as one that is cut off; a probe of it would take three times 20 s and end otherwise.
    with socket.create_server(("127.0.0.1", 0)) as mute:
        arguments = (0, 1, {"lo": [mute.getsockname()]}, settings)
        words = [codec.dumps_base64(argument) for argument in arguments]
        done = subprocess.run([sys.executable, "-m", "horovod.runner.task_fn", *words], timeout=PATIENCE_S)
    assert done.returncode == -signal.SIGALRM
