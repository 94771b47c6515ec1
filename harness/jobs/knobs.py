"""Settings (knobs) around a training that may be changed without changing its result, and the verdicts on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from profiles.ground.numbers import counted
from profiles.ground.stats import Ratio, ratio, spread

# The largest difference between the losses of two turns of one training, relative to the loss or to 1, whichever is
# larger. Sums in another order differ by 1e-7 a step in float32 and by 4e-3 in bfloat16, and a loss is the mean of
# many; a changed training soon differs by more.
TOLERANCE = 1e-3
LEAST_GAIN = 0.01  # 1 %: a smaller gain is not worth a line in a script


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting to try: environment variables, or an argument of `fit` with its number (timed_script.py)."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    change: tuple[str, int] | None = None
    code: str = ""  # the line to paste into the script

    @property
    def lines(self) -> list[str]:
        """The lines to paste into the script or the shell."""
        if self.change:
            return [self.code]
        return [
            f"export {name}={value!r}" if " " in value else f"export {name}={value}"
            for name, value in self.environment.items()
        ]


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of one turn. step_ns: time per step of the slowest rank; None if the turn failed, for the reason
    `why`. losses: "rank:epoch:steps" -> loss. refused: change of `fit` -> why it cannot be made."""

    step_ns: int | None
    losses: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision to keep a knob or not, and why. gain: speed with the knob over speed without it."""

    kept: bool
    why: str
    gain: Ratio | None = None


def of_environment(*, gpus: int, ranks: int, cores: int, environ: Mapping[str, str]) -> list[Knob]:
    """Knobs that set environment variables and fit the machine and the number of ranks. Variables that are set already
    are left alone."""
    each = max(1, cores // ranks)
    found = [_threads(number) for number in dict.fromkeys((each, 1)) if number < cores]
    if gpus:
        found += [
            Knob(
                "separate threads that launch work on the GPU",
                {"TF_GPU_THREAD_MODE": "gpu_private", "TF_GPU_THREAD_COUNT": "2"},
            ),
            Knob("XLA hides latencies", {"XLA_FLAGS": "--xla_gpu_enable_latency_hiding_scheduler=true"}),
        ]
    if ranks > 1:
        found += [Knob(f"a Horovod cycle of {ms} ms", {"HOROVOD_CYCLE_TIME": ms}) for ms in ("0.1", "5")]
        if gpus:
            found.append(Knob("32 NCCL channels", {"NCCL_MIN_NCHANNELS": "32"}))
    kept = []
    for knob in found:
        names = {name for name in knob.environment if name != "XLA_FLAGS"}
        flags = environ.get("XLA_FLAGS", "")
        option = knob.environment.get("XLA_FLAGS", "")
        if names & environ.keys() or (option and option.partition("=")[0] in flags):
            continue
        kept.append(Knob(knob.name, {"XLA_FLAGS": f"{flags} {option}".strip()}) if option and flags else knob)
    return kept


def _threads(number: int) -> Knob:
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
    return Knob(f"{counted(number, 'thread')} each", dict.fromkeys(names, str(number)))


def of_code(refused: Mapping[str, str], *, ranks: int, cores: int) -> list[Knob]:
    """Knobs that change arguments of `fit`, if the script's call allows it."""
    workers = max(2, min(8, cores // ranks))
    every = (
        Knob(
            "steps_per_execution", change=("steps_per_execution", 8), code="model.compile(..., steps_per_execution=8)"
        ),
        Knob("prefetch", change=("prefetch", -1), code="dataset = dataset.prefetch(tf.data.AUTOTUNE)"),
        Knob("workers", change=("workers", workers), code=f"super().__init__(workers={workers})  # of the PyDataset"),
    )
    return [knob for knob in every if refused.get(knob.name, "no call of model.fit was seen") == ""]


def apart(one: Mapping[str, float], other: Mapping[str, float]) -> str:
    """The reason to believe that two turns trained differently; "" if their losses agree within TOLERANCE."""
    common = [place for place in one if place in other]
    if not common:
        return "the two runs share no step whose loss is known"
    worst = max(common, key=lambda place: _difference(one[place], other[place]))
    if _difference(one[worst], other[worst]) <= TOLERANCE:
        return ""
    rank, epoch, steps = worst.split(":")
    where = (
        f"after {steps} steps"
        + (f" of epoch {epoch}" if epoch != "1" else "")
        + (f" on rank {rank}" if rank != "0" else "")
    )
    return f"the loss {where} is {other[worst]:.6g}, without the setting {one[worst]:.6g}"


def _difference(one: float, other: float) -> float:
    """The difference of two losses, relative to the larger one or 1; infinite if only one of them is NaN, 0 if both
    are."""
    if one != one or other != other:
        return 0.0 if one != one and other != other else float("inf")
    return abs(one - other) / max(1.0, abs(one), abs(other))


def judge(without: Sequence[Taken], having: Sequence[Taken]) -> Verdict:
    """Compare turns with a knob to turns without it. The turns without it have all succeeded."""
    if failed := next((turn for turn in having if turn.step_ns is None), None):
        return Verdict(False, failed.why)
    if told := next(filter(None, (apart(without[0].losses, turn.losses) for turn in having)), ""):
        return Verdict(False, told)
    gain = ratio(*(spread([turn.step_ns or 0 for turn in turns]) for turns in (without, having)))
    if gain.low <= 1:
        return Verdict(False, "the gain is within the difference between turns" if gain.high >= 1 else "slower", gain)
    if gain.value < 1 + LEAST_GAIN:
        return Verdict(False, f"less than {LEAST_GAIN:.0%}", gain)
    return Verdict(True, "", gain)
