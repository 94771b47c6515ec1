"""Export nsys's own reports (.nsys-rep, .qdrep) by the `nsys` on the PATH, because nothing else can read them.

The export is kept in $XDG_CACHE_HOME/ringscope under the report's SHA-256, so that the next call needs no export.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ...ground.errors import UnreadableRecording
from ...ground.files import open_regular, user_cache

# Reports of nsys 2022.4 begin with this name of an older tool. A file with nsys's suffix but another start is still
# given to nsys, which may be able to read it.
_MAGIC: Final = b"NVIDIA Tegra Profiler Report"
_SUFFIXES: Final = (".nsys-rep", ".qdrep")
_OTHERS: Final = (b"SQLite format 3", b"version https://git-lfs", b"<")

# Size of the cache, for some tens of exports: an export is about ten times as large as its report.
CACHE_BYTES: Final = 20 << 30
_TIMEOUT_S: Final = 3600
_PR_SET_PDEATHSIG: Final = 1  # see man 2 prctl
_PRCTL: Final = getattr(ctypes.CDLL(None), "prctl", None)  # Linux's


def is_report(path: Path) -> bool:
    with open_regular(path) as file:
        start = file.read(len(_MAGIC))
    return start == _MAGIC or (path.suffix in _SUFFIXES and not start.startswith(_OTHERS))


@contextmanager
def exported(path: Path, *, cache: bool) -> Iterator[Path]:
    """The SQLite export of a report; `path` itself if it is no report. Raises UnreadableRecording. `cache`: use an
    export that an earlier call kept, and keep a new one."""
    if not is_report(path):
        yield path
        return
    folder = _usable(user_cache()) if cache else None
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="ringscope-") as scratch:
            yield _export(path, Path(scratch))
        return
    kept = folder / f"{_digest(path)}.sqlite"
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=folder, prefix="export-") as scratch:
            os.replace(_export(path, Path(scratch)), kept)
    os.utime(kept)
    _cap(folder, kept)
    yield kept


def _usable(folder: Path | None) -> Path | None:
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def _export(path: Path, folder: Path) -> Path:
    nsys = shutil.which("nsys")
    how = f"where nsys is, run `nsys export -t sqlite -o {path.stem}.sqlite {path.name}` and give that"
    if nsys is None:
        raise UnreadableRecording(path, "an nsys report, which only nsys can read, and no nsys is on the PATH", how)
    # By a link, because nsys may write files beside its input, which must land in `folder`.
    report = folder / "report.nsys-rep"
    report.symlink_to(path.resolve())
    target = folder / "report.sqlite"
    try:
        done = run_export([nsys], report, target, timeout_s=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnreadableRecording(path, f"`nsys export` did not work ({error})", how) from None
    if done.returncode or not target.is_file():
        said = [line.strip() for line in (done.stderr + done.stdout).splitlines()]
        last = next((line for line in reversed(said) if line), "nothing")
        raise UnreadableRecording(
            path,
            f"`nsys export` failed and said: {last[:200]}",
            "try an nsys at least as new as the one it was recorded with",
        )
    return target


def run_export(
    nsys: Sequence[str], report: Path, target: Path, *, timeout_s: float | None = None, kept: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run `nsys export` of a report to SQLite, overwriting `target`; the result holds its exit status and output.

    If this nsys can, the export has binary payloads (a few % more to write), in which NCCL says how many bytes it
    moves. `nsys`: the command that calls nsys. The export is killed if this call is interrupted or its thread
    ends; with `kept`, the command itself must end when the thread does.
    """
    command = [*nsys, "export", "--type", "sqlite", "--force-overwrite=true", "--output", str(target)]
    for option in ("--include-blobs=true", None):
        done = _run([*command, *([option] if option else []), str(report)], timeout_s, kept)
        if not done.returncode or "include-blobs" not in done.stderr + done.stdout:
            break
    return done


def _run(command: Sequence[str], timeout_s: float | None, kept: bool) -> subprocess.CompletedProcess[str]:
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # so that killpg also ends the processes that nsys starts
        preexec_fn=None if kept else _end_with_the_caller,
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _end_with_the_caller() -> None:
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _cap(folder: Path, keep: Path) -> None:
    """Delete the least recently used exports until the cache holds at most CACHE_BYTES, but never delete `keep`."""
    kept = sorted(folder.glob("*.sqlite"), key=lambda path: path.stat().st_mtime, reverse=True)
    total = 0
    for path in kept:
        total += path.stat().st_size
        if total > CACHE_BYTES and path != keep:
            path.unlink(missing_ok=True)
