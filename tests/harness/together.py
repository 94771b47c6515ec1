"""`python together.py OUT JOBS [as_on_gpus|between_hosts]`: scripts (JSON: a list of name, ranks, script, words), each
on ranks of its own, as_on_gpus.py's ways or not. A script whose ranks mostly wait says how many `busy` ones they are.

All share one import of TensorFlow, which takes longer than most of them: a rank is a fork in which no device, thread or
graph has been made. Else it is what `horovodrun --gloo` starts, and it ends as Python does. OUT gets each rank's output
(NAME.RANKS.RANK.log), what its script has in the end (.npz), and codes.json: exit codes, minus the number of the signal
that ended one, -9 after LIMIT_S seconds.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import horovod.tensorflow  # noqa: F401
import keras
import numpy as np
import tensorflow  # noqa: F401

from ringscope.ring.models import optimizers_of
from tests.harness import as_on_gpus
from tests.harness.pair import end_with_parent, meet, place

LIMIT_S = 600
AT_ONCE = 3  # processes: two ranks and one alone keep two cores busy


class Job:
    """A script's ranks, and the server by which they meet."""

    def __init__(
        self, out: Path, name: str, ranks: int, script: str, words: list[str], limit_s: float, busy: int
    ) -> None:
        self.name, self.ranks, self.busy = name, ranks, busy
        self._deadline = time.monotonic() + limit_s
        self._serving, where = meet(ranks) if ranks > 1 else (0, {})
        self._pids = [
            forked(out / f"{name}.{ranks}.{rank}.log", where | place(rank, ranks) if where else {}, script, words)
            for rank in range(ranks)
        ]
        self.codes: dict[int, int] = {}

    def ended(self) -> bool:
        """Whether all ranks have; ends those that take too long."""
        for rank, pid in enumerate(self._pids):
            if rank in self.codes:
                continue
            if time.monotonic() > self._deadline:
                os.kill(pid, signal.SIGKILL)
            if (waited := os.waitpid(pid, os.WNOHANG))[0]:
                self.codes[rank] = os.waitstatus_to_exitcode(waited[1])
        if len(self.codes) < self.ranks:
            return False
        if self.ranks > 1:
            os.kill(self._serving, signal.SIGKILL)
            os.waitpid(self._serving, 0)
        return True


class Rank(BaseException):
    """Leaves the parent's stack in a fork, which is `python script words...` from there on."""

    def __init__(self, run: Callable[[], Any]) -> None:
        super().__init__()
        self.run = run


def forked(log: Path, environment: dict[str, str], script: str, words: list[str]) -> int:
    pid = os.fork()
    if pid:
        return pid
    end_with_parent()
    file = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.update(environment)
    sys.argv = [script, *words]
    sys.path[0] = str(Path(script).parent)
    raise Rank(lambda: np.savez(log.with_suffix(".npz"), **kept(runpy.run_path(script, run_name="__main__"))))


def kept(found: dict[str, Any]) -> dict[str, Any]:
    """Arrays by name: weights and optimizers' state of the models among a script's variables, histories, `results`."""
    arrays = {}
    for name, value in found.items():
        models = list(value) if isinstance(value, list) else [value]
        for i, model in enumerate(models):
            if isinstance(model, keras.Model):
                state = [variable for optimizer in optimizers_of(model) for variable in optimizer.variables]
                for j, variable in enumerate((*model.variables, *state)):
                    if not variable.path.endswith("seed_generator_state"):  # a rank's own
                        arrays[f"{name} {i} {j} {variable.path}"] = variable.numpy()
        if isinstance(value, keras.callbacks.History):
            arrays |= {f"{name} {metric}": np.array(values) for metric, values in value.history.items()}
        elif name == "results":
            arrays[name] = np.array(value)
    return arrays


def run(out: Path, jobs: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Exit codes by NAME.RANKS, of each rank."""
    waiting, running = [{"words": [], "limit_s": LIMIT_S, "busy": job["ranks"]} | job for job in jobs], []
    codes: dict[str, list[int]] = {}
    while waiting or running:
        while waiting and sum(job.busy for job in running) + waiting[0]["busy"] <= AT_ONCE:
            running.append(Job(out, **waiting.pop(0)))
        for job in [job for job in running if job.ended()]:
            running.remove(job)
            codes[f"{job.name}.{job.ranks}"] = [job.codes[rank] for rank in range(job.ranks)]
        time.sleep(0.02)
    return codes


def main() -> None:
    out = Path(sys.argv[1])
    ways = {"as_on_gpus": as_on_gpus.begin, "between_hosts": as_on_gpus.begin_between_hosts}
    for how in sys.argv[3:]:
        ways[how]()
    (out / "codes.json").write_text(json.dumps(run(out, json.loads(sys.argv[2]))))


if __name__ == "__main__":
    try:
        main()
    except Rank as rank:
        begin = rank.run
    else:
        sys.exit()
    begin()
