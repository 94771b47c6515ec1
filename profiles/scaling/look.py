"""Something in a sweep that the user should look at."""

from __future__ import annotations

from dataclasses import dataclass

from ..ground.stats import Ratio

# A loss or a gain below this share is not shown.
WORTH_A_LOOK = 0.03


@dataclass(slots=True)
class Look:
    """A sentence about a sweep, what to do next, and how much that may gain (throughput ratio minus 1)."""

    code: str
    text: str
    next: str
    worth: float = 0.0
    model: str = ""  # the model that the look is about; empty for several models


def least(gain: Ratio) -> str:
    """The low end of a gain in words. A single launch does not show by how much launches differ."""
    return "by a single launch" if gain.error is None else f"at least {gain.low:.2f} x"


def ranks(count: int) -> str:
    """The number of ranks in words, such as `one rank` or `4 ranks`."""
    return "one rank" if count == 1 else f"{count} ranks"
