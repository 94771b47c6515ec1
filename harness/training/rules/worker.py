"""Measure one rule: `python -m harness.training.rules.worker RULE MODEL BATCH PAIRS DIR`.

Like a rank of a cell, this process writes `rank0.jsonl` or `rank0.error.json`, and `rank0.progress`. Each step in
`rank0.jsonl` is one turn, in which one of the rule's two ways is timed; `extra` names the way of each turn.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from profiles.ground.files import write_whole
from profiles.runs.rank_records import RankRecord, write_rank

from .. import facts
from ..worker import Progress, what_became
from .ways import Subject, Way, Ways, growing_gpus, ways

TURN_NS = 300_000_000  # ns, length of a turn: long against clock errors, short against drift between neighbouring turns
MOST_STEPS = 4096
WARM_UPS = 3


def main(rule: str, model: str, batch: str, pairs: str, folder: str) -> int:
    out, count = Path(folder), int(pairs)
    progress = Progress(out / "rank0.progress")
    try:
        progress.phase("import")
        gpus = growing_gpus()
        progress.phase("build")
        pair = ways(rule, Subject(model, int(batch), bool(gpus)))
        steps = settle(pair, time.perf_counter_ns)
        started = time.time_ns()
        turns = take_turns(pair, steps, count, time.perf_counter_ns, progress.phase("train", 2 * count))
        write_rank(out / "rank0.jsonl", record(turns, started, pair.what, gpu=bool(gpus)))
    except Exception as error:
        status, reason = what_became(error)
        traceback.print_exc()
        write_whole(out / "rank0.error.json", json.dumps({"status": status, "reason": reason}))
        sys.stderr.flush()
        os._exit(1)
    return 0


def settle(pair: Ways, now_ns: Callable[[], int]) -> dict[bool, int]:
    """Warm up both ways, and find how many steps of each take TURN_NS. Returns: follows the advice -> steps."""
    found = {}
    for advised, way in ((False, pair.against), (True, pair.advised)):
        for _ in range(WARM_UPS):
            way(1)
        steps = 1
        while (took := timed(way, steps, now_ns)[1]) < TURN_NS // 2 and steps < MOST_STEPS:
            steps *= 2
        found[advised] = max(1, min(MOST_STEPS, round(steps * TURN_NS / took)))
    return found


def take_turns(
    pair: Ways, steps: dict[bool, int], pairs: int, now_ns: Callable[[], int], done: Callable[[int], None]
) -> list[dict[str, Any]]:
    """Pairs of turns, one following the advice and one against it, in alternating order."""
    turns = []
    for number in range(pairs):
        for advised in (False, True) if number % 2 == 0 else (True, False):
            samples, took = timed(pair.advised if advised else pair.against, steps[advised], now_ns)
            turns.append({"advised": advised, "samples": samples, "ns": took})
            done(len(turns))
    return turns


def timed(way: Way, steps: int, now_ns: Callable[[], int]) -> tuple[int, int]:
    """Run one turn. Returns (samples, ns)."""
    began = now_ns()
    samples = way(steps)
    return samples, now_ns() - began


def record(turns: list[dict[str, Any]], started_utc_ns: int, what: str, *, gpu: bool) -> RankRecord:
    took = [turn["ns"] for turn in turns]
    return RankRecord(
        rank=0,
        size=1,
        local_rank=0,
        host=socket.gethostname(),
        device=facts.gpu_uuid(0) if gpu else None,
        window_start_ns=started_utc_ns,
        window_end_ns=started_utc_ns + sum(took),
        samples=sum(turn["samples"] for turn in turns),
        step_ns=took,
        input_wait_ns=[0] * len(took),
        extra={"turns": turns, "what": what},
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
