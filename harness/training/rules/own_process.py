"""A `Way` in a separate process, because libraries' choices and environment variables hold for a whole process."""

from __future__ import annotations

import importlib
import multiprocessing
import os
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from .ways import Subject, Way, growing_gpus


def in_own_process(module: str, name: str, on: Subject, environ: Mapping[str, str]) -> Way:
    """The way that `module.name(on)` makes, run in a process with this process's variables and `environ`. A turn raises
    RuntimeError with the reason if that process ends."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    before = dict(os.environ)
    os.environ.update(environ)
    try:
        process = context.Process(target=_serve, args=(module, name, on, theirs), daemon=True)
        process.start()
    finally:
        os.environ.clear()
        os.environ.update(before)
    theirs.close()

    def take(steps: int) -> int:
        try:
            ours.send(steps)
            told = ours.recv()
        except (EOFError, OSError) as error:
            process.join()
            raise RuntimeError(f"the process of {name} ended with code {process.exitcode}") from error
        if isinstance(told, str):
            raise RuntimeError(told)
        return int(told)

    return take


def _serve(module: str, name: str, on: Subject, asked: Connection[Any, Any]) -> None:
    """Train the number of steps that each message asks for, until the pipe is closed."""
    growing_gpus()
    try:
        way = getattr(importlib.import_module(module), name)(on)
        while True:
            asked.send(way(asked.recv()))
    except EOFError:
        return
    except Exception as error:
        asked.send(f"{type(error).__name__}: {error}")
