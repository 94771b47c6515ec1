"""Judge by a recording's doubts whether its numbers can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ..model.measures import GpuMeasures, Measures, Trust
from ..model.timeline import Doubt
from . import weights
from .weights import CARE, LITTLE, NOTE, REFUSE, WEIGHTS

SCHEMA: Final = "ringscope.check/1"
VERDICTS: Final = {NOTE: "yes", CARE: "with care", REFUSE: "no"}
EXIT_CODES: Final = {"yes": 0, "with care": 1, "no": 2}


@dataclass(frozen=True, slots=True)
class Reason:
    """A doubt, its weight for this recording, and words for the numbers that it affects."""

    code: str
    weight: str  # note, care, refuse
    text: str
    numbers: str
    next: str
    where: tuple[str, ...]


def reasons(measures: Measures) -> list[Reason]:
    """Every doubt with its weight, the most serious first."""
    found = [
        Reason(one.code, _weight(one, measures), one.text, _of(one).numbers, one.next, one.where)
        for one in measures.doubts
    ]
    return sorted(found, key=lambda one: -WEIGHTS.index(one.weight))


def judged(measures: Measures) -> Trust:
    """The verdict, and the codes of the doubts behind it; no codes if it is "yes"."""
    return _verdict(reasons(measures))


def _verdict(found: Sequence[Reason]) -> Trust:
    heaviest = found[0].weight if found else NOTE
    because = [one.code for one in found if one.weight == heaviest and heaviest != NOTE]
    return Trust(VERDICTS[heaviest], list(dict.fromkeys(because)))


def to_json(measures: Measures) -> dict[str, Any]:
    """The object of `ringscope check --json` (docs/reference/doubts.md)."""
    found = reasons(measures)
    trust = _verdict(found)
    return {
        "schema": SCHEMA,
        "recordings": [one.path for one in measures.recordings],
        "verdict": trust.verdict,
        "exit_code": EXIT_CODES[trust.verdict],
        "because": trust.because,
        "reasons": [asdict(one) for one in found],
    }


def _of(doubt: Doubt) -> weights.Weight:
    return weights.OF.get(doubt.code, weights.UNKNOWN)


def _weight(doubt: Doubt, measures: Measures) -> str:
    of = _of(doubt)
    if of.share is None:
        return of.least
    share = max((of.share(measures, gpu) for gpu in _touched(doubt, measures)), default=LITTLE)
    if share >= of.refuse_from:
        return REFUSE
    return of.least if share >= LITTLE else NOTE


def _touched(doubt: Doubt, measures: Measures) -> list[GpuMeasures]:
    named = {one.split("/")[2] for one in doubt.where if one.startswith("/gpus/")}
    return [gpu for place, gpu in enumerate(measures.gpus) if not named or str(place) in named]
