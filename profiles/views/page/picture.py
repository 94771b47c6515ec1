"""Pack the timeline that the page draws: the whole window in BINS bins, and a few steps with every operation.

One block of bytes: a little-endian uint32 with the length of a JSON header, the header, then the arrays that it names
as [type, place in bytes, count]; gzipped and in base64, since a page that is one file holds text. Times are ns on the
clock that all GPUs share, counted from `start` in the header.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...model.analysed import Analysis
from .. import spoken
from ..charts.lanes import KINDS, GpuLanes, Lane, ledger_lane, of_gpus, of_host, shift_ns

BINS = 2000
_BLOCK = 1 << 17  # operations processed at a time, so that they fit a CPU cache
MOST_OPERATIONS = 400_000  # number of operations in all windows of all GPUs together; they take about 2 MB of the page
MOST_LANES = 8  # number of streams that are drawn per GPU: the busiest
MOST_HOST_LANES = 8  # number of lanes of host threads, divided among the GPUs, but at least two per GPU
LONGEST_LABEL = 160


@dataclass(slots=True)
class _Packer:
    """Collects arrays into one block; `add` returns [type, place in bytes, count] of an array."""

    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    labels: dict[str, int] = field(default_factory=dict)

    def add(self, values: NDArray[Any]) -> list[str | int]:
        # Arrays are padded to multiples of 8 bytes, because typed arrays in the browser need this alignment.
        values = np.ascontiguousarray(values)
        content = values.tobytes()
        content += b"\0" * (-len(content) % 8)
        place, self.size = self.size, self.size + len(content)
        self.parts.append(content)
        return [values.dtype.name, place, len(values)]

    def label(self, lane: Lane, rows: NDArray[np.intp]) -> NDArray[np.uint16]:
        """The rows' labels as indices into the list of all labels; names after the first 65,535 share one index."""
        used, back = np.unique(lane.label[rows], return_inverse=True)
        places = []
        for one in used.tolist():
            name = spoken.name(lane.labels[one])
            short = name if len(name) <= LONGEST_LABEL else name[: LONGEST_LABEL - 1] + "…"
            places.append(min(self.labels.setdefault(short, len(self.labels)), 65_535))
        return np.array(places, np.uint16)[back]


@dataclass(frozen=True, slots=True)
class Window:
    """A time span drawn with every operation: its title, and per GPU start and end in ns on the GPU's own clock."""

    name: str
    of_gpu: tuple[tuple[int, int], ...]


def pack(analysis: Analysis) -> str:
    """The packed timeline of all GPUs in base64, for the page's script."""
    spans = [gpu.window_ns for gpu in analysis.measures.gpus]
    shifts = [shift_ns(analysis, gpu) for gpu in range(len(spans))]
    start = min(span[0] + shift for span, shift in zip(spans, shifts, strict=True))
    end = max(span[1] + shift for span, shift in zip(spans, shifts, strict=True))
    windows = chosen_windows(analysis)
    packer = _Packer()
    most = MOST_OPERATIONS // max(1, len(windows) * len(spans))
    header = {
        "start": start,
        "end": end,
        "owners": list(KINDS),
        "windows": [window.name for window in windows],
        # One GPU at a time, because a GPU's lanes take as much memory as its part of the recording.
        "gpus": [_gpu(packer, analysis, gpu, windows, (start, end), most) for gpu in of_gpus(analysis)],
    }
    header["labels"] = list(packer.labels)[:65_536]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 4) % 8)
    block = len(text).to_bytes(4, "little") + text + b"".join(packer.parts)
    return base64.b64encode(gzip.compress(block, 6, mtime=0)).decode()


