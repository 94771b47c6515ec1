"""`python -m profiles`: the verbs that turn recordings and run records into answers."""

from __future__ import annotations

from .ground.lazy import LazyGroup, run
from .verbs import VERBS

HELP = "Turn recordings and run records into answers."


def main() -> None:
    run(LazyGroup(name="profiles", verbs=VERBS, help=HELP))
