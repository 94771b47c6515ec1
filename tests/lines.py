"""Which lines of the product tests run, in every process that they start. Python 3.12 or later.

    python -m tests.lines run all.json -m exhaustive         # pytest with these words, then the lines in a file
    python -m tests.lines only all.json test.json ci.json    # lines that only the first of these runs had, by file

A line is marked in a file of one byte a line, which all processes map: a rank that is killed keeps its marks. Python
begins to mark by a .pth file in its environment, so processes whose test sets their PYTHONPATH count too, and one
environment serves one run at a time.
"""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).parents[1]
PRODUCT = ("harness", "profiles", "ringscope")
TOOL = 4  # of sys.monitoring: profilers and debuggers have others


def run(words: Sequence[str], root: Path = ROOT) -> tuple[int, dict[str, list[int]]]:
    """How pytest ends, and the lines that ran by file."""
    files = sorted(path for room in PRODUCT for path in (root / room).rglob("*.py"))
    first, count = {}, 0
    for path in files:
        first[str(path)] = count
        count += path.read_text().count("\n") + 2
    with tempfile.TemporaryDirectory(prefix="lines-") as below:
        folder = Path(below)
        (folder / "first.json").write_text(json.dumps(first))
        (folder / "ran").write_bytes(bytes(count))
        with marking(folder):
            ended = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=root)
        ran = (folder / "ran").read_bytes()
    lines: dict[str, list[int]] = {str(path.relative_to(root)): [] for path in files}
    for path, after in zip(files, [*list(first.values())[1:], count], strict=True):
        at = first[str(path)]
        lines[str(path.relative_to(root))] = [number for number in range(1, after - at) if ran[at + number]]
    return ended.returncode, {file: numbers for file, numbers in lines.items() if numbers}


@contextmanager
def marking(folder: Path) -> Iterator[None]:
    """Meanwhile every process of this environment's Python marks its lines in the folder."""
    source = folder / "begin.py"
    source.write_text(f"{Path(__file__).read_text()}\nbegin({str(folder)!r})\n")
    begins = Path(sysconfig.get_path("purelib")) / "lines_that_tests_run.pth"
    with begins.open("x") as file:
        whole = "exec(open(it).read(), {'__name__': 'lines', '__file__': it})"
        file.write(f"import os; it = {str(source)!r}; os.path.exists(it) and {whole}\n")
    try:
        yield
    finally:
        begins.unlink()


def begin(folder: str) -> None:
    """In each process, before anything of the product is imported. Python reads a .pth file twice in an environment."""
    watch: Any = sys.monitoring
    if watch.get_tool(TOOL):
        return
    with open(f"{folder}/first.json") as file:
        first: dict[str, int] = json.load(file)
    with open(f"{folder}/ran", "r+b") as file:
        ran = mmap.mmap(file.fileno(), 0)
    events = watch.events
    watch.use_tool_id(TOOL, "lines")

    def started(code: CodeType, _: int) -> Any:
        if code.co_filename in first:
            watch.set_local_events(TOOL, code, events.LINE)
        return watch.DISABLE

    def reached(code: CodeType, line: int) -> Any:
        ran[first[code.co_filename] + line] = 1
        return watch.DISABLE

    watch.register_callback(TOOL, events.PY_START, started)
    watch.register_callback(TOOL, events.LINE, reached)
    watch.set_events(TOOL, events.PY_START)


def only(one: dict[str, list[int]], others: Sequence[dict[str, list[int]]]) -> dict[str, list[int]]:
    """Lines of the first that none of the others has."""
    found = {
        file: sorted(set(lines).difference(*(each.get(file, ()) for each in others))) for file, lines in one.items()
    }
    return {file: lines for file, lines in found.items() if lines}


def main(words: Sequence[str]) -> int:
    if words[0] == "run":
        code, lines = run(words[2:])
        Path(words[1]).write_text(json.dumps(lines))
        return code
    one, *others = (json.loads(Path(file).read_text()) for file in words[1:])
    found = only(one, others)
    for file, lines in sorted(found.items(), key=lambda pair: -len(pair[1])):
        print(f"{len(lines):5} {file}: {' '.join(map(str, lines))}")
    print(f"{sum(map(len, found.values())):5} lines of {len(found)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
