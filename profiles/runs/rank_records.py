"""The record of one rank's timed steps, `rank<k>.jsonl` (docs/reference/files.md)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..ground import typed
from ..ground.errors import RingscopeError
from ..ground.files import open_regular, text_of, write_whole

RANK_SCHEMA = "ringscope.rank/1"
_ADDS_UP = 0.01
_LONGEST_HEADER = 1 << 20  # bytes of the first line


class Damaged(RingscopeError):
    """A file of a run is missing, empty, cut, or of another version."""


@dataclass(slots=True)
class RankRecord:
    """The content of `rank<k>.jsonl`: a header line, one line per timed step, and a closing line.

    `window_start_ns` and `window_end_ns` are UTC by the clock of the rank's host (time.time_ns). `step_ns` and
    `input_wait_ns` have one entry per timed step, measured on the host.
    """

    rank: int
    size: int
    local_rank: int
    host: str
    device: str | None  # UUID of the GPU, None on CPU
    window_start_ns: int
    window_end_ns: int
    samples: int  # number of this rank's samples in the window
    step_ns: list[int]
    input_wait_ns: list[int]
    clock_offset_ns: int = 0  # this host's clock minus that of rank 0's host, measured at a barrier
    extra: dict[str, Any] = field(default_factory=dict)  # final loss, digest of the weights, versions


def write_rank(path: Path, record: RankRecord) -> None:
    """Write `rank<k>.jsonl`, whole or not at all. Its closing line tells that the record is complete."""
    fields = asdict(record)
    step_ns, input_wait_ns = fields.pop("step_ns"), fields.pop("input_wait_ns")
    lines: list[dict[str, Any]] = [{"schema": RANK_SCHEMA, **fields}]
    lines += [
        {"step": number, "step_ns": step, "input_wait_ns": wait}
        for number, (step, wait) in enumerate(zip(step_ns, input_wait_ns, strict=True))
    ]
    lines.append({"end": True, "steps": len(step_ns)})
    write_whole(path, "".join(json.dumps(line) + "\n" for line in lines))


def read_rank(path: Path) -> RankRecord:
    """Read `rank<k>.jsonl`. Raises Damaged if the file is incomplete, or of another version."""
    try:
        text = text_of(path)
        typed.refuse_many(text.replace("\n", ","))
        header, *steps, end = [typed.loads(line) for line in text.splitlines()]
        schema = header.pop("schema")
        if schema != RANK_SCHEMA:
            raise Damaged(f"{path}: schema {schema!r}, this version reads {RANK_SCHEMA!r}; run that cell again")
        if end != {"end": True, "steps": len(steps)}:
            raise ValueError("its closing line is missing")
        known = typed.known(RankRecord, header)
        known["step_ns"] = [line["step_ns"] for line in steps]
        known["input_wait_ns"] = [line["input_wait_ns"] for line in steps]
        typed.check_fields(RankRecord, known)
        record = RankRecord(**known)
        _check(record, path)
        return record
    except OSError as error:
        raise Damaged(f"{path}: {error.strerror}; run that cell again") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{path}: not a whole rank record ({error}); run that cell again") from error


def _check(record: RankRecord, path: Path) -> None:
    """Raises ValueError if the record is of another rank than the file's name tells, or holds impossible values."""
    if path.name != f"rank{record.rank}.jsonl":
        raise ValueError(f"the record is of rank {record.rank}")
    if record.window_start_ns < 0:
        raise ValueError("its time window begins before 1970")
    if record.window_end_ns <= record.window_start_ns:
        raise ValueError("its time window ends before it begins")
    if any(ns < 0 for ns in (*record.step_ns, *record.input_wait_ns)):
        raise ValueError("a step's time is below 0")
    if not record.size > 0 or not record.samples > 0:
        raise ValueError(f"it counts {record.samples} samples and {record.size} ranks")
    window_ns = record.window_end_ns - record.window_start_ns
    # The steps fill the window. If their sum differs, the file was changed or the clock was set.
    if abs(sum(record.step_ns) - window_ns) > _ADDS_UP * window_ns:
        raise ValueError("the times of the steps do not add up to the time measured; the file was changed")


def host_beside(path: Path) -> str | None:
    """The host of the rank that a recording belongs to, as `rank<k>.jsonl` beside `rank<k>.sqlite` tells; None if
    unknown."""
    try:
        rank = path.with_name(path.name.split(".")[0] + ".jsonl")
        with open_regular(rank) as lines:
            header = typed.loads(lines.readline(_LONGEST_HEADER).decode())
        host = header["host"] if header["schema"] == RANK_SCHEMA else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return host if isinstance(host, str) else None