def chosen_windows(analysis: Analysis) -> list[Window]:
    """Two typical steps (the neighbours nearest the median length) and the longest step, over all GPUs.

    Steps of GPUs are matched by index, and steps that not every GPU has are left out. If no step remains, the middle of
    the window is chosen."""
    pictures = analysis.gpus
    count = min((len(picture.step_start_ns) for picture in pictures), default=0)
    if not count:
        return [_middle(analysis)]
    length = np.max([(p.step_end_ns - p.step_start_ns)[:count] for p in pictures], axis=0)
    worst = int(np.argmax(length))
    away = np.abs(length - np.sort(length)[(count - 1) // 2])
    pairs = away[1:] + away[:-1]
    first = int(np.argmin(pairs)) if count > 1 else 0
    typical = (first, min(first + 1, count - 1))
    rows = analysis.measures.gpus[0].steps.rows

    def window(name: str, a: int, b: int) -> Window:
        return Window(name, tuple((int(p.step_start_ns[a]), int(p.step_end_ns[b])) for p in pictures))

    def number(place: int) -> int:
        return rows[place].step if len(rows) > place else place

    between = f"steps {number(typical[0])} and {number(typical[1])}" if count > 1 else f"step {number(0)}"
    chosen = [window(f"typical: {between}", *typical)]
    if not typical[0] <= worst <= typical[1]:
        chosen.append(window(f"worst: step {number(worst)}", worst, worst))
    return chosen


def _middle(analysis: Analysis) -> Window:
    """A tenth of the window around its middle, for recordings without steps."""
    spans = [gpu.window_ns for gpu in analysis.measures.gpus]
    return Window("the middle", tuple((a + (b - a) * 9 // 20, a + (b - a) * 11 // 20) for a, b in spans))


def _gpu(
    packer: _Packer,
    analysis: Analysis,
    gpu: GpuLanes,
    windows: Sequence[Window],
    span: tuple[int, int],
    most: int,
) -> dict[str, Any]:
    picture = analysis.gpus[gpu.gpu]
    shift = gpu.shift_ns - span[0]
    lasted = [-int((lane.end_ns - lane.start_ns).sum()) for lane in gpu.streams]
    busiest = sorted(range(len(lasted)), key=lasted.__getitem__)[:MOST_LANES]
    kept = [gpu.streams[place] for place in sorted(busiest)]
    threads = max(2, MOST_HOST_LANES // len(analysis.gpus))
    lanes = (ledger_lane(picture.ownership), *kept, *(islice(of_host(picture.host), threads) if picture.host else ()))
    edges = np.linspace(0, span[1] - span[0], BINS + 1)
    return {
        "title": gpu.title,
        "shift": shift,  # ns to add to the GPU's times so that they count from the header's `start`
        "left_out": len(gpu.streams) - len(kept),
        "steps": [
            packer.add((picture.step_start_ns + shift).astype(np.float64)),
            packer.add((picture.step_end_ns + shift).astype(np.float64)),
        ],
        "names": [row.step for row in analysis.measures.gpus[gpu.gpu].steps.rows],
        "lanes": [{"name": lane.name, "bins": _bins(packer, lane, edges, shift)} for lane in lanes],
        "raw": [_raw(packer, lanes, window.of_gpu[gpu.gpu], shift, most) for window in windows],
    }


def _bins(packer: _Packer, lane: Lane, edges: NDArray[np.float64], shift: int) -> list[list[Any]]:
    """Per kind of operation in the lane: the kind, and the share of each bin that its operations take, in 255ths
    (uint8, rounded up)."""
    found = []
    for kind in np.unique(lane.kind).tolist():
        share = np.diff(_taken_upto(lane, kind, edges, shift)) / np.diff(edges)
        found.append([kind, packer.add(np.ceil(share * 255 - 1e-9).astype(np.uint8))])
    return found


def _taken_upto(lane: Lane, kind: int, edges: NDArray[np.float64], shift: int) -> NDArray[np.float64]:
    """For each edge the ns that operations of this kind take before it: piecewise linear, of slope 1 inside operations
    and 0 between them. Computed block by block, because a lane may have millions of operations."""
    upto = np.zeros(len(edges))
    for first in range(0, len(lane), _BLOCK):
        block = slice(first, first + _BLOCK)
        mine = lane.kind[block] == kind
        start, end = lane.start_ns[block][mine] + shift, lane.end_ns[block][mine] + shift
        if not len(start):
            continue
        so_far = np.concatenate(([0], np.cumsum(end - start)))
        at = np.column_stack([start, end]).ravel()
        upto += np.interp(edges, at, np.column_stack([so_far[:-1], so_far[1:]]).ravel())
    return upto


def _raw(packer: _Packer, lanes: Sequence[Lane], window: tuple[int, int], shift: int, most: int) -> dict[str, Any]:
    """Every operation of the window, by lane; if there are more than `most`, the window ends earlier."""
    start, end = window
    inside = [np.flatnonzero((lane.end_ns > start) & (lane.start_ns < end)) for lane in lanes]
    everything = np.sort(np.concatenate([lane.start_ns[rows] for lane, rows in zip(lanes, inside, strict=True)]))
    if len(everything) > most:
        end = int(everything[most])
        inside = [rows[lane.start_ns[rows] < end] for lane, rows in zip(lanes, inside, strict=True)]
    return {
        "start": start + shift,
        "end": end + shift,
        "lanes": [_slices(packer, lane, rows, start) for lane, rows in zip(lanes, inside, strict=True)],
    }


def _slices(packer: _Packer, lane: Lane, rows: NDArray[np.intp], start: int) -> dict[str, Any]:
    begin, end = lane.start_ns[rows] - start, lane.end_ns[rows] - start
    # Differences of starts are small and similar, so they compress well; `first` holds the first start.
    step = np.diff(begin, prepend=begin[:1])
    return {
        "first": int(begin[0]) if len(begin) else 0,
        "step": packer.add(_smallest(step)),
        "length": packer.add(_smallest(end - begin)),
        "kind": packer.add(lane.kind[rows].astype(np.uint8)),
        "label": packer.add(packer.label(lane, rows)),
        "bytes": packer.add(lane.bytes[rows].astype(np.float64)) if lane.bytes[rows].any() else None,
    }


def _smallest(values: NDArray[np.int64]) -> NDArray[Any]:
    """The numbers as uint32 if all fit (4.29 s), else as float64, exact to 2**53 ns (104 days)."""
    return values.astype(np.uint32 if not len(values) or int(values.max()) < 2**32 else np.float64)
