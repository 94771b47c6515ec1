"""Recognise files that ringscope wrote where another kind is expected; name each, and the command that reads it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

# Names of files in a run directory that are no recordings.
_OF_A_RUN: Final = re.compile(
    r"(?:sweep|cell|record|measures|applied|fits)\.json|rank\d+\.(?:jsonl|log|progress|(?:end|error|places)\.json)"
    r"|launcher\.log|(?:results|summary|autotune)\.csv|job\.(?:sbatch|pbs|lsf|json|log)|\.lock"
)
_IN_A_RUN: Final = (
    "a file of a run directory",
    "give the directory to `ringscope report`, `compare` or `gate`, or name the recordings in it",
)
_SCHEMA: Final = re.compile(rb'"schema"\s*:\s*"ringscope\.(\w+)/\d+"')
# The start of a file that `gate --history` wrote. Its schema has the same name as that of a launch's record.
_HISTORY: Final = re.compile(rb'\A\s*\{"time": ?"[^"]*", ?"commit": ?[^,]*, ?"ledger_ns": ?\{')
BASELINE: Final = ("a baseline of `ringscope gate`", "give it to `ringscope gate RUN --baseline FILE`")
HISTORY: Final = ("a history of `ringscope gate`", "give it to `ringscope gate RUN --history FILE`")
_READ: Final = {
    "measures": (
        "measures that `ringscope timeline --json` wrote",
        "give the file to `ringscope check`, `compare` or `gate`, or name the recordings that were measured",
    ),
    "partial": (
        "a partial file of `ringscope timeline --partial`",
        "give it to `ringscope timeline`, `check`, `compare` or `gate`, or name the recordings that were measured",
    ),
    "baseline": BASELINE,
    "places": ("samples of a recording's Python stacks", "name the recording, which lies beside this file"),
    **dict.fromkeys(("sweep", "run", "rank", "applied", "fits", "machine"), _IN_A_RUN),
}
# For each schema of a file that no command reads, the command that writes it.
_WRITERS: Final = {
    "summary": "timeline --json-summary",
    "collectives": "timeline --json",
    "check": "check --json",
    "comparison": "compare --json",
    "prediction": "predict --json",
    "forecast": "predict --json",
    "scaling": "report --json",
    "rules": "rules",
    "inference": "infer",
    "doctor": "doctor --json",
    "knobs": "record --apply",
}
_OF: Final = "name the recordings or the run directory from which the file was made"
_TABLE: Final = re.compile(rb"\A(?:\xef\xbb\xbf)?model,ranks,per_rank_batch,")
_EXPORT: Final = re.compile(
    rb'\A# TYPE ringscope_|\A\s*\{\s*"[^"]*": ?\{\s*"(?:step|sample)_ns": ?\{\s*"value"'
    rb'|\A\s*\[\s*\{\s*"name": ?"[^"]*: (?:step|sample)_ns",\s*"unit": ?"ns"'
)


def of_a_run(path: Path) -> bool:
    """True if a run directory has a file of this name beside its recordings."""
    return bool(_OF_A_RUN.fullmatch(path.name))


def told(path: Path, head: bytes) -> tuple[str, str] | None:
    """Describe a file of ringscope: (what it is, what to do with it); None for others. `head`: the file's first
    bytes."""
    if _HISTORY.match(head):
        return HISTORY
    if (found := _SCHEMA.search(head)) and (schema := found[1].decode()) in (*_READ, *_WRITERS):
        return _READ.get(schema) or (f"output of `ringscope {_WRITERS[schema]}`, which no command reads", _OF)
    if _EXPORT.match(head):
        return "output of `ringscope gate --export`, which no command reads", _OF
    return _IN_A_RUN if _TABLE.match(head) or of_a_run(path) else None
