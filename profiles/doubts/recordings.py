"""Doubts that the readers of recordings raise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..ground import numbers
from ..ground.errors import SameRecording, UnreadableRecording
from ..model.possible import TWICE
from ..model.timeline import Doubt

# Advice for losing fewer launches, by the format of the recording.
LOSES_LESS = {
    "kineto": "let the profiler warm up (torch.profiler.schedule(wait=1, warmup=3, active=5)), and record fewer steps "
    "at once",
    "nvprof-sqlite": "record fewer steps at once, and let the program end by itself: nvprof loses events that it has "
    "not flushed",
}
LOSES_LESS_ELSE = (
    "record fewer steps at once, and let the program end by itself: otherwise events in its buffers are lost"
)
_AMD_AGAIN = "record again, with a newer ROCm if there is one"
_NSYS_AGAIN = (
    "record again, with the newest Nsight Systems; if the times are still wrong, with another profiler (ringscope "
    "record --profiler framework)"
)
# Advice for a recording with wrong times, by its format.
RECORD_AGAIN = {
    **dict.fromkeys(("nsys-sqlite", "nsys-stats-csv"), _NSYS_AGAIN),
    **dict.fromkeys(("nvprof-sqlite", "nvprof-csv"), "record again, with nsys rather than nvprof"),
    **dict.fromkeys(("rocprof", "rocprofv3", "rocpd"), _AMD_AGAIN),
}
RECORD_AGAIN_ELSE = "record again, with a newer version of the profiler if there is one, or with nsys"
_LONGEST_SAID = 300  # number of characters of a profiler's message that a doubt quotes
CAPTURE_REMEDY = "record while the CUDA graph is replayed, and give that recording"


def unreadable(error: UnreadableRecording) -> Doubt:
    text = f"{error.path}: {error.problem}; this file is left out"
    if isinstance(error, SameRecording):
        return Doubt("copy-left-out", text, error.remedy)
    return Doubt("unreadable", text, error.remedy)


def skipped_files(folder: Path, count: int) -> Doubt:
    files = "1 other file" if count == 1 else f"{count} other files"
    return Doubt(
        "skipped-files",
        f"{files} in {folder} {'is' if count == 1 else 'are'} no recording",
        "give one of these files alone to see why it cannot be read",
    )


def dropped_events(said: str) -> Doubt:
    return Doubt(
        "dropped-events",
        f"nsys said: {said[:_LONGEST_SAID]}",
        "record less at once: trace fewer kinds of events, or a shorter capture range",
    )


def capped_trace(events: int, remedy: str) -> Doubt:
    return Doubt(
        "dropped-events", f"the trace has {events:,} events, the most that XLA writes: later events are lost", remedy
    )


def rows_left_out(left_out: Mapping[tuple[str, str], int]) -> list[Doubt]:
    """`left_out`: number of rows by (why they were left out, table)."""
    twice = {table: count for (reason, table), count in left_out.items() if reason == TWICE}
    told: dict[str, list[str]] = {}
    for (reason, table), count in left_out.items():
        if reason != TWICE:
            told.setdefault(reason, []).append(f"{count:,} of the {table}")
    doubts = []
    if told:
        kinds = "; ".join(f"{', '.join(counts)} {reason}" for reason, counts in told.items())
        doubts.append(
            Doubt(
                "impossible-times",
                f"{numbers.counted(sum(left_out.values()) - sum(twice.values()), 'event')} left out for impossible "
                f"times: {kinds}",
                "if there are many, the profiler was killed: record again and let it finish",
            )
        )
    if twice:
        rows = ", ".join(f"{count:,} {table}" for table, count in twice.items())
        text = f"the file holds {rows} twice, with the same start, end and stream: each is read once"
        doubts.append(Doubt("copy-left-out", text, "give the file as the profiler wrote it, not joined with another"))
    return doubts


def before_their_calls(count: int, where: str) -> Doubt:
    return Doubt(
        "impossible-times",
        f"{numbers.counted(count, 'operation')} left out for a start before the launch call",
        "record again: the profiler gave them wrong times",
        (where,),
    )


def at_once(twice_ns: int, summed_ns: int, where: str) -> Doubt:
    return Doubt(
        "impossible-times",
        f"for {numbers.duration(twice_ns)} of the kernels' {numbers.duration(summed_ns)} a stream runs two kernels at "
        "once, which no GPU does: their times are wrong, or two recordings were joined into this file",
        "give each recording as the profiler wrote it, or record again",
        (f"{where}/kernels", f"{where}/ledger_ns"),
    )


def without_length(count: int, of: int) -> Doubt:
    return Doubt(
        "impossible-times",
        f"{count:,} of {of:,} kernels last 0 ns, which no kernel does: their time counts as idle",
        "record again, with a newer profiler if there is one",
    )


def mixed_types(count: int, tables: str) -> Doubt:
    return Doubt(
        "mixed-types",
        f"{numbers.counted(count, 'row')} of the recording's tables left out for values other than integers ({tables})",
        "export the recording again: something has edited this file",
    )


def missing_strings(count: int, tables: str) -> Doubt:
    return Doubt(
        "missing-strings",
        f"{numbers.counted(count, 'event')} shown as (unknown), because the file does not hold the name ({tables})",
        "export the recording again: something has edited this file",
    )


def coarse_sizes() -> Doubt:
    return Doubt(
        "coarse-sizes",
        "the file has the sizes of copies in megabytes with three decimals: each may be off by 500 bytes",
        "give the .sqlite or .nsys-rep file from which this file was made",
    )


def coarse_times_printed(step_ns: int) -> Doubt:
    return Doubt(
        "coarse-times",
        f"nvprof printed start times in steps of {step_ns} ns: gaps and overlaps shorter than that mean nothing",
        "record with `nvprof -o FILE`, or print with `--csv -u us`",
    )


def coarse_times_in_microseconds() -> Doubt:
    return Doubt(
        "coarse-times",
        "all times are whole microseconds: shorter gaps and overlaps mean nothing",
        "record with a newer profiler, which writes nanoseconds",
    )


def python_traced(calls: int, operations: int, remedy: str) -> list[Doubt]:
    """An empty list if there are fewer Python calls than GPU operations, because so few calls hardly slow the host
    down."""
    if calls < operations:
        return []
    said = (
        f"the profiler recorded {calls:,} Python calls, which slows the host down: the GPU waits longer for launches "
        "and for the host than in a run without Python tracing"
    )
    return [Doubt("python-traced", said, remedy)]


def clocks_apart(by_ns: float, side: str) -> Doubt:
    """`side`: `before` or `after`, the place of GPU operations relative to the calls that launched them."""
    return Doubt(
        "clocks-apart",
        f"GPU operations appear {numbers.duration(by_ns)} {side} the calls that launched them: the clocks of GPU and "
        "host were not brought together, so API calls and marks are left out",
        "causes of idle cannot be told from this recording; record again, with a newer profiler if there is one",
    )


def unfinished_recording(phases: int | None = None) -> Doubt:
    """`phases`: number of phases in Horovod's timeline that had not ended; None for other files."""
    stopped = "the file is cut short" if phases is None else f"training was killed, and {phases} phases had not ended"
    return Doubt(
        "unfinished-recording",
        f"the timeline is incomplete: {stopped}",
        "let training end by itself, or use the measures of the part that was written",
    )


