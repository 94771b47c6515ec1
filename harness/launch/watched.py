"""The hooks that tell the recording of this process of each step: laid before the script, or once the script has made
the process a rank (machine/joined.py)."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.util import Finalize
from types import ModuleType
from typing import Any

from profiles.ground import threads
from profiles.ground.after_import import once_imported
from profiles.ground.hooked import before
from ringscope.places import garbage, of_keras, of_tensorflow, of_torch, ranges

from ..machine import ranks, recorded_ranks
from . import users_launcher
from .profilers import DELAY_S
from .recording import Options, Recording
from .steps import DEEPSPEED, KERAS, OPTIMIZERS, Steps, of_execution, watch, watch_deepspeed, watch_optimizers

_ADAPTER = "keras.src.trainers.data_adapters.py_dataset_adapter"


class Hooks:
    """The hooks of one process. They tell `recording` of each step."""

    def __init__(self, options: Options, recording: Recording) -> None:
        self.options, self._tells = options, recording.rank == "0"
        if options.inside:
            ranges.for_framework(options.framework)
        self._steps = Steps(recording.recorder, within=options.inside, stepped=self._stepped)
        self.record(recording)
        garbage.watch()
        for name, part in {**of_tensorflow.PARTS, **of_torch.PARTS}.items():
            once_imported((name,), part)
        if options.span.steps:
            once_imported(KERAS, self._keras)
            once_imported([OPTIMIZERS], lambda optimizers: watch_optimizers(optimizers, self._steps))
            once_imported([DEEPSPEED], lambda deepspeed: watch_deepspeed(deepspeed, self._steps))
        if self._tells:
            once_imported([_ADAPTER], say_loaders)

    def record(self, recording: Recording) -> None:
        """Start this recording, which is told of all steps from now on."""
        self.recording, self._steps.recorder = recording, recording.recorder
        recording.start()

    def _stepped(self) -> None:
        self.recording.stepping = threading.get_ident()

    def _keras(self, keras: ModuleType) -> None:
        if self._tells:
            say_executions(keras)
        of_keras.lay(keras)
        watch(keras, self._steps)


_here: Hooks | None = None


def begin(options: Options, rank: str, size: int) -> None:
    """Lay the hooks of this process, or let those that it has tell a new recording, of rank `rank` of `size`."""
    global _here
    recording = Recording(options, rank, size)
    if _here is None:
        _here = Hooks(options, recording)
    else:
        _here.record(recording)


def end(*, failed: bool) -> None:
    """End the recording of this process. failed: True if the script failed."""
    if _here is not None:
        _here.recording.end(failed=failed)


def has_joined(rank: int, size: int, words: Sequence[str]) -> None:
    """Record this process, which the script has made rank `rank` of `size`. words: the options as JSON, and which ranks
    were to be recorded."""
    options, now = Options.from_json(words[0]), _here.recording if _here is not None else None
    if now is not None and now.several and now.pid == os.getpid():
        return
    if rank == 0 and words[1] != recorded_ranks.ALL:
        text = "--record-ranks has no effect on ranks that the script starts itself: all are recorded"
        print(f"ringscope: {text}", file=sys.stderr, flush=True)
    users_launcher.say_started(options.folder, rank, size)
    if now is not None and now.pid == os.getpid():
        now.drop()
    if options.span.steps:  # joining, building and wrapping a model takes longer than a short delay
        options = replace(options, span=replace(options.span, delay_s=max(options.span.delay_s, DELAY_S)))
    begin(options, str(rank), size)
    Finalize(None, lambda: end(failed=sys.exc_info()[0] is not None), exitpriority=100)  # as atexit, in any process


def say_loaders(adapters: ModuleType) -> None:
    """Warn on stderr before a training if the loader workers of all ranks on this host outnumber its cores. If the
    script uses ring, ring prints the warning."""
    said = set[str]()

    def say(adapter: Any, x: Any, *_: Any, **__: Any) -> None:
        on_host = ranks.local_size()
        found = threads.loaders_over_cores(x.workers, on_host, threads.cores_of_ranks(on_host))
        if found and "ringscope.ring" not in sys.modules and found[0] not in said:
            said.add(found[0])
            print(f"ringscope: {found[0]}; {found[1]}", file=sys.stderr, flush=True)

    before(adapters.PyDatasetAdapter, "__init__", say)


def say_executions(keras: ModuleType) -> None:
    """Say on stderr, before a training whose model takes several steps in one execution, that one mark stands for all
    of them. ring marks each step."""
    said = set[int]()

    def say(callbacks: Any, *_: Any, **__: Any) -> None:
        count = of_execution(callbacks)
        if count > 1 and "ringscope.ring" not in sys.modules and count not in said:
            said.add(count)
            text = f"ringscope: each recorded step is an execution of {count} steps (steps_per_execution={count})"
            print(f"{text}; divide its time by {count}", file=sys.stderr, flush=True)

    before(keras.callbacks.CallbackList, "on_train_begin", say)
