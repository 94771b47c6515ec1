"""Which tests run when.

`make test` runs what has no tier's mark, `.ci/run` also what is marked `ci` in files whose turn it is, and one of
SHARDS parts of what is marked `exhaustive`: the commit says which. `make test-all` runs everything, or the part that
SHARD=K/N names.

Parts are balanced by tests/seconds.csv: CPU seconds of exhaustive tests by tests/cpu.py (round numbers are
estimates), by file: its tests share what is costly. Of some files the tests stand there one by one. What does not stand
there goes where its name's checksum says, so that no new test moves another one. tests/shards.csv keeps at which commit
each part was last green.
"""

from __future__ import annotations

import csv
import datetime
import subprocess
import zlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

SHARDS = 24
TURNS = 2  # all that is marked `ci` took half of .ci/run's time; `make test` has a smaller test beside each
STALE_COMMITS = 20
HERE = Path(__file__).parent
SECONDS, GREEN = HERE / "seconds.csv", HERE / "shards.csv"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shard", metavar="K/N", type=part, help="the K-th of N parts of what is selected")
    parser.addoption("--rotate", action="store_true", help=f"of exhaustive tests one part of {SHARDS}, by the commit")


def part(text: str) -> tuple[int, int]:
    """Of "3/8": 3, 8."""
    which, _, count = text.partition("/")
    if not (which.isdecimal() and count.isdecimal() and 1 <= int(which) <= int(count)):
        raise ValueError(text)
    return int(which), int(count)


def wanted(config: pytest.Config) -> tuple[int, int] | None:
    """The part K of N that runs of exhaustive tests; None: all."""
    return rotating(commit()) if config.getoption("rotate") else config.getoption("shard")


def rotating(commit: str) -> tuple[int, int]:
    return int(commit[:8] or "0", 16) % SHARDS + 1, SHARDS


def commit() -> str:
    """The checkout's; empty where it has none."""
    return git("rev-parse", "HEAD") or ""


def git(*words: str) -> str | None:
    """What it says; None where it cannot. A checkout may be another user's."""
    try:
        done = subprocess.run(["git", "-c", "safe.directory=*", *words], cwd=HERE, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def few(cases: Iterable[Any], every: int = 3) -> list[Any]:
    """Many cases of one thing, for parametrize: each so manieth runs in `make test`, the others where exhaustive tests
    do."""
    listed = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*case, marks=[pytest.mark.exhaustive] * bool(i % every)) for i, case in enumerate(listed)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    shard = wanted(config)
    if shard is None:
        return
    left = [item for item in items if not _runs(item, shard, config.getoption("rotate"))]
    config.hook.pytest_deselected(items=left)
    out = set(left)
    items[:] = [item for item in items if item not in out]


def _runs(item: pytest.Item, shard: tuple[int, int], rotate: bool) -> bool:
    exhaustive, ci = (item.get_closest_marker(name) is not None for name in ("exhaustive", "ci"))
    file, (which, count) = item.nodeid.partition("::")[0], shard
    if rotate and not exhaustive:
        return not ci or turn(file) == which % TURNS + 1
    return which == (place(item.nodeid, count) if exhaustive else _by_name(file, count))


def turn(file: str) -> int:
    """The one of TURNS, from 1, in which `.ci/run` runs a file's tests that are marked `ci`."""
    return _by_name(file, TURNS)


def place(nodeid: str, count: int) -> int:
    """The part, of so many from 1, in which an exhaustive test runs."""
    places, alone = _places(count)
    file = nodeid.partition("::")[0]
    unit = nodeid if file in alone else file
    return places.get(unit) or _by_name(unit, count)


@cache
def _places(count: int) -> tuple[dict[str, int], frozenset[str]]:
    """Parts of what stands in tests/seconds.csv, and the files whose tests stand there one by one."""
    found = seconds()
    return balanced(found, count), frozenset(unit.partition("::")[0] for unit in found if "::" in unit)


def seconds() -> dict[str, float]:
    with SECONDS.open(newline="") as file:
        return {row["tests"]: float(row["seconds"]) for row in csv.DictReader(file)}


def balanced(taken: dict[str, float], count: int) -> dict[str, int]:
    """What takes longest first, each to the part that has least."""
    loads, places = [0.0] * count, {}
    for unit in sorted(taken, key=lambda unit: (-taken[unit], unit)):
        least = loads.index(min(loads))
        loads[least] += taken[unit]
        places[unit] = least + 1
    return places


def _by_name(unit: str, count: int) -> int:
    return zlib.crc32(unit.encode()) % count + 1


# ---- what was green


def pytest_report_header(config: pytest.Config) -> list[str]:
    shard = wanted(config)
    if shard is None:
        return []
    rotate = config.getoption("rotate")
    of = f"tests marked ci: turn {shard[0] % TURNS + 1} of {TURNS}; exhaustive tests" if rotate else "all tests"
    return [f"{of}: part {shard[0]} of {shard[1]} (make test-all SHARD={shard[0]}/{shard[1]}), commit {commit()[:12]}"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("rotate"):
        for line in stale(green(), commit()):
            terminalreporter.write_line(line)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A whole part that was green is kept."""
    config, at = session.config, commit()
    shard = wanted(config)
    some = any(config.getoption(name) for name in ("keyword", "markexpr", "collectonly"))
    whole = not some and config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if shard is None or shard[1] != SHARDS or exitstatus or not (whole and at) or hasattr(config, "workerinput"):
        return
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    rows = green() | {shard[0]: (at, today)}
    lines = [f"{which}/{SHARDS},{at},{on}" for which, (at, on) in sorted(rows.items())]
    GREEN.write_text("\n".join(["shard,commit,date", *lines, ""]))


def green() -> dict[int, tuple[str, str]]:
    """By part of SHARDS: the commit at which it was last green, and the date."""
    with GREEN.open(newline="") as file:
        rows = [(part(row["shard"]), row["commit"], row["date"]) for row in csv.DictReader(file)]
    return {which: (at, on) for (which, count), at, on in rows if count == SHARDS}


def stale(rows: dict[int, tuple[str, str]], head: str) -> list[str]:
    """Lines about the parts that have not been green for long."""
    lines = []
    for which, (at, on) in sorted(rows.items()):
        since = git("rev-list", "--count", f"{at}..{head}")
        if since is None or int(since) >= STALE_COMMITS:
            ago = f"{since} commits ago" if since else "a commit that is not here"
            lines.append(f"part {which} of {SHARDS} was last green at {at[:12]} on {on}, {ago}")
    if never := [str(which) for which in range(1, SHARDS + 1) if which not in rows]:
        lines.append(f"no green run is known of parts {', '.join(never)} of {SHARDS}")
    return [f"{line}: make test-all SHARD=K/{SHARDS}" for line in lines]
