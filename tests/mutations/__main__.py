"""See tests/mutations."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from .table import ALL, Mutation
from .tree import Tree, misplaced

ROOT = Path(__file__).parents[2]
# Which tests each tier has (tests/tiers.py), as `pytest -m` takes it; of `ci` without its part of the exhaustive ones.
TIERS = {"test": "not ci and not exhaustive", "ci": "not exhaustive", "all": ""}
AT_LEAST = 54  # of the sixty
# A fault may have a program wait for ever: that is seen, too.
LIMIT_S = 1800
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?)(?:\[.*)?(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one. by: the test that sees it, "" where none does."""

    mutation: Mutation
    by: str
    tier: str
    seconds: float


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description="See tests/mutations/__init__.py.")
    parser.add_argument("--only", action="append", default=[], help="names or patterns such as 'gate-*'")
    parser.add_argument("--tier", choices=tuple(TIERS), default="test", help="up to this one (default: test)")
    parser.add_argument("--wider", action="store_true", help="all tests of the tiers where the nearest see nothing")
    parser.add_argument("--at-least", type=int, help=f"so many are to be seen (default: {AT_LEAST} of {len(ALL)})")
    asked = parser.parse_args(words)
    chosen = [one for one in ALL if not asked.only or any(fnmatch(one.name, each) for each in asked.only)]
    wrong = [why for one in chosen if (why := misplaced(one, ROOT))]
    if wrong or not chosen:
        print(*(wrong or [f"no mutation is named {' or '.join(asked.only)}"]), sep="\n", file=sys.stderr)
        return 2
    tiers = list(TIERS)[: list(TIERS).index(asked.tier) + 1]
    with tempfile.TemporaryDirectory(prefix="mutations-") as below:
        tree = Tree(ROOT, Path(below))
        outcomes = []
        for one in chosen:
            outcomes.append(_tried(tree, one, tiers, wider=asked.wider))
            print(_line(outcomes[-1]), flush=True)
        seen = [one for one in outcomes if one.by]
        broken = _failing(tree, sorted({one.by for one in seen if one.by.startswith("tests")}), TIERS[tiers[-1]])
    for test in broken:
        print(f"{test} fails without a mutation, too: what it sees does not count", file=sys.stderr)
    count = sum(one.by not in broken for one in seen)
    least = min(len(chosen), AT_LEAST if asked.at_least is None and not asked.only else asked.at_least or len(chosen))
    print(f"{count} of {len(chosen)} are seen by {asked.tier}; at least {least} are to be")
    return 0 if count >= least else 1


def _tried(tree: Tree, mutation: Mutation, tiers: Sequence[str], *, wider: bool) -> Outcome:
    """With the nearest tests first, tier by tier, then with all others."""
    began = time.monotonic()
    with tree.mutated(mutation):
        for tests in (mutation.tests, ()) if wider else (mutation.tests,):
            for tier in tiers:
                if by := _first_failing(tree, tests, TIERS[tier]):
                    return Outcome(mutation, by, tier, time.monotonic() - began)
    return Outcome(mutation, "", "", time.monotonic() - began)


def _first_failing(tree: Tree, tests: Sequence[str], marked: str) -> str:
    said = _pytest(tree, [*tests, "-x", "-m", marked])
    if said is None:
        return f"no end in {LIMIT_S} s"
    found = _FAILED.search(said)
    return found[1] if found else ""


def _failing(tree: Tree, tests: Sequence[str], marked: str) -> set[str]:
    said = _pytest(tree, [*tests, "-m", marked]) if tests else ""
    return set(tests) if said is None else set(_FAILED.findall(said))


def _pytest(tree: Tree, words: Sequence[str]) -> str | None:
    """What it prints; None where it has not ended in LIMIT_S. Raises RuntimeError where it ran no test."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rfE",
        "--tb=no",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.mutations.quick",
        *words,
    ]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(tree.root), os.environ.get("PYTHONPATH"))))}
    with subprocess.Popen(
        command,
        cwd=tree.root,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            said, _ = running.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            return None
    if running.returncode not in (0, 1, 2, 5):  # all passed, some failed, a file was not imported, none is of the tier
        raise RuntimeError(f"{' '.join(command)} ended with {running.returncode}:\n{said}")
    return said


def _line(one: Outcome) -> str:
    seen = f"{one.tier:5} {one.by}" if one.by else "-     nothing"
    return f"{one.seconds:5.0f} s  {one.mutation.name:48} {seen}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
