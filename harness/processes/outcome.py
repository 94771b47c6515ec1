"""Judge how a launch ended by the files that it left: exit codes, the ranks' records and errors, logs."""

from __future__ import annotations

import contextlib
import json
import math
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from profiles.ground.errors import RingscopeError
from profiles.runs.rank_records import read_rank
from profiles.runs.records import STATUSES

from ..machine.out_of_memory import OUT_OF_MEMORY
from .keeper import MIB

# A rank whose error says this reports that another rank ended, not a fault of its own.
OF_A_PEER = re.compile(
    r"HorovodInternalError|Horovod has been shut down|[Cc]onnection (reset|closed|refused)|peer|Broken pipe|"
    r"communication failed|mpirun noticed|UnavailableError"
)
UNREACHABLE = re.compile(
    r"Could not resolve hostname|Name or service not known|Connection refused|No route to host|Network is unreachable|"
    r"Connection timed out|Operation timed out|Permission denied \(|Host key verification failed|"
    r"[Uu]nable to connect|unable to reliably start|lost communication with|cannot reach the sweep|"
    r"closed by remote host|Timed out waiting for|not reachable"
)
# Texts that are searched for if no line says why a host could not be reached.
UNREACHABLE_SOMEHOW = re.compile(r"ssh not successful|A daemon failed to report back")
UNSUPPORTED = re.compile(
    r"(Gloo|MPI|NCCL)( support)? has not been built|not (been )?built with|unavailable because|Invalid MPI type"
)
STALLED = re.compile(r"is stalled for longer than|Timed out waiting \d+ms")

