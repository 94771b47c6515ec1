"""Findings: changes to a program, ranked by the throughput that each may give back (docs/reference/findings.md)."""

from .case import Context
from .findings import find, judge

__all__ = ["Context", "find", "judge"]
