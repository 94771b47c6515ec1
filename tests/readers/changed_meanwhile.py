"""`gate` and `cut` of a recording that changes before the k-th time it is opened.

python -m tests.readers.changed_meanwhile EVERY NAME... takes the seed of tests/fuzz for each reader, and prints how
often each change was answered and refused. Each change comes before every EVERY-th opening; with 3, any opening meets
two of the six changes. A process of its own: Python's audit hook, which tells of a file that is about to be opened,
stays till its end.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from profiles.verbs import cut, gate
from tests.fuzz import verbs
from tests.fuzz.target import CORPUS

MOST_OPENED = 100


def becomes_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def grows(path: Path) -> None:
    with path.open("ab") as file:
        file.write(path.read_bytes()[:4096])


def becomes_a_pipe(path: Path) -> None:
    """That nobody writes to: a reader that opens it as a file waits for ever."""
    path.unlink()
    os.mkfifo(path)


CHANGES: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "folder": becomes_a_folder,
    "pipe": becomes_a_pipe,
    "half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "grown": grows,
    "other": lambda path: path.write_bytes(b"\0\xff" * 3000),
}


class Meanwhile:
    """Changes the file before it is opened for the `at`th time."""

    def __init__(self) -> None:
        self.path, self.at, self.change = Path(), 0, ""
        sys.addaudithook(self._heard)

    def _heard(self, event: str, given: tuple[object, ...]) -> None:
        opens = event in ("open", "sqlite3.connect") and isinstance(given[0], (str, bytes, os.PathLike))
        if not self.at or not opens or os.fsdecode(given[0]).partition("?")[0].removeprefix("file:") != str(self.path):
            return
        self.at -= 1
        if not self.at:
            CHANGES[self.change](self.path)


def tried(seed: Path, folder: Path, every: int) -> Counter[str]:
    """How often each change was answered and refused by both verbs, before each `every`-th opening of the file."""
    found: Counter[str] = Counter()
    meanwhile = Meanwhile()
    (inputs := folder / "in").mkdir()
    (outputs := folder / "out").mkdir()
    path = inputs / "recording"
    held = [str(path), "--max", "feed_gap_share=0.5", "--write-baseline", str(outputs / "base.json")]
    smaller = [str(path), "--shrink", "-o", str(outputs / "new.sqlite")]
    for command, words in ((gate.command, held), (cut.command, smaller)):
        for number, change in enumerate(CHANGES):
            for at in range(1 + number % every, MOST_OPENED, every):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
                shutil.copy(seed, path)
                meanwhile.path, meanwhile.change, meanwhile.at = path, change, at
                said = verbs.run(command, words)
                there = list(outputs.iterdir())
                assert not (said and there), f"{change} at {at}: {said}, but {there} is written"
                for one in there:
                    one.unlink()
                if meanwhile.at:  # it is not opened as often
                    meanwhile.at = 0
                    break
                found[f"{change} {'refused' if said else 'answered'}"] += 1
    return found


if __name__ == "__main__":
    counts: Counter[str] = Counter()
    for reader in sys.argv[2:]:
        with tempfile.TemporaryDirectory() as scratch:
            largest = max(Path(CORPUS, reader).iterdir(), key=lambda one: one.stat().st_size)
            counts += tried(largest, Path(scratch), int(sys.argv[1]))
    print(json.dumps(counts))
