"""A judgement of `ringscope gate` as text, as Markdown for a pull request, and as JUnit XML for CI."""

from __future__ import annotations

from xml.etree import ElementTree

from ...gate.checks import BROKEN, HOLDS, Check
from ...gate.judgement import Judgement
from ...ground.terminals import plain
from ..tables import report
from ..tables.markdown import in_text

_MARKS = {HOLDS: "✓", BROKEN: "✗"}


def text(judgement: Judgement) -> str:
    """The text with a line per check, broken checks first, then the overall status."""
    lines = [f"{_MARKS.get(check.status, '?')} {check.status}: {check.message}" for check in _in_order(judgement)]
    return "\n".join([*lines, f"{judgement.subject}: {judgement.status}", *_trusted(judgement)])


def markdown(judgement: Judgement) -> str:
    """A Markdown table for a pull request's comment or a CI job's summary."""
    rows = [
        f"| {_MARKS.get(c.status, '?')} | {in_text(f'`{c.metric}`')} | {_number(c.value)} | {_budget(c)} | "
        f"{in_text(_looks(c))} |"
        for c in _in_order(judgement)
    ]
    head = ["| | metric | value | budget | where to look |", "|---|---|---|---|---|"]
    told = [f"**ringscope gate: {judgement.status}** ({in_text(judgement.subject)})", *_trusted(judgement)]
    return "\n\n".join([*told, "\n".join([*head, *rows])]) + "\n"


def junit(judgement: Judgement) -> str:
    """JUnit XML: a test case per check; a broken check is a failure, a check that cannot be judged an error."""
    broken = sum(c.status == BROKEN for c in judgement.checks)
    unjudged = sum(c.status not in (BROKEN, HOLDS) for c in judgement.checks)
    suite = ElementTree.Element(
        "testsuite",
        name="ringscope gate",
        tests=str(len(judgement.checks)),
        failures=str(broken),
        errors=str(unjudged),
    )
    for check in judgement.checks:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=_legal(judgement.subject),
            name=_legal(f"{check.metric} {check.bound} {check.limit:.6g}"),
        )
        if check.status != HOLDS:
            kind = "failure" if check.status == BROKEN else "error"
            ElementTree.SubElement(case, kind, message=_legal(check.message))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _legal(text: str) -> str:
    """Text without the characters that XML forbids (https://www.w3.org/TR/xml/#charsets). Names of GPUs and cells may
    hold such characters, as they come from files."""
    return plain(text).translate({0xFFFE: None, 0xFFFF: None})


def _trusted(judgement: Judgement) -> list[str]:
    return [report.trusted(judgement.trust)] if judgement.trust else []


def _in_order(judgement: Judgement) -> list[Check]:
    """The checks in order: broken, cannot be judged, holds."""
    return sorted(judgement.checks, key=lambda check: (check.status == HOLDS, check.status != BROKEN))


def _budget(check: Check) -> str:
    """The check's limit, such as `at most 0.02`; "" for the check that says that the baseline does not fit the run."""
    relation = "at most" if check.bound == "max" else "at least"
    return "" if check.metric == "baseline" else f"{relation} {check.limit:.6g}"


def _looks(check: Check) -> str:
    return check.where if check.status in (HOLDS, BROKEN) else check.message


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.6g}"
