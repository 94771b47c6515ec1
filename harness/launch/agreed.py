"""The step from which all ranks of a host record: the first rank whose steps are steady names it in a file.

Steady is what a rank's own clock says, so ranks that decide alone may record unlike steps, and no collective of one has
its counterpart in the other's recording.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

AHEAD = 3  # steps; a rank waits for the others in each step, so it is at most one ahead of them


class Agreed:
    """The step that stands in `path`, or that this rank writes there first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._step: int | None = None

    def step(self, number: int, *, steady: bool) -> int | None:
        """The step to record from; None while no rank is steady. number: of the current step."""
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
        self._step = int(text) if text.endswith("\n") else None  # another rank is writing it
        return self._step

    def forget(self) -> None:
        """Remove the file, once this rank has recorded: the others know the step by then."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
