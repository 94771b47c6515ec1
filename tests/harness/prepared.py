"""Processes that need not import TensorFlow, for tests: one has, and forks for each who asks.

    python prepared.py LISTENING PID          imports it and serves at the socket with this number while that lives
    python prepared.py @ADDRESS python WORD...  has `python WORD...` run there, and ends as that ends

An import costs 3 s of CPU. What is forked makes its own devices, threads and graphs: none are there before. It gets the
environment, folder and output of the process that asks, which a launcher starts where it would have started Python.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from collections.abc import Sequence

MESSAGE_BYTES = 1 << 20  # more than any environment


def main() -> None:
    where, *command = sys.argv[1:]
    if where.startswith("@"):
        ask(f"\0{where[1:]}", command[1:])
    elif words := serve(socket.socket(fileno=int(where)), os.pidfd_open(int(command[0]))):
        run(words)


def ask(address: str, words: Sequence[str]) -> None:
    """Does not return."""
    wanted = {"words": words, "folder": os.getcwd(), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.connect(address)
        socket.send_fds(line, [json.dumps(wanted).encode()], [1, 2])
        code = int(line.recv(MESSAGE_BYTES) or b"1")
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def serve(server: socket.socket, asked: int) -> list[str] | None:
    """In a fork: the words that it shall run. In the process itself: None, once that of the descriptor has ended."""
    import gc

    import horovod.runner.http.http_server
    import horovod.tensorflow  # noqa: F401
    import keras  # noqa: F401
    import tensorflow  # noqa: F401

    gc.collect()
    gc.freeze()  # forks need not look through all that
    while True:
        ready, _, _ = select.select([server, asked], [], [])
        if asked in ready:
            return None
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # what they took is counted as this process's
                pass
        line, _ = server.accept()
        if not os.fork():
            server.close()
            return attend(line)
        line.close()


def attend(line: socket.socket) -> list[str]:
    """Fork once more and tell how that ends; it is killed where who asked has gone, as a launcher would kill it."""
    message, outputs, _, _ = socket.recv_fds(line, MESSAGE_BYTES, 2)
    wanted = json.loads(message)
    pid = os.fork()
    if not pid:
        line.close()
        for number, output in zip((0, 1, 2), (os.open(os.devnull, os.O_RDONLY), *outputs), strict=True):
            os.dup2(output, number)
            os.close(output)
        os.chdir(wanted["folder"])
        os.environ.clear()
        os.environ.update(wanted["environment"])
        return list(wanted["words"])
    for output in outputs:
        os.close(output)
    ended = os.pidfd_open(pid)
    if ended not in select.select([line, ended], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        line.send(str(code).encode())
    os._exit(0)


def run(words: Sequence[str]) -> None:
    """As `python words...` does, in this process."""
    module = words[0] == "-m"
    sys.argv = list(words[module:])
    sys.path[0] = os.getcwd() if module else os.path.dirname(os.path.abspath(words[0]))
    if module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
