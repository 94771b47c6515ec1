"""Prove a finding: train its cell once more, and the same cell with the advised change."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from profiles.ground import numbers
from profiles.ground.errors import RingscopeError
from profiles.ground.files import in_order, write_whole
from profiles.ground.stats import Ratio, ratio
from profiles.measuring.subject import Subject, load
from profiles.model.findings import Finding
from profiles.runs.records import Cell, RunRecord, beside
from profiles.scaling.measure import Scaling
from profiles.verdicts.feed import HOST_FED

RECORDINGS = (".sqlite", ".nvvp", ".xplane.pb")
LARGER = 2  # multiplies the batch, or the local steps between two all-reduces

# (cell, GPUs of the host) -> the changed cell; an equal cell if it has the change already
Change = Callable[[Cell, int], Cell]


def _compiled(cell: Cell, gpus: int) -> Cell:
    return replace(cell, step="compiled") if "compiled" in cell.spread.steps else cell


def _cudnn_cell(cell: Cell, gpus: int) -> Cell:
    plain = cell.model.removesuffix("_generic")
    return cell if plain == cell.model else replace(cell, model=plain, step="fit")


def _larger_batch(cell: Cell, gpus: int) -> Cell:
    whole = None if cell.global_batch is None else LARGER * cell.global_batch
    return replace(cell, per_rank_batch=LARGER * cell.per_rank_batch, global_batch=whole)


def _even_batch(cell: Cell, gpus: int) -> Cell:
    return replace(cell, per_rank_batch=-(-cell.per_rank_batch // 8) * 8)


def _ahead(cell: Cell, gpus: int) -> Cell:
    if gpus:
        feeds = ("pinned", "device", cell.feed)  # the first of these that the strategy has
        return replace(cell, feed=next(feed for feed in feeds if feed in cell.spread.feeds))
    return replace(cell, feed="prefetch") if cell.feed in HOST_FED else cell


def _fewer_bytes(cell: Cell, gpus: int) -> Cell:
    return replace(cell, input_dtype="uint8")


def _compressed(cell: Cell, gpus: int) -> Cell:
    return replace(cell, compression="fp16") if cell.sends_float32 and "compression" in cell.spread.heeds else cell


def _less_often(cell: Cell, gpus: int) -> Cell:
    return replace(cell, aggregate=LARGER * cell.aggregate) if "aggregate" in cell.spread.heeds else cell


# A finding's code -> changes to try; the first one that alters the cell is taken.
CHANGES: dict[str, tuple[Change, ...]] = {
    "not-compiled": (_compiled, _larger_batch),
    "unfused-batch-norm": (_compiled,),
    "launch-bound": (_compiled, _larger_batch),
    "short-kernels": (_compiled, _larger_batch),
    "python-in-the-loop": (_compiled, _larger_batch),
    "generic-rnn-cell": (_cudnn_cell,),
    "tiny-batch": (_larger_batch,),
    "off-tensor-cores": (_even_batch,),
    "no-prefetch": (_ahead,),
    "prefetch-on-host-only": (_ahead,),
    "copies-pageable": (_ahead,),
    "copies-synchronous": (_ahead,),
    "copies-exposed": (_ahead, _fewer_bytes),
    "copies-exposed-although-prefetched": (_ahead, _fewer_bytes),
    "input-pipeline-slow": (_fewer_bytes,),
    "float32-input": (_fewer_bytes,),
    "all-reduce-exposed": (_compressed, _less_often),
    "gradients-not-compressed": (_compressed,),
    "model-too-small": (_less_often,),
}
OF_THE_MACHINE = "the cause is the machine, not a setting of bench"
# A finding's code -> why no setting of a cell can make its change.
BY_HAND = {
    "loss-fetched-every-step": "bench's training fetches nothing in a step",
    "host-synchronises": "in bench's training only the feed waits for the GPU",
    "launched-work-waits": "the cause is that CUDA streams wait for each other",
    "loss-not-judged": "no setting adds what the recording lacks",
    "copies-to-host-exposed": "bench's training copies nothing back in a step",
    "offloaded-to-host": "bench's training keeps all of its state on the GPU",
    "copies-on-gpu-exposed": "these copies are part of the model's step",
    "small-copy-before-step": "bench's models take int64 labels: if the recording is older, record again",
    "collectives-not-fused": "bench already exchanges gradients in as few messages as --step allows",
    "cores-shared": OF_THE_MACHINE,
    "threads-oversubscribed": "bench already divides the host's cores among the ranks",
    "straggler": OF_THE_MACHINE,
    "ranks-wait-by-turns": "bench's ranks already exchange once in a step, in as few messages as --step allows",
    "gradients-wait-for-ranks": "the cause is on the ranks that are late: apply the findings of these ranks",
    "slow-gpu": OF_THE_MACHINE,
    "gpu-slows-down": OF_THE_MACHINE,
    "slow-link": OF_THE_MACHINE,
    "slow-host": OF_THE_MACHINE,
    "cpu-may-be-faster": "the finding asks for another machine, which bench cannot try here",
    "collectives-exposed": "bench's ranks exchange only gradients",
    "graphs-updated-every-step": "no setting keeps the buffers at the same addresses in each step",
    "pipeline-bubble": "the strategy, not a setting, decides how a model is cut into stages",
    "copies-between-gpus": "these copies belong to the strategy: compare with --strategy horovod",
    "memory-allocated-in-the-loop": "bench's training takes its memory from TensorFlow's own pool already",
    "managed-memory-moves": "none of bench's models uses managed memory",
    "training-paused": "bench's ranks neither join nor leave while they train",
}


@dataclass(frozen=True, slots=True)
class Trial:
    """A finding, the cell in which it was found, and the cell with the change. finding: None if the launch has no
    measures."""

    code: str
    finding: Finding | None
    before: Cell
    after: Cell
    recorded_on: frozenset[str]  # the names of the GPUs that the launch was recorded on

    @property
    def prediction(self) -> str:
        most = self.finding.at_most_gain if self.finding else None
        return "without a price" if most is None else f"predicted at most {numbers.gain(most)}"

    def words(self) -> str:
        """For example `copies-pageable: feed device -> pinned, predicted at most +12.3 %`."""
        one, other = asdict(self.before), asdict(self.after)
        changed = [f"{name} {value} -> {other[name]}" for name, value in one.items() if value != other[name]]
        return f"{self.code}: {', '.join(changed)}, {self.prediction}"


def trial(code: str, path: Path, *, gpus: int, steps: int | None = None, warmup: int | None = None) -> Trial:
    """The trial of one finding of a recorded launch, on a host with `gpus` GPUs.

    A launch without measures (a training on the CPU) has no findings: any change may be tried there, with no
    prediction. Raises RingscopeError if the change cannot be tried.
    """
    subject, record = _launch(path)
    finding = _found(code, subject, path)
    before = record.cell
    before = replace(before, steps=steps or before.steps, warmup=warmup or before.warmup)
    by_hand = f"; by hand: {finding.change}" if finding else ""
    if code in BY_HAND:
        raise RingscopeError(f"bench cannot make the change of {code}: {BY_HAND[code]}{by_hand}")
    if code not in CHANGES:
        raise RingscopeError(f"there is no finding {code!r}; there are {', '.join([*CHANGES, *BY_HAND])}")
    for change in CHANGES[code]:
        after = change(before, gpus)
        if after != before:
            return Trial(code, finding, before, after, frozenset(gpu["name"] for gpu in record.machine.get("gpus", ())))
    raise RingscopeError(f"the cell of {path} already has the setting that {code} asks for{by_hand}")


def _launch(path: Path) -> tuple[Subject | None, RunRecord]:
    """A launch's measures (None if nothing was measured) and its record. path: the launch, one of its files, or a run
    directory, of which the last measured launch is taken, else the last."""
    folder = path.parent if path.is_file() else path
    if not (folder / "record.json").is_file():
        launches = sorted(
            folder.glob("*/*/record.json"), key=lambda one: (one.with_name("measures.json").exists(), one)
        )
        folder = launches[-1].parent if launches else folder
    record = beside(folder / "record.json")
    if record is None:
        raise RingscopeError(
            f"{path}: not written by ringscope record --model, which leaves a record.json; name such a directory. If "
            "you recorded your own command, make the change by hand, record again, and compare the two by ringscope "
            "compare"
        )
    if not (folder / "measures.json").is_file():
        return None, record
    # Measure the recordings again, because this version of ringscope may find more than the one that wrote
    # measures.json.
    recordings = (in_order(folder.glob(f"rank*{suffix}")) for suffix in RECORDINGS)
    return load(next(filter(None, recordings), [folder])), record


def _found(code: str, subject: Subject | None, path: Path) -> Finding | None:
    if subject is None or subject.measures is None:
        return None
    found: dict[str, Finding] = {}
    for finding in subject.measures.findings:
        # findings are sorted by gain: of the same finding on several GPUs the first is kept
        found.setdefault(finding.code, finding)
    if code not in found:
        raise RingscopeError(f"{path}: no finding {code!r} there; its findings are {', '.join(found) or 'none'}")
    return found[code]


def outcome(tried: Trial, scaling: Scaling) -> Ratio | None:
    """Samples/s with the change divided by samples/s without it; None if a launch of either cell failed."""
    one, other = (scaling.spreads.get(cell.id) for cell in (tried.before, tried.after))
    return ratio(other, one) if one is not None and other is not None else None


def report(tried: Trial, scaling: Scaling, directory: Path) -> str:
    """A sentence that compares prediction and measurement. Both are also written into `applied.json`."""
    measured = outcome(tried, scaling)
    most = tried.finding.at_most_gain if tried.finding else None
    written = {
        "schema": "ringscope.applied/1",
        "code": tried.code,
        "finding": asdict(tried.finding) if tried.finding else None,
        "before": tried.before.id,
        "after": tried.after.id,
        "predicted_at_most_gain": most,
        "measured": None if measured is None else asdict(measured),
    }
    write_whole(directory / "applied.json", json.dumps(written, indent=1) + "\n")
    if measured is None:
        return f"{tried.words()}; not measured, because a launch failed"
    gain = f"{numbers.gain(measured.value - 1)} ({numbers.gain(measured.low - 1)} to {numbers.gain(measured.high - 1)})"
    if most is not None and measured.low - 1 > most:
        meaning = ": more than the finding promised at most, so the change made something else faster, too"
    elif measured.low <= 1 <= measured.high:
        meaning = ": within the difference between launches"
    else:
        meaning = ""
    return f"{tried.words()}, measured {gain} throughput{meaning}"
