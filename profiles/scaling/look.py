"""An observation of a sweep that is worth a look."""

from __future__ import annotations

from dataclasses import dataclass

# Below this a loss or a gain is not worth a look of its own.
WORTH_A_LOOK = 0.03


@dataclass(slots=True)
class Look:
    """An observation to look at first: its words, what to do, and what it may be worth (throughput ratio minus 1)."""

    code: str
    text: str
    next: str
    worth: float = 0.0
    model: str = ""  # the model that it is about; empty: several


def ranks(count: int) -> str:
    """`one rank`, `4 ranks`."""
    return "one rank" if count == 1 else f"{count} ranks"
