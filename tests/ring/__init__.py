"""Tests of ringscope.ring, most of them asked of real ranks that run a script of scripts/."""

import json
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).with_name("scripts")


def from_ranks(out: Path, ranks: int = 2) -> list[dict[str, Any]]:
    """What each rank's script wrote into OUT/rank<k>.json."""
    return [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(ranks)]