# Lines at a log's end that explain nothing: TensorFlow's information and warnings, the bare name of an exception, a
# line of dashes, a stack frame.
SAYS_NOTHING = re.compile(r"^[IW]\d{4} \d\d[: ]|^\d{4}-\d\d-\d\d [\d:.]+: [IW] |^[\w.]+$|^Traceback \(most recent")
WITHOUT_MODEL = ("start", "import", "connect")  # phases of a rank's progress in which it has no model yet
RANK = re.compile(r"^\[\d+\]<\w+>:")  # horovodrun's prefix of a rank's line
KEEPERS = re.compile(r"ringscope: ")  # a keeper's prefix of its own lines


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a launch. status: one of profiles.runs.records.STATUSES. reason: empty if it is ok."""

    status: str
    reason: str = ""


def judge(
    directory: Path,
    *,
    processes: int,
    exit_code: int,
    stopped: Outcome | None,
    remote: bool,
    lost: Mapping[str, str] = MappingProxyType({}),
) -> Outcome:
    """The outcome of the launch that left its files in `directory`.

    The first failure counts, because the other ranks then fail too. processes: the number of ranks. exit_code: the
    launcher's. stopped: the outcome if ringscope ended the launch. remote: True if ranks ran on other hosts. lost:
    hosts that do not see `directory` -> why their ranks' files could not be fetched.
    """
    errors = _by_rank(directory, "error.json")
    ends = _by_rank(directory, "end.json")
    own = {rank: error for rank, error in errors.items() if not OF_A_PEER.search(error.get("reason", ""))}
    if out_of_memory := [rank for rank, end in ends.items() if end["signal"] == signal.SIGKILL and end["oom_kills"]]:
        peak = ends[out_of_memory[0]]["max_rss_bytes"] / 1e9
        killed = ", ".join(map(str, out_of_memory))
        return Outcome("oom", f"rank {killed} was killed by the kernel for memory at {peak:.1f} GB")
    if over := next(((rank, end) for rank, end in ends.items() if end.get("over_memory_limit_mb")), None):
        return _over_limit(directory, *over)
    if own:
        return _of_error(*_first(own))
    if stopped:
        return stopped
    if exit_code == 0 and not errors:
        return _of_records(directory, processes, lost)
    return (
        _of_logs(directory, ends, remote)
        or _of_ends(directory, ends)
        or (_of_error(*_first(errors)) if errors else None)
        or Outcome("failed", f"the launcher ended with code {exit_code}{last_words(directory / 'launcher.log')}")
    )


def _by_rank(directory: Path, kind: str) -> dict[int, dict[str, Any]]:
    """rank -> the content of its `rank<k>.<kind>`, in the order in which the files were written."""
    found: dict[int, dict[str, Any]] = {}
    for path in sorted(directory.glob(f"rank*.{kind}"), key=lambda path: path.stat().st_mtime_ns):
        with contextlib.suppress(OSError, ValueError):  # a half-written file is ignored
            told = json.loads(path.read_text())
            if isinstance(told, dict):
                found[int(path.name[4:].partition(".")[0])] = told
    return found


def _first(found: dict[int, dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    return next(iter(found.items()))


def _of_error(rank: int, error: dict[str, Any]) -> Outcome:
    status = error.get("status")
    # A cell that is not possible fails on every rank, so do not name a rank.
    who = "" if status in ("unsupported", "indivisible") else f"rank {rank}: "
    return Outcome(status if status in STATUSES else "failed", f"{who}{error.get('reason', 'no reason given')}")


def _over_limit(directory: Path, rank: int, end: dict[str, Any]) -> Outcome:
    """The outcome of a rank that used more host memory than its limit, however it ended."""
    held, limit = math.ceil(end["max_rss_bytes"] / MIB), end["over_memory_limit_mb"]
    phase = _by_rank(directory, "progress").get(rank, {}).get("phase")
    # tells `fits` that a smaller batch would not help
    when = " before it had a model" if phase in WITHOUT_MODEL else ""
    return Outcome(
        "oom", f"rank {rank} used {held:,} MiB of host memory{when}, more than {limit:,} (--memory-limit-mb)"
    )


def _of_records(directory: Path, processes: int, lost: Mapping[str, str]) -> Outcome:
    for rank in range(processes):
        path = directory / f"rank{rank}.jsonl"
        if not path.exists():
            return Outcome("failed", f"rank {rank} left no record: {_where(directory, lost)}")
        try:
            read_rank(path)
        except RingscopeError as error:
            return Outcome("failed", str(error))
    return Outcome("ok")


def _where(directory: Path, lost: Mapping[str, str]) -> str:
    if not lost:
        return f"does every host see {directory}?"
    hosts = "; ".join(f"{host} ({why})" for host, why in lost.items())
    return (
        f"the run directory is not shared, and its files could not be fetched from {hosts}; name an --out that every "
        "host sees, or mend the connection and continue with --resume --retry-failed"
    )


def _of_logs(directory: Path, ends: dict[int, dict[str, Any]], remote: bool) -> Outcome | None:
    """Judge by the output of the launcher and the ranks; None if it does not say what happened."""
    said = _read(directory / "launcher.log")
    if remote and (line := line_with(UNREACHABLE, said) or line_with(UNREACHABLE_SOMEHOW, said)):
        return Outcome("unreachable", line)
    if line := line_with(UNSUPPORTED, said):
        return Outcome("unsupported", line)
    if line := line_with(KEEPERS, said):
        return Outcome("failed", line.partition("ringscope: ")[2])
    for rank in ends:
        log = _read(directory / f"rank{rank}.log")
        if line := line_with(OUT_OF_MEMORY, log):
            return Outcome("oom", f"rank {rank}: {line}")
        if line := line_with(STALLED, log):
            return Outcome("hung", f"rank {rank} waited in vain for another rank: {line}")
    return None


def _of_ends(directory: Path, ends: dict[int, dict[str, Any]]) -> Outcome | None:
    """Name the first rank that ended badly; SIGTERM is ignored, because launchers send it to the other ranks."""
    killed = {rank: number for rank, end in ends.items() if (number := _signal(end)) and number != signal.SIGTERM}
    for rank, number in killed.items():
        return Outcome("failed", f"rank {rank} was killed by {number.name}")
    for rank, end in ends.items():
        if end["exit_code"]:
            words = last_words(directory / f"rank{rank}.log")
            return Outcome("failed", f"rank {rank} ended with code {end['exit_code']}{words}")
    return None


def _signal(end: Mapping[str, Any]) -> signal.Signals | None:
    """The signal that ended a rank, also below a profiler or shell, which exits with 128 + its child's signal."""
    number = end["signal"] or (end["exit_code"] or 0) - 128
    return signal.Signals(number) if number in set(signal.Signals) else None


def _read(path: Path, tail_bytes: int = 200_000) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - tail_bytes))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def line_with(pattern: re.Pattern[str], text: str) -> str | None:
    """The first line that matches. Lines that are not indented come first, because a traceback shows code indented."""
    found = [line for line in text.splitlines() if pattern.search(line)]
    return _clean(min(found, key=lambda line: RANK.sub("", line)[:1].isspace())) if found else None


def last_words(log: Path) -> str:
    """`: <the last line that explains something>` of a log; empty if there is none."""
    lines = map(_clean, (line for line in _read(log).splitlines() if not line.startswith((" ", "\t"))))
    said = [line for line in lines if re.search(r"\w", line) and not SAYS_NOTHING.search(line)]
    return f": {said[-1]}" if said else ""


def _clean(line: str) -> str:
    """A line of a log without horovodrun's `[rank]<stderr>:`, cut to 300 characters."""
    return RANK.sub("", line.strip()).lstrip()[:300]
