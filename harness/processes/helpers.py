"""Processes of a job that are no ranks, such as servers: each runs under a keeper, so that none outlives the job."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from profiles.ground.errors import RingscopeError

from .. import launch
from ..launch.environment import allowed
from .lifeline import Lifeline, let_go
from .outcome import last_words

LOOK_S = 0.1


class Helpers(AbstractContextManager["Helpers"]):
    """A group of processes, as a context manager that ends all of them and their children."""

    def __init__(self, *, most: int = 1) -> None:
        self._lifeline = Lifeline(lines=most + 1)
        self._running: list[tuple[subprocess.Popen[bytes], Path]] = []

    def start(self, argv: Sequence[str], log: Path, more: Mapping[str, str] | None = None) -> None:
        """Start a command with its output in `log`. more: environment variables beside a rank's."""
        with log.open("ab") as output:
            process = subprocess.Popen(
                launch.keeper(argv, lifeline=self._lifeline.address),
                env=allowed(os.environ) | {"TF_CPP_MIN_LOG_LEVEL": "2"} | dict(more or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C must reach only the job, which then ends these processes in order
            )
        self._running.append((process, log))

    def until(self, holds: Callable[[], bool], limit_s: float, what: str) -> None:
        """Wait until `holds()` is true. Raises RingscopeError if a process ends before that, or after `limit_s`
        seconds."""
        until = time.monotonic() + limit_s
        while not holds():
            for process, log in self._running:
                if process.poll() is not None and not holds():
                    raise RingscopeError(f"{what}: ended with {process.returncode}{last_words(log)}; see {log}")
            if time.monotonic() > until:
                raise RingscopeError(f"{what}: not ready within {limit_s:g} s; see {self._running[-1][1]}")
            time.sleep(LOOK_S)

    def ended(self, limit_s: float, what: str) -> None:
        """Wait until all have ended. Raises RingscopeError if one failed, or is not done after `limit_s` seconds."""
        until = time.monotonic() + limit_s
        while any(process.poll() is None for process, _ in self._running) and time.monotonic() < until:
            time.sleep(LOOK_S)
        for process, log in self._running:
            if process.poll() is None:
                raise RingscopeError(f"{what}: not done within {limit_s:g} s; see {log}")
            if process.returncode:
                raise RingscopeError(f"{what}: ended with {process.returncode}{last_words(log)}; see {log}")

    def __exit__(self, *error: object) -> None:
        self._lifeline.close()
        for process, _ in self._running:
            let_go(process)
