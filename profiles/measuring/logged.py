"""Measure the collectives in logs of NCCL's Inspector and of its profiler plugin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from .. import readers
from ..ground.errors import SameRecording, UnreadableRecording
from ..metrics import logged
from ..model.logged import Logged
from ..readers import File, inspector_log, opening, plugin_log, refused
from ..readers.inspector_log import Log


def measure(paths: Iterable[str | Path], *, strict: bool = False, max_bytes: int | None = None) -> Logged:
    """The collectives in the logs at `paths` (files, directories, patterns, archives); other files become doubts.

    Raises UnreadableRecording if no log can be read; with `strict`, at the first unreadable file.
    """
    import pandas as pd

    with readers.listed(paths, max_bytes) as files:
        good, doubts = readers.sorted_out(files, _each(files, max_bytes), strict=strict)
    timed = [log.calls for _, log in good if not log.calls.empty]
    if not timed:
        raise UnreadableRecording(good[0][0].called, *plugin_log.NO_ENDS)
    calls = pd.concat(timed, ignore_index=True)
    left_out = zip(*((log.damaged, log.untimed, log.absent) for _, log in good), strict=True)
    made = logged.measured(calls, [str(file.called) for file, _ in good], *map(sum, left_out))
    made.doubts = [*doubts, *made.doubts]
    return made


def _each(files: Sequence[File], max_bytes: int | None) -> Iterator[Log | None | UnreadableRecording]:
    for file in files:
        try:
            yield _log(file, max_bytes)
        except UnreadableRecording as error:
            yield UnreadableRecording(file.called, error.problem, error.remedy)


def _log(file: File, max_bytes: int | None) -> Log | None:
    """Read a log. None for a file of another kind, if it was found in a directory; else raises UnreadableRecording."""
    head = opening.head(file.path)
    of_plugin = refused.is_plugin_log(head)
    if not of_plugin and not refused.is_inspector_log(head):
        if file.folder is not None:
            return None
        raise UnreadableRecording(file.called, "no log of NCCL's Inspector or profiler plugin", "leave it out")
    if file.original:
        raise SameRecording(file.called, f"the same log as {file.original}", "name one of the two")
    with opening.plain(file.path, max_bytes) as path:
        return plugin_log.read(path) if of_plugin else inspector_log.read(path)
