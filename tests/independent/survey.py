"""What ringscope says of many recordings, beside numbers that a program without its code makes of them.

    python -m tests.independent.survey PATH... [--out FILE]

A line a GPU: the file, the share of time in which nothing computes, what owns most of it, the first finding, whether
busy, exposed and idle (in a small recording idle by cause, too) are `equal` to `tests.independent.program`'s, and what
somebody who looked into the events says of the first finding (`looked_at.csv`, by the file's SHA-256 and the finding's
code: what is said of one finding is not said of the next): right, useless, wrong, or missing where a tenth or more is
lost and nothing is said.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from profiles import analyse
from profiles.ground.errors import RingscopeError
from profiles.model.findings import Finding
from profiles.model.measures import GpuMeasures
from tests.independent import program

LOOKED_AT = Path(__file__).with_name("looked_at.csv")
SUFFIXES = (".sqlite", ".sqlite.xz", ".json", ".json.gz", ".pb", ".nvvp", ".sql", ".csv", ".log")
LOST = 0.1
LOOPS = 6_000  # operations of which plain loops tell the causes in some seconds
FIELDS = ("file", "gpu", "lost", "owners", "first", "numbers", "judged")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    judged = {(row["sha256"], row["first"]): row["judged"] for row in csv.DictReader(LOOKED_AT.open())}
    out = options.out.open("w") if options.out else sys.stdout
    table = csv.DictWriter(out, FIELDS)
    table.writeheader()
    counts: Counter[str] = Counter()
    for path in found(options.paths):
        for row in rows(path, judged):
            table.writerow(row)
            out.flush()
            counts[row["judged"] or "not looked at"] += 1
            counts[f"numbers {row['numbers']}"] += 1
    print(dict(counts), file=sys.stderr)


def found(paths: list[Path]) -> Iterator[Path]:
    """Each content once; what is there to be refused is left out."""
    seen = set()
    for given in paths:
        for path in sorted(given.rglob("*")) if given.is_dir() else [given]:
            if not path.is_file() or not path.name.endswith(SUFFIXES) or "hostile" in path.parts:
                continue
            if (content := digest(path)) not in seen:
                seen.add(content)
                yield path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def rows(path: Path, judged: Mapping[tuple[str, str], str]) -> Iterator[dict[str, str]]:
    try:
        measures = analyse([path]).measures
    except RingscopeError as error:
        yield {**dict.fromkeys(FIELDS, ""), "file": path.name, "first": f"refused: {error}"[:120], "judged": "refused"}
        return
    capture = analyse([path], window="capture").measures
    told, content = recomputed(path), digest(path)
    for index, gpu in enumerate(measures.gpus):
        lost = 1 - (gpu.ledger_ns["compute"] or 0) / gpu.span_ns
        first = next((one for one in measures.findings if one.gpu is None or index in _gpus(one)), None)
        nothing = "missing" if lost >= LOST else "nothing to say"
        said = judged.get((content, first.code), "") if first else nothing
        yield {
            "file": path.name,
            "gpu": str(gpu.device),
            "lost": f"{lost:.1%}",
            "owners": owners(gpu),
            "first": f"{first.code}: {first.text}"[:160] if first else "",
            "numbers": "not recomputed" if told is None else agreed(capture.gpus[index], told, len(measures.gpus)),
            "judged": said,
        }


def _gpus(finding: Finding) -> list[int | None]:
    """A finding of some of the GPUs stands on the one that loses most."""
    return [finding.gpu, *finding.evidence.get("gpus", ())]


def recomputed(path: Path) -> program.Recording | None:
    """None where the program does not know the format."""
    try:
        return program.recorded(path)
    except (KeyError, ValueError, TypeError, IndexError, sqlite3.Error):
        return None


def owners(gpu: GpuMeasures) -> str:
    parts = sorted(((ns or 0, name) for name, ns in gpu.ledger_ns.items() if name != "compute"), reverse=True)
    return " ".join(f"{name}:{ns / gpu.span_ns:.1%}" for ns, name in parts[:3] if ns)


def agreed(gpu: GpuMeasures, told: program.Recording, gpus: int) -> str:
    """`equal`, or what is not. Only the causes of small recordings of one GPU are recomputed."""
    mine = program.of_device(told, gpu.device)
    if not mine.all:
        return "other device"  # ranks told apart
    busy, exposed, idle = program.totals(mine)
    if gpu.busy_ns != busy or {name: gpu.ledger_ns[name] for name in busy} != exposed:
        return f"busy or exposed differ: {gpu.busy_ns} {busy}"[:200]
    causes = {name: ns for name, ns in gpu.ledger_ns.items() if name.startswith("idle_") and ns is not None}
    if sum(causes.values()) != idle:
        return f"idle differs: {sum(causes.values())} {idle}"
    if gpus > 1 or len(mine.all) > LOOPS or not gpu.told or not mine.calls:
        return "equal"
    expected = program.causes(mine)
    apart = {name: (ns, expected.get(name, 0)) for name, ns in causes.items() if ns != expected.get(name, 0)}
    return f"causes differ: {apart}"[:200] if apart else "equal by cause"


if __name__ == "__main__":
    main()
