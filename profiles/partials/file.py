"""Units as a small file: what one host measured of its own recordings, to be put together with what others did.

gzipped JSON, schema ringscope.partial/1 (docs/reference/files.md). It holds measures, and what other ranks' may change
of them; no operations. Times are as in the recordings.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from ..errors import RingscopeError, UnreadableRecording
from ..files import written_whole
from ..gpus.clock import Ends
from ..intervals import Intervals
from ..marks import Rank
from ..measures import GpuMeasures
from ..measures_json import made_of, plain
from ..metrics.collectives import Own
from ..records import RunRecord
from ..timeline import Doubt, Recording
from ..version import VERSION
from .unit import Asked, GpuHead, Measured, Recorded, Unit

SCHEMA: Final = "ringscope.partial/1"
_BEGINS: Final = b'{"schema": "ringscope.partial/'
_GZIP: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Held:
    """A recording that is not at hand: the partial file that holds what it told."""

    path: Path
    recording: str

    def refusal(self, from_step: int, of: Sequence[str]) -> RingscopeError:
        """Why it would have to be made again, and how. `of`: the recordings that must be measured together."""
        if len(of) > 1:
            problem = f"{', '.join(of)} belong together (one GPU, one clock), and {self.path} holds some of them"
            return RingscopeError(f"{problem}; make one partial file of all of them")
        problem = f"{self.path}: its steps count from too early, as other ranks are warm only at step {from_step}"
        return RingscopeError(f"{problem}; make it again with --from-step {from_step}")


def write(path: Path, units: Sequence[Unit], doubts: Sequence[Doubt], asked: Asked) -> None:
    """Write measured units, and doubts about what could not be read.

    Raises RingscopeError where the file may not be written.
    """
    data = {
        "schema": SCHEMA,
        "version": VERSION,
        "window": asked.window,
        "doubts": plain(doubts),
        "units": [_unit(unit) for unit in units],
    }
    with written_whole(path) as beside, gzip.open(beside, "wt", 6, encoding="utf-8") as out:
        json.dump(data, out, allow_nan=False)


def detects(path: Path) -> bool:
    """Is it such a file? Never raises, and waits for no pipe."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            if file.read(2) != _GZIP:
                return False
        with gzip.open(path) as content:
            return content.read(len(_BEGINS)) == _BEGINS
    except (OSError, EOFError, zlib.error):
        return False


def read(path: Path, asked: Asked) -> list[Unit]:
    """The units again. Raises UnreadableRecording for one that is damaged, of another version or of another window."""
    again = "make it again: ringscope timeline PATH --partial FILE"
    try:
        with gzip.open(path, "rt", encoding="utf-8") as content:
            data = json.load(content)
        if data["schema"] != SCHEMA or data["version"] != VERSION:
            problem = f"a partial file of ringscope {data['version']} ({data['schema']}), and this is {VERSION}"
            raise UnreadableRecording(path, problem, again)
        if data["window"] != asked.window:
            problem = f"measured with --window {data['window'] or 'steps where there are any'}, and asked for is "
            raise UnreadableRecording(path, problem + (asked.window or "the default"), again)
        units = [_made(one) for one in data["units"]]
        first = units[0].recordings[0]
        told = (*(made_of(Doubt, one) for one in data["doubts"]), *first.doubts)
        units[0].recordings = (replace(first, doubts=told), *units[0].recordings[1:])
        return units
    except (
        OSError,
        EOFError,
        zlib.error,
        UnicodeDecodeError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
    ) as error:
        raise UnreadableRecording(path, f"a partial file, cut short or damaged ({error})", again) from None


def _unit(unit: Unit) -> dict[str, Any]:
    return {
        "shift_ns": list(unit.shift_ns),
        "recordings": [_recorded(one) for one in unit.recordings],
        "gpus": [_head(one) | _measured(of) for one, of in zip(unit.gpus, unit.measured, strict=True)],
        "measured_from": [[source, number] for source, number in unit.measured_from.items()],
    }


def _recorded(one: Recorded) -> dict[str, Any]:
    names = list(dict.fromkeys(one.ends.name.tolist()))
    code = {name: number for number, name in enumerate(names)}
    return {
        "recording": plain(one.recording),
        "doubts": plain(one.doubts),
        "ends": {
            "origin_utc_ns": one.ends.origin_utc_ns,
            "end_ns": one.ends.end_ns.tolist(),
            "name": [code[name] for name in one.ends.name.tolist()],
            "names": names,
        },
        "ranks": sorted([rank.number, rank.size] for rank in one.ranks),
        "record": one.record.to_json() if one.record else None,
        "only_phases": one.only_phases,
    }


def _head(gpu: GpuHead) -> dict[str, Any]:
    return {
        "places": [list(place) for place in gpu.places],
        "identity": list(gpu.identity),
        "rank": gpu.rank,
        "collectives": {name: getattr(gpu.collectives, name).tolist() for name in Own.__slots__},
        "steps_source": gpu.steps_source,
        "first_step": gpu.first_step,
    }


def _measured(gpu: Measured) -> dict[str, Any]:
    return {
        "measures": plain(gpu.measures),
        "doubts": plain(gpu.doubts),
        "exposed": [gpu.exposed.start.tolist(), gpu.exposed.end.tolist()],
    }


def _made(data: dict[str, Any]) -> Unit:
    return Unit(
        members=(),
        recordings=tuple(_made_recorded(one) for one in data["recordings"]),
        shift_ns=tuple(data["shift_ns"]),
        gpus=tuple(_made_head(one) for one in data["gpus"]),
        gathered=None,
        measured=tuple(_made_measured(one) for one in data["gpus"]),
        measured_from={source: number for source, number in data["measured_from"]},
    )


def _made_recorded(data: dict[str, Any]) -> Recorded:
    ends = data["ends"]
    names = np.array(ends["names"], dtype=object)
    return Recorded(
        recording=cast(Recording, made_of(Recording, data["recording"])),
        doubts=tuple(made_of(Doubt, one) for one in data["doubts"]),
        ends=Ends(ends["origin_utc_ns"], _times(ends["end_ns"]), names[_times(ends["name"])]),
        ranks=frozenset(Rank(number, size) for number, size in data["ranks"]),
        record=RunRecord.from_json(data["record"]) if data["record"] else None,
        only_phases=data["only_phases"],
    )


def _made_head(data: dict[str, Any]) -> GpuHead:
    own = data["collectives"]
    return GpuHead(
        places=tuple((place, device) for place, device in data["places"]),
        identity=tuple(data["identity"]),
        rank=data["rank"],
        collectives=Own(
            _times(own["start_ns"]), _times(own["end_ns"]), _times(own["bytes"]), np.array(own["all_reduce"], bool)
        ),
        steps_source=data["steps_source"],
        first_step=data["first_step"],
    )


def _made_measured(data: dict[str, Any]) -> Measured:
    start, end = data["exposed"]
    return Measured(
        measures=cast(GpuMeasures, made_of(GpuMeasures, data["measures"])),
        doubts=tuple(made_of(Doubt, one) for one in data["doubts"]),
        exposed=Intervals(_times(start), _times(end)),
        picture=None,
    )


def _times(values: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)