def ranks_in_one_file(called: int, gpus: int) -> Doubt:
    """`called`: number of distinct GPU numbers in the file; `gpus`: number of physical GPUs that were recorded."""
    return Doubt(
        "ranks-in-one-file",
        f"the recordings of several ranks were merged into this file: by their collectives or calls, {called} GPU "
        f"{'number stands' if called == 1 else 'numbers stand'} for {gpus} GPUs",
        "give each rank's recording as the profiler wrote it",
    )


def no_gpu() -> Doubt:
    return Doubt(
        "no-gpu",
        "the profile has no GPU: only the host's ranges are read, and nothing is known of any GPU",
        "train where TensorFlow sees a GPU, with the profiler's device tracer on",
    )


def profiler_warnings(said: str, more: int) -> Doubt:
    others = f" (and {more} more)" if more else ""
    return Doubt(
        "profiler-warnings",
        f"the profiler warned: {said}{others}",
        "remove the cause of this warning, and record again",
    )


def samples_unreadable(path: Path, why: str) -> Doubt:
    return Doubt(
        "places-unreadable",
        f"{path}: cannot be read ({why}), so it is unknown which lines of Python the host was in",
        "record again with `ringscope record`, and keep the files of a rank together",
    )


def samples_not_aligned(path: Path, why: str) -> Doubt:
    return Doubt(
        "places-not-aligned",
        f"{path}: {why}",
        "install the package nvtx where the training runs: with it the recording has marks that bring both clocks "
        "together",
    )


def samples_few(path: Path, count: int) -> Doubt:
    """`count`: samples of the host's Python stack. With 95 % probability the share of a line is off by at most 1 /
    sqrt(count): twice the standard deviation of a binomial share of one half."""
    apart = 100 if not count else min(100, round(100 / count**0.5))
    return Doubt(
        "places-few",
        f"{path}: only {numbers.counted(count, 'sample')} of the Python stack, so the shares of lines may be off by "
        f"{apart} % of the time",
        "record more steps: `ringscope record --steps 200`",
    )
