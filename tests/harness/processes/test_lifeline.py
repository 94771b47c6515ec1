"""The lifeline: keepers with its token hold it, strangers do not, and its end is seen by all."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from harness.processes import lifeline as module
from harness.processes.keeper import connect
from harness.processes.lifeline import Lifeline
from profiles.ground.errors import RingscopeError
from tests.harness.running import PATIENCE_S, ROOT, wait_until


@pytest.fixture
def lifeline() -> Iterator[Lifeline]:
    with Lifeline() as one:
        yield one


def place(lifeline: Lifeline) -> tuple[str, int]:
    host, _, port = lifeline.address.partition("/")[0].rpartition(":")
    return host, int(port)


def ended(line: socket.socket, within_s: float) -> bool:
    line.settimeout(within_s)
    try:
        return line.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_keeper_holds_its_line_until_the_lifeline_ends() -> None:
    with Lifeline() as lifeline:
        line = connect(lifeline.address)
        assert not ended(line, 0.3)
    assert ended(line, PATIENCE_S)


def test_a_line_to_a_host_that_is_cut_off_is_ended_by_the_kernel_after_35_s(lifeline: Lifeline) -> None:
    """It asks from the 15th second of silence on, every 5 s, and ends the line when four have not been answered."""
    with connect(lifeline.address) as line:
        names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert [line.getsockopt(socket.IPPROTO_TCP, name) for name in names] == [15, 5, 4]


def test_who_does_not_know_the_token_is_let_go(lifeline: Lifeline) -> None:
    with socket.create_connection(place(lifeline)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n")
        assert ended(stranger, PATIENCE_S)


def test_who_says_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    with Lifeline() as lifeline:
        keeper = connect(lifeline.address)
        wait_until(lambda: len(lifeline._lines) == 1, PATIENCE_S, lambda: "not let in")
        monkeypatch.setattr(module, "TOKEN_S", 0.2)
        with socket.create_connection(place(lifeline)) as stranger:
            assert ended(stranger, PATIENCE_S)
        assert not ended(keeper, 0.3)


def test_many_strangers_keep_no_keeper_out(lifeline: Lifeline) -> None:
    strangers = [socket.create_connection(place(lifeline)) for _ in range(200)]
    keeper = connect(lifeline.address)
    assert not ended(keeper, 0.3)
    wait_until(lambda: sum(ended(one, 0.01) for one in strangers) >= 100, PATIENCE_S, lambda: "all are still let in")
    for one in strangers:
        one.close()


def test_it_listens_on_this_machine_alone_where_no_host_is_named(lifeline: Lifeline) -> None:
    assert lifeline._listener.getsockname()[0] == "127.0.0.1"


def test_more_ranks_than_files_may_be_opened_are_refused_before_they_start() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with pytest.raises(RingscopeError, match=r"ranks need \d+ open files here, and \d+ are allowed; raise ulimit -Hn"):
        Lifeline(lines=hard + 1)


def test_without_a_descriptor_left_it_complains_and_goes_on() -> None:
    script = """
        import os, resource, socket, sys
        from harness.processes.keeper import connect
        from harness.processes.lifeline import Lifeline
        from tests.harness.running import wait_until

        class Heard:
            text = ""
            def write(self, text):
                self.text += text

        lifeline, sys.stderr = Lifeline(), Heard()
        first = connect(lifeline.address)
        wait_until(lambda: len(lifeline._lines) == 1, 240, lambda: "not let in")
        waiting = socket.socket()
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        taken = []
        while True:
            try:
                taken.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                break
        address, _, token = lifeline.address.partition("/")
        host, _, port = address.rpartition(":")
        waiting.connect((host, int(port)))
        waiting.sendall(token.encode())
        wait_until(lambda: "\\n" in sys.stderr.text, 240, lambda: "no complaint")
        for one in taken:
            os.close(one)
        wait_until(lambda: len(lifeline._lines) == 2, 240, lambda: sys.stderr.text)
        lifeline.close()
        print(first.recv(1), waiting.recv(1), sys.stderr.text)
    """
    argv = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=900)
    complaint = "ringscope: another rank cannot connect: Too many open files; raise ulimit -n\n"
    assert done.stdout == f"b'' b'' {complaint}\n", done.stderr
