"""The step from which all ranks of a host record: the first rank whose step times are steady writes it into a file.

If each rank decided alone, ranks might record different steps, and a collective in one recording would have no
counterpart in another.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

AHEAD = 3  # steps; ranks wait for each other in each step, so no rank is further ahead than one step


class Agreed:
    """The first step to record: the one in the file `path`, or the one that this rank writes there first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._step: int | None = None

    def step(self, number: int, *, steady: bool) -> int | None:
        """The first step to record; None while no rank is steady. number: of the rank's current step. steady: True if
        this rank's step times are."""
        if self._step is not None:
            return self._step
        if steady:
            with suppress(FileExistsError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("x") as file:
                    file.write(f"{number + AHEAD}\n")
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return None
        self._step = int(text) if text.endswith("\n") else None  # None: another rank is still writing the file
        return self._step

    def forget(self) -> None:
        """Remove the file; this rank has recorded, so the others have read the file."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
