"""Fuzz every verb and view: python -m tests.fuzz.files [--seconds 60] [--seed 0] [recordings|documents]

Recordings and documents with a few values changed into odd ones: times days away or of no length, streams of other
contexts, values of other types, tables without rows, long texts, damaged bytes. Exit code 1, and the file's path, where
a verb ends in anything but an answer or a refusal in one line, or takes over 30 s.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.training import Shape
from benchmarks.write import WRITERS
from profiles import analyse, gate
from profiles.measuring import subject
from profiles.model import measures_json
from profiles.verbs import gate as gate_verb

from . import documents, verbs
from .target import CORPUS, READERS

LIMIT_S = 30
DAY_NS = 86_400 * 10**9
TIMES = (0, 1, -5, 2**40, 3 * DAY_NS, -3 * DAY_NS, 400 * DAY_NS, 2**62, -(2**63), 2**63 - 1)
SHAPE = Shape(steps=4, kernels=20, gpus=1, processes=1)


def seeds(folder: Path) -> list[Path]:
    """The corpora of all readers, and a training in each format that is written here."""
    found = [path for reader in READERS for path in sorted((CORPUS / reader).iterdir()) if path.is_file()]
    for kind, write in WRITERS.items():
        for number in range(5):  # as likely as a format's corpus
            write(SHAPE, folder / f"{kind}{number}", None)
            found.append(folder / f"{kind}{number}")
    return found


def changed(path: Path, dice: random.Random) -> None:
    """Changes the file in place."""
    head = path.read_bytes()[:16]
    if dice.randrange(8) == 0:
        bytes_changed(path, dice)
    elif head.startswith(b"SQLite format 3\0"):
        with closing(sqlite3.connect(path)) as connection:
            for _ in range(dice.choice((1, 1, 2, 3))):
                try:
                    rows_changed(connection, dice)
                except (sqlite3.Error, OverflowError, MemoryError):  # the last of SQLite's, of damaged pages
                    connection.rollback()
    elif head.lstrip()[:1] in (b"{", b"["):
        try:
            document = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            return bytes_changed(path, dice)
        path.write_bytes(documents.written(documents.changed(times_changed(document, dice), dice), dice))
    else:
        bytes_changed(path, dice)
    return None


def bytes_changed(path: Path, dice: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(data) + 1)
        data[at : at + dice.choice((0, 1, 1, 8))] = dice.randbytes(dice.choice((0, 1, 1, 4)))
    path.write_bytes(data[: dice.randrange(len(data) + 1)] if dice.randrange(6) == 0 else data)


def rows_changed(connection: sqlite3.Connection, dice: random.Random) -> None:
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    table = dice.choice([name for name in tables if not name.startswith("sqlite_")])
    columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
    column = dice.choice([name for name in columns if name in ("start", "end")] * 5 + columns)
    some = f'(SELECT rowid FROM "{table}" ORDER BY random() LIMIT {dice.choice((1, 1, 3, 1000))})'
    how = dice.randrange(8)
    if how == 0:
        connection.execute(f'DELETE FROM "{table}"')
    elif how == 1:
        connection.execute(f'DROP TABLE "{table}"')
    elif how == 2 and "contextId" in columns:
        connection.execute(f'UPDATE "{table}" SET contextId = contextId + 1 WHERE rowid IN {some}')
    elif how == 3:
        text = dice.choice(("x" * 100_000, "\x1b]0;x\x07", "<script>", b"\xff\xfe", 0.5, None, -1, 2**40))
        connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid IN {some}', (text,))
    elif how == 4 and {"start", "end"} <= set(columns):
        away = dice.choice(TIMES)
        connection.execute(
            f'UPDATE "{table}" SET start = start + ?, "end" = "end" + ? WHERE rowid IN {some}', (away, away)
        )
    else:
        connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid IN {some}', (dice.choice(TIMES),))
    connection.commit()


def times_changed(document: Any, dice: random.Random) -> Any:
    """Of a trace the times of some events."""
    events = document.get("traceEvents") if isinstance(document, dict) else document
    timed = [event for event in events or () if isinstance(event, dict) and "ts" in event]
    for event in dice.sample(timed, min(len(timed), dice.choice((0, 1, 1, 5, 50)))):
        key = dice.choice(("ts", "ts", "dur"))
        event[key] = dice.choice((*TIMES, 0.0005)) if dice.randrange(2) else dice.choice(TIMES) / 1000
    return document


@contextmanager
def limited() -> Iterator[None]:
    def over(*_: object) -> None:
        raise TimeoutError(f"over {LIMIT_S} s")

    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S * 10, 1)  # beside others on a few cores
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def of_recordings(folder: Path) -> Callable[[random.Random], tuple[Path, Callable[[], bool]]]:
    """A recording by dice, and what tries it: True where it was answered."""
    (made := folder / "seeds").mkdir()
    (out := folder / "out").mkdir()
    chosen = seeds(made)

    def one(dice: random.Random) -> tuple[Path, Callable[[], bool]]:
        path = folder / "recording"
        shutil.copyfile(dice.choice(chosen), path)
        changed(path, dice)
        return path, lambda: not verbs.put_through(path, out)["timeline"]

    return one


def of_documents(folder: Path) -> Callable[[random.Random], tuple[Path, Callable[[], bool]]]:
    """The same of partial files, measures and baselines."""
    WRITERS["nsys"](SHAPE, folder / "a", None)
    found = analyse(folder / "a", partial_to=folder / "a.partial").measures
    sound = folder / "sound.json"
    sound.write_text(measures_json.dumps(found))
    baseline = gate.to_json(gate.baseline_of(subject.load([sound])))
    partial = json.loads(gzip.decompress((folder / "a.partial").read_bytes()))
    kinds = {"b.json": baseline, "host.partial": partial, "measures.json": json.loads(sound.read_text())}

    def one(dice: random.Random) -> tuple[Path, Callable[[], bool]]:
        name = dice.choice(sorted(kinds))
        path, text = folder / name, documents.written(documents.changed(kinds[name], dice), dice)
        path.write_bytes(gzip.compress(text, 1) if name == "host.partial" else text)
        if name == "b.json":
            return path, lambda: not verbs.run(gate_verb.command, [str(sound), "--baseline", str(path)])
        return path, lambda: not verbs.read_as(path)["gate"]

    return one


def main() -> int:
    """1 where something ended in anything but an answer or a refusal."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", nargs="?", choices=("recordings", "documents"), default="recordings")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    dice, end = random.Random(given.seed), time.monotonic() + given.seconds
    kept = Path("build", "fuzz")
    tried = answered = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        one = {"recordings": of_recordings, "documents": of_documents}[given.what](Path(folder))
        while time.monotonic() < end:
            path, attempt = one(dice)
            tried += 1
            try:
                with limited():
                    answered += attempt()
            except Exception:
                failed += 1
                kept.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, kept / f"{given.what}-{given.seed}-{tried}")
                traceback.print_exc(limit=-2)
                print(f"FAILED: {kept}/{given.what}-{given.seed}-{tried}", flush=True)
    print(f"{given.what}: {tried} tried in {given.seconds} s, {answered} answered, {failed} failed", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
