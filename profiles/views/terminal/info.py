"""The text of `ringscope timeline --info`, which says what recordings hold and lack; and the text of `ringscope cut`,
which says how many rows a smaller recording keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from ...ground.numbers import counted
from ...model import marks
from ...model.timeline import Doubt, Timeline

_OPERATIONS: Final = ("kernels", "graphs", "copies", "memsets")
_LACKING: Final = {
    "kernels": "kernels",
    "copies": "copies",
    "api": "CUDA calls (why a GPU was idle stays unknown)",
    "marks": "NVTX marks (steps are found from the kernels)",
}


def text(timelines: Sequence[Timeline], doubts: Sequence[Doubt]) -> str:
    parts = [_recording(timeline) for timeline in timelines]
    if doubts:
        parts.append("\n".join(_doubt(doubt) for doubt in doubts))
    return "\n\n".join(parts)


def _recording(timeline: Timeline) -> str:
    told = timeline.recording
    version = " ".join(filter(None, (told.tool, told.tool_version)))
    schema = f", schema {told.schema_version}" if told.schema_version else ""
    lines = [told.path, f"  recorded by  {version} ({told.format}{schema})"]
    if told.origin_utc_ns is not None:
        when = datetime.fromtimestamp(told.origin_utc_ns // 10**9, timezone.utc)
        lines.append(f"  begun        {when:%Y-%m-%d %H:%M:%S} UTC")
    lines.append(f"  rank         {_rank(timeline)}")
    lines.append(f"  span         {_span(timeline)}")
    lines += [f"  GPU {line}" for line in _gpus(timeline)]
    host = [
        f"{len(getattr(timeline, name)):,} {label}" for name, label in _HOST.items() if len(getattr(timeline, name))
    ]
    lines.append(f"  host         {', '.join(host) or 'nothing'}")
    lacking = [label for table, label in _LACKING.items() if table not in timeline.known]
    if lacking:
        lines.append(f"  not in it    {', '.join(lacking)}")
    if timeline.left_out:
        left = ", ".join(f"{count:,} {reason}" for reason, count in timeline.left_out.items())
        lines.append(f"  left out     {left}")
    return "\n".join(lines + [f"  {_doubt(doubt)}" for doubt in timeline.doubts])


_HOST: Final = {
    "api": "API calls",
    "marks": "marks",
    "syncs": "synchronisations",
    "overheads": "profiler overheads",
    "phases": "phases of collectives",
    "gpu_metrics": "samples of GPU metrics",
    "power": "readings of power",
}


def _rank(timeline: Timeline) -> str:
    told = timeline.recording
    if told.rank is None:
        several = sorted({rank.number for rank in marks.ranks(timeline).values()})
        return f"{', '.join(map(str, several))} (from its own marks)" if several else "not known"
    sources = {"marks": "its own marks", "format": "its format", "file-name": "its file name"}
    of = f" of {told.ranks:,}" if told.ranks is not None else ""
    return f"{told.rank}{of} (from {sources.get(told.rank_source or '', told.rank_source)})"


def _span(timeline: Timeline) -> str:
    """The time from the first to the last GPU operation or, without GPU operations, from the first to the last phase,
    call or mark."""
    tables = [t for t in (getattr(timeline, name) for name in _OPERATIONS) if len(t)]
    tables = tables or [t for t in (timeline.phases, timeline.api, timeline.marks) if len(t)]
    if not tables:
        return "nothing in it"
    start, end = min(int(t["start_ns"].min()) for t in tables), max(int(t["end_ns"].max()) for t in tables)
    return f"{(end - start) / 1e9:.6f} s, from {start / 1e9:.6f} s to {end / 1e9:.6f} s"


def _gpus(timeline: Timeline) -> list[str]:
    """A line for each GPU with work, and a line with the number of GPUs without work."""
    lines, idle = [], 0
    for device in timeline.devices.itertuples():
        tables = {name: getattr(timeline, name) for name in _OPERATIONS}
        counts = {name: int((table["device"] == device.device).sum()) for name, table in tables.items()}
        if not any(counts.values()):
            idle += 1
            continue
        where = " ".join(filter(None, (device.name, device.bus_id))) or "(unknown model)"
        held = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        pids = {
            int(pid) for table in tables.values() for pid in table["pid"][table["device"] == device.device].unique()
        }
        processes = f", {len(pids)} processes" if len(pids) > 1 else ""
        number = str(device.device) if device.device >= 0 else "?"
        lines.append(f"{number:<8} {where}: {held}{processes}")
    if idle:
        lines.append(f"{'(idle)':<8} {counted(idle, 'more GPU')} listed, without work")
    return lines


def _doubt(doubt: Doubt) -> str:
    return f"{doubt.code}: {doubt.text}. To do: {doubt.next}"


def written(path: Path, rows: Mapping[str, tuple[int, int]]) -> str:
    """The size and number of rows of a smaller recording, then each table that lost rows, most lost first. rows:
    (before, after) by table."""
    before, after = sum(was for was, _ in rows.values()), sum(kept for _, kept in rows.values())
    lines = [f"{path}: {path.stat().st_size:,} bytes, {after:,} of {before:,} rows"]
    cut = sorted(((was - kept, name, was, kept) for name, (was, kept) in rows.items() if was > kept), reverse=True)
    lines += [f"  {name}: {kept:,} of {was:,}" for _, name, was, kept in cut]
    return "\n".join(lines)
