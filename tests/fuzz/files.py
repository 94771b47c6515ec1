"""Fuzz every verb and view: python -m tests.fuzz.files [--seconds 60] [--seed N] [recordings|documents|runs|histories]

Recordings, documents, run directories and histories with a few values changed into odd ones: times days away or of no
length, streams of other contexts, values of other types, tables without rows, pages that tables share, long texts,
archives with odd headers, damaged bytes. Exit code 1, and the file's path, where a verb ends in anything but an answer
or a refusal in one line, or takes over 30 s. In the end it tells how often each verb answered, by format.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.training import Shape
from benchmarks.write import WRITERS
from profiles import analyse
from profiles.gate import baseline_file, history
from profiles.gate.baseline import baseline_of
from profiles.measuring import subject
from profiles.model import measures_json

from ..made.swept import swept
from . import changes, documents, negotiated, verbs
from .target import CORPUS, READERS

LIMIT_S = 30
DATA = Path(__file__).parents[1] / "data"
SHAPE = Shape(steps=4, kernels=20, gpus=1, processes=1)


# What one try says: what each verb said where it refused, "" where it answered.
Said = dict[str, str]
# The format of what is tried, the file, and what tries it.
Try = tuple[str, Path, Callable[[], Said]]


def seeds(folder: Path) -> dict[str, list[Path]]:
    """By format the corpora of all readers, and under "whole" trainings that can be measured."""
    found = {reader: [path for path in sorted((CORPUS / reader).iterdir()) if path.is_file()] for reader in READERS}
    for kind, write in WRITERS.items():
        write(SHAPE, folder / kind, None)
        found[f"{kind} whole"] = [folder / kind]
    found["nsys gpu metrics"] = [CORPUS / "nsys.sqlite" / "gpu-metrics"]
    for name, path in (("xplane", "xplane/jax-2gpu-5-steps.xplane.pb"), ("horovod", "horovod/gloo-2-ranks.json")):
        found[f"{name} whole"] = [DATA / path]
    (folder / "xla").write_bytes(gzip.decompress((DATA / "made" / "jax.trace.json.gz").read_bytes()))
    return {**found, "xla_trace whole": [folder / "xla"]}


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


def of_recordings(folder: Path) -> Callable[[random.Random], Try]:
    """A recording by dice, all formats alike often, and what tries it."""
    (made := folder / "seeds").mkdir()
    (out := folder / "out").mkdir()
    chosen = seeds(made)
    negotiating, negotiated_in = negotiated.written(made)
    chosen["horovod beside"] = [negotiated_in]

    def one(dice: random.Random) -> Try:
        path, format = folder / "recording", dice.choice(sorted(chosen))
        shutil.copyfile(dice.choice(chosen[format]), path)
        changes.changed(path, dice)
        known = [negotiating] if format == "horovod beside" else []
        return format, path, lambda: verbs.put_through(path, out, *known)

    return one


def of_documents(folder: Path) -> Callable[[random.Random], Try]:
    """The same of partial files, measures and baselines."""
    WRITERS["nsys"](SHAPE, folder / "a", None)
    found = analyse(folder / "a", partial_to=folder / "a.partial").measures
    sound = folder / "sound.json"
    sound.write_text(measures_json.dumps(found))
    baseline = baseline_file.to_json(baseline_of(subject.load([sound])))
    partial = json.loads(gzip.decompress((folder / "a.partial").read_bytes()))
    kinds = {"b.json": baseline, "host.partial": partial, "measures.json": json.loads(sound.read_text())}

    def one(dice: random.Random) -> Try:
        name = dice.choice(sorted(kinds))
        path, text = folder / name, documents.written(documents.changed(kinds[name], dice), dice)
        path.write_bytes(gzip.compress(text, 1) if name == "host.partial" else text)
        if name == "b.json":
            return name, path, lambda: verbs.as_baseline(sound, path)
        return name, path, lambda: verbs.read_as(path)

    return one


def one_line_changed(lines: list[bytes], dice: random.Random) -> bytes:
    """JSON lines of which one is another."""
    at = dice.randrange(len(lines))
    other = documents.written(documents.changed(json.loads(lines[at]), dice), dice)
    return b"\n".join([*lines[:at], other, *lines[at + 1 :]]) + b"\n"


def of_runs(folder: Path) -> Callable[[random.Random], Try]:
    """The same of run directories, of which one file is another."""
    sound = swept(folder / "sound")
    names = sorted(str(path.relative_to(sound)) for path in sound.rglob("*") if path.is_file())

    def one(dice: random.Random) -> Try:
        shutil.rmtree(folder / "run", ignore_errors=True)
        run = Path(shutil.copytree(sound, folder / "run"))
        path = run / dice.choice(names)
        lines = path.read_bytes().splitlines() if path.suffix == ".jsonl" else [path.read_bytes()]
        path.write_bytes(one_line_changed(lines, dice))
        return f"run/{path.name}", path, lambda: verbs.of_run(run)

    return one


def of_histories(folder: Path) -> Callable[[random.Random], Try]:
    """The same of histories, of which one line is another."""
    WRITERS["nsys"](SHAPE, folder / "a", None)
    measures, path = folder / "sound.json", folder / "history.jsonl"
    measures.write_text(measures_json.dumps(analyse(folder / "a").measures))
    run = history.run_of(subject.load([measures]), "2026-11-28T12:00:00+00:00", None)
    # no earlier run has the numbers of this one, or the gate would not add it to the history once more
    earlier = [{owner: ns + at for owner, ns in run.ledger_ns.items()} for at in range(1, 13)]
    runs = [json.dumps(asdict(replace(run, commit=f"c{at}", ledger_ns=ns))).encode() for at, ns in enumerate(earlier)]

    def one(dice: random.Random) -> Try:
        path.write_bytes(one_line_changed(runs, dice))
        return path.name, path, lambda: verbs.as_history(measures, path, folder)

    return one


KINDS = {"recordings": of_recordings, "documents": of_documents, "runs": of_runs, "histories": of_histories}


def main() -> int:
    """1 where something ended in anything but an answer or a refusal."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", nargs="?", choices=KINDS, default="recordings")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="default: another each time")
    given = parser.parse_args()
    print(f"python -m tests.fuzz.files {given.what} --seed {given.seed} tries the same files", flush=True)
    dice, end = random.Random(given.seed), time.monotonic() + given.seconds
    kept = Path("build", "fuzz")
    counts: dict[str, Counter[str]] = {}
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        one = KINDS[given.what](Path(folder))
        while time.monotonic() < end:
            format, path, attempt = one(dice)
            counted = counts.setdefault(format, Counter())
            counted["tries"] += 1
            try:
                with limited():
                    counted.update(f"{verb} {'refused' if why else 'answered'}" for verb, why in attempt().items())
            except Exception:
                failed += 1
                kept.mkdir(parents=True, exist_ok=True)
                name = f"{given.what}-{given.seed}-{sum(each['tries'] for each in counts.values())}"
                shutil.copyfile(path, kept / name)
                traceback.print_exc(limit=-2)
                print(f"FAILED ({format}): {kept / name}", flush=True)
    for format, counted in sorted(counts.items()):
        print(f"{format}: " + ", ".join(f"{what} {count}" for what, count in sorted(counted.items())))
    tried = sum(counted["tries"] for counted in counts.values())
    print(f"{given.what}: {tried} tried in {given.seconds} s, {failed} failed", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
