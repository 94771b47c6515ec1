"""A check that N ranks train to the same weights as one rank on their joined batches.

`check` launches both and compares. Each rank executes

    python -m harness.doctor.equality CELLS.json DIR SECONDS

which trains every cell of the list for its steps and keeps the weights in `DIR/<cell id>/rank<k>.npz`. A rank that has
not ended after SECONDS writes the stack of each of its threads to `DIR/stack-<ranks>.<k>.txt`.
"""

from __future__ import annotations

import faulthandler
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from profiles.ground.errors import RingscopeError
from profiles.runs.cell import setting
from profiles.runs.records import Cell

TOLERANCE = 1e-5  # relative; float32 sums in another order differ by 1e-7 a step, and a check takes some tens of steps
LAST_LINES = 30  # the number of last lines of a log that an error quotes


@dataclass(frozen=True, slots=True)
class Equality:
    """The result of one cell. max_difference: the largest |w of N ranks - w of one rank| over all trainable weights."""

    cell: Cell
    max_difference: float
    trainable_bit_equal: bool  # trainable weights are equal to the bit on all N ranks
    statistics_bit_equal: bool  # so are moving statistics and other untrained weights

    @property
    def holds(self) -> bool:
        return self.trainable_bit_equal and self.statistics_bit_equal and self.max_difference <= TOLERANCE


def check(
    cells: Sequence[Cell],
    launch: Callable[[int], list[str]],
    directory: Path,
    *,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 600,
) -> list[Equality]:
    """Train `cells` on their ranks, and on one rank with the joined batch, and compare the weights.

    cells: all with the same number of processes. launch: number of processes -> the launcher's words before `python`,
    such as ["horovodrun", "-np", "2"]. directory: a folder for the weights and the logs. Raises RingscopeError if a
    launch fails.
    """
    joined = [on_one_device(cell) for cell in cells]
    run(cells, launch(cells[0].processes), directory, env=env, timeout_s=timeout_s)
    run(joined, [], directory, env=env, timeout_s=timeout_s)
    return [compare(cell, directory / cell.id, directory / one.id) for cell, one in zip(cells, joined, strict=True)]


def on_one_device(cell: Cell) -> Cell:
    """The cell's joined batch on one device, without a strategy."""
    plain = {name: setting(name).default for name in ("strategy", "micro_batches", "stages", "compression")}
    return replace(cell, **plain, ranks=1, per_rank_batch=cell.per_rank_batch * cell.ranks)


def run(
    cells: Sequence[Cell],
    prefix: Sequence[str],
    directory: Path,
    *,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 600,
) -> None:
    """Train cells under a launcher; each rank writes its weights to `directory/<cell id>/rank<k>.npz`. Raises
    RingscopeError with the end of the log and, after `timeout_s`, the ends of the ranks' stacks."""
    directory.mkdir(parents=True, exist_ok=True)
    ranks = cells[0].ranks
    listed, log = directory / f"cells-{ranks}.json", directory / f"log-{ranks}.txt"
    listed.write_text(json.dumps([cell.to_json() for cell in cells]))
    command = [*prefix, sys.executable, "-m", "harness.doctor.equality", str(listed), str(directory)]
    command += [str(0.7 * timeout_s)]
    with log.open("w") as output:
        try:
            code = subprocess.run(command, env=env, stdout=output, stderr=output, timeout=timeout_s).returncode
            what = f"a rank ended with code {code}" if code else ""
        except subprocess.TimeoutExpired:
            what = f"not done after {timeout_s:.0f} s"
        except OSError as error:
            what = str(error)
    if what:
        said = [f"training with {ranks} ranks failed: {what}; its output is in {log}"]
        for path in (log, *sorted(directory.glob(f"stack-{ranks}.*.txt"))):
            said += path.read_text(errors="replace").splitlines()[-LAST_LINES:]
        raise RingscopeError("\n".join(said))


def compare(cell: Cell, together: Path, alone: Path) -> Equality:
    """Compare the weights in `together/rank<k>.npz`, k below cell.processes, with `alone/rank0.npz`."""
    ranks = [_weights(together / f"rank{k}.npz") for k in range(cell.processes)]
    one = _weights(alone / "rank0.npz")
    trainable = [name for name in one if name.startswith("trainable")]
    differences = [float(np.max(np.abs(ranks[0][name] - one[name]))) for name in trainable]

    def bit_equal(names: list[str]) -> bool:
        return all(np.array_equal(ranks[0][name], other[name]) for other in ranks[1:] for name in names)

    return Equality(
        cell,
        # A difference of NaN must not count as small.
        max_difference=max(differences) if np.all(np.isfinite(differences)) else float("inf"),
        trainable_bit_equal=bit_equal(trainable),
        statistics_bit_equal=bit_equal([name for name in one if name not in trainable]),
    )


def _weights(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise RingscopeError(f"{path}: this rank left no weights; see the logs beside it")
    with np.load(path) as arrays:
        return dict(arrays)


def save_weights(model: Any, path: Path) -> None:
    """Write a model's weights into a file that `compare` reads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {f"trainable{i}": w.numpy() for i, w in enumerate(model.trainable_weights)}
    arrays |= {f"other{i}": w.numpy() for i, w in enumerate(model.non_trainable_weights)}
    np.savez(path, **arrays)


def main(listed: str, out: str, stacks_after: str) -> None:
    import tensorflow as tf

    from ringscope import ring

    from ..machine import ranks
    from ..training.strategies import devices
    from ..training.strategies import trainer as trainer_of

    cells = [Cell.from_json(one) for one in json.loads(Path(listed).read_text())]
    stacks = Path(out, f"stack-{cells[0].ranks}.{ranks.rank()}.txt")
    faulthandler.dump_traceback_later(float(stacks_after), file=stacks.open("w"))
    ring.init(pin=not any(cell.spread.one_process or cell.spread.splits for cell in cells))
    device = "/GPU:0" if tf.config.list_physical_devices("GPU") else "/CPU:0"
    # Without this a GPU rounds float32 factors to 10 bits of mantissa (TF32), and results depend on the order of sums.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    if (most := max(cell.gpus_per_process for cell in cells)) > 1:
        # devices must be chosen before a cell uses one
        devices.take(device, most, local_rank=ring.local_rank())
    for cell in cells:
        trainer = trainer_of(cell, device)
        for _ in range(cell.steps):
            trainer.turn()
        trainer.settle()
        if cell.strategy == "horovod":
            ring.average_statistics(trainer.model)
        save_weights(trainer.model, Path(out, cell.id) / f"rank{ring.rank()}.npz")


if __name__ == "__main__":
    main(*sys.argv[1:])
