"""Rules of thumb, judged by measurements on this machine: does each advice hold here, and how much faster is training
with it?

A rule is an advice with two ways to train: against the advice and by it. Both ways run in one process, in many short
turns one after the other. Every pair of turns gives a ratio of samples per second; which way comes first alternates
from pair to pair, so that a drift of the machine affects both alike. The result is the median ratio over the pairs,
with an interval from order statistics (profiles.ground.stats).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from .ground.stats import Spread, spread
from .runs.rank_records import RankRecord

SCHEMA = "ringscope.rules/1"
WORTH = 0.03  # a gain or loss of less than this share is no reason to change anything
LEAST_PAIRS = 6  # number of pairs of turns that an interval of 95 % needs


@dataclass(frozen=True, slots=True)
class Rule:
    """An advice as people give it, and the two ways to train that are compared."""

    name: str
    advice: str
    against: str  # the way to train against the advice, in a few words; `advised`: the way by the advice
    advised: str
    needs_gpu: bool = False


RULES: Final = {
    one.name: one
    for one in (
        Rule("batch-multiple-of-8", "Make batches multiples of 8.", "one sample more", "a multiple of 8"),
        Rule(
            "features-multiple-of-8",
            "Make the widths of layers multiples of 8.",
            "dense layers of 1023",
            "of 1024",
        ),
        Rule("bfloat16", "Train in mixed_bfloat16.", "float32", "mixed_bfloat16"),
        Rule("float16", "Train in mixed_float16.", "float32", "mixed_float16"),
        Rule("tf32", "Leave TF32 on (tensor cores for float32).", "float32", "TF32", needs_gpu=True),
        Rule(
            "steps-per-execution",
            "Raise steps_per_execution where steps are short.",
            "steps_per_execution=1",
            "steps_per_execution=16",
        ),
        Rule("quiet", "Train with verbose=2 or 0, not with the bar of verbose=1.", "verbose=1", "verbose=2"),
        Rule(
            "resident-data",
            "Keep all samples on the GPU if they fit.",
            "batches of NumPy arrays by tf.data, prefetched",
            "all samples on the GPU, batches cut there",
        ),
        Rule("cache", "Keep decoded samples in memory: cache().", "decoded in each epoch", "cache()"),
        Rule(
            "prefetch", "End a data set with prefetch(AUTOTUNE).", "without prefetch at the end", "prefetch(AUTOTUNE)"
        ),
        Rule(
            "parallel-map",
            "Map with num_parallel_calls=AUTOTUNE.",
            "map in one thread",
            "map(num_parallel_calls=AUTOTUNE)",
        ),
        Rule(
            "batch-before-map",
            "Batch before a cheap map, so that it runs on whole batches.",
            "map, batch",
            "batch, map",
        ),
    )
}
# Words for each verdict on a rule. For `holds` and `costs` the interval must not contain 1.
VERDICTS: Final = {
    "holds": "supported: {factor} as fast with the advice",
    "no-difference": "not supported: the difference here is less than {worth}",
    "costs": "refuted: slower here, {factor} as fast with the advice",
    "undecided": "undecided: the interval is too wide; raise --pairs",
    "needs-gpu": "not measured: this rule is about GPUs, and there is no GPU here",
    "failed": "not measured: {reason}",
}


@dataclass(frozen=True, slots=True)
class Found:
    """The result for a rule. ratio: samples per second with the advice divided by samples per second against it; None
    without turns."""

    rule: Rule
    verdict: str  # a key of VERDICTS
    ratio: Spread | None = None
    against_per_s: float | None = None
    advised_per_s: float | None = None
    what: str = ""  # words for the model and batch that were trained
    reason: str = ""


def judge(rule: Rule, turns: Sequence[Mapping[str, Any]], what: str = "") -> Found:
    """Judge a rule by pairs of turns.

    turns: in the order of measurement, each {"advised": bool, "samples", "ns"}; turns 1 and 2 are a pair, then 3 and 4,
    and so on. Raises ValueError if both turns of a pair have the same `advised`.
    """
    pairs = []
    for one, other in zip(turns[::2], turns[1::2], strict=True):
        if one["advised"] == other["advised"]:
            raise ValueError("both trainings of a pair follow the advice, or neither does")
        pairs.append((other, one) if one["advised"] else (one, other))
    against = [turn["samples"] * 1e9 / turn["ns"] for turn, _ in pairs]
    advised = [turn["samples"] * 1e9 / turn["ns"] for _, turn in pairs]
    ratio = spread([new / old for old, new in zip(against, advised, strict=True)])
    return Found(rule, verdict(ratio), ratio, spread(against).median, spread(advised).median, what)


def verdict(ratio: Spread) -> str:
    """The verdict, a key of VERDICTS, that follows from a ratio and its interval."""
    if ratio.low > 1 and ratio.median >= 1 + WORTH:
        return "holds"
    if ratio.high < 1 and ratio.median <= 1 - WORTH:
        return "costs"
    if ratio.low > 1 - WORTH and ratio.high < 1 + WORTH:
        return "no-difference"
    return "undecided"


def of_record(rule: Rule, record: RankRecord) -> Found:
    """Judge a rule by the record that its process wrote."""
    return judge(rule, record.extra["turns"], record.extra["what"])


def words(found: Found) -> str:
    """The verdict in words."""
    factor = "" if found.ratio is None else f"{found.ratio.median:.2f} x"
    return VERDICTS[found.verdict].format(factor=factor, worth=f"{100 * WORTH:.0f} %", reason=found.reason)


def to_json(found: Sequence[Found], machine: Mapping[str, Any]) -> dict[str, Any]:
    """The content of rules.json."""
    return {
        "schema": SCHEMA,
        "machine": dict(machine),
        "rules": [
            {
                "rule": one.rule.name,
                "advice": one.rule.advice,
                "against": one.rule.against,
                "advised": one.rule.advised,
                "verdict": one.verdict,
                "text": words(one),
                "what": one.what,
                "ratio": None if one.ratio is None else asdict(one.ratio),
                "against_samples_per_s": one.against_per_s,
                "advised_samples_per_s": one.advised_per_s,
                "reason": one.reason or None,
            }
            for one in found
        ],
    }
