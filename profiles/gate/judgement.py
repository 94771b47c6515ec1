"""Judge a run by budgets and a baseline (docs/guides/ci.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..doubts import trust
from ..ground.errors import RingscopeError
from ..measuring.subject import Subject
from ..model.measures import Trust
from . import of_logs
from .baseline import against
from .baseline_file import Baseline
from .checks import BROKEN, HOLDS, UNJUDGED, Check, checked
from .metrics import RECORDED, SWEPT, metrics
from .of_logs import LOGGED

EXIT_CODES = {HOLDS: 0, BROKEN: 1, UNJUDGED: 2}


@dataclass(slots=True)
class Judgement:
    """All checks of a run. The status is the worst of the checks': broken, then cannot be judged, then holds."""

    subject: str
    checks: list[Check] = field(default_factory=list)
    trust: Trust | None = None  # whether the recordings can be trusted

    @property
    def status(self) -> str:
        found = {check.status for check in self.checks}
        return next((status for status in (BROKEN, UNJUDGED) if status in found), HOLDS if found else UNJUDGED)

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.status]


def judge(
    subject: Subject,
    *,
    at_most: Mapping[str, float],
    at_least: Mapping[str, float],
    baseline: Baseline | None = None,
) -> Judgement:
    """Check a run against budgets (`at_most` and `at_least`, by metric) and against a baseline. Raises RingscopeError
    for unknown metrics and impossible budgets."""
    known = metrics(subject)
    _refuse_what_says_nothing(at_most, at_least)
    for name in (*at_most, *at_least):
        if name not in known:
            names = ", ".join((*RECORDED, *SWEPT, *LOGGED))
            raise RingscopeError(f"unknown metric {name!r}; use one of {names}, also with [<cell id>] or [AllReduce]")
    judgement = Judgement(subject.label, trust=trust.judged(subject.measures) if subject.measures else None)
    judgement.checks += [checked(known[name], "max", limit, "budget") for name, limit in at_most.items()]
    judgement.checks += [checked(known[name], "min", limit, "budget") for name, limit in at_least.items()]
    if baseline is not None:
        judgement.checks += against(subject, known, baseline)
    return judgement


def _refuse_what_says_nothing(at_most: Mapping[str, float], at_least: Mapping[str, float]) -> None:
    """Raises RingscopeError for budgets that every run meets (2 instead of 2 %), or that no run can meet."""
    for option, budgets in (("--max", at_most), ("--min", at_least)):
        for name, limit in budgets.items():
            if name in (*RECORDED, of_logs.WAITING) and not 0 <= limit <= 1:
                meant = f"; write {limit:g} % as {limit / 100:g}" if 1 < limit <= 100 else "; write 5 % as 0.05"
                raise RingscopeError(f"{option} {name}={limit:g}: a share lies between 0 and 1{meant}")
    for name in at_most:
        if at_least.get(name, at_most[name]) > at_most[name]:
            raise RingscopeError(f"--min {name} is above its --max: no run can satisfy both; leave one of them out")
