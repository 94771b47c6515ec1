"""Find the work and the operator path of a kernel in the compiled XLA programs that a profile holds."""

from __future__ import annotations

from typing import Any, Final

from . import hlo
from .planes import Row, metadata

_PLANE: Final = "/host:metadata"


class Programs:
    """The compiled programs of a profile; each is parsed when the first of its kernels is looked up."""

    def __init__(self, serialized: dict[str, bytes]) -> None:
        self._serialized = serialized
        self._read: dict[str, hlo.Program | None] = {}

    def work(self, row: Row) -> str:
        """The work of a kernel, as JSON (see readers.hlo); "" if unknown."""
        program, instruction = self._of(row), row.stats.get("hlo_op")
        return program.of_kernel(instruction, row.name) if program and isinstance(instruction, str) else ""

    def path(self, row: Row) -> str:
        """The framework's operator path of a kernel, from its program; "" if the program has none."""
        program = self._of(row)
        return program.paths.get(row.name.removesuffix(".kd"), "") if program else ""  # .kd: suffix on AMD's GPUs

    def _of(self, row: Row) -> hlo.Program | None:
        """The program that a kernel belongs to; None if unknown."""
        module = row.stats.get("hlo_module")
        if not isinstance(row.stats.get("hlo_op"), str) or not isinstance(module, str):
            return None
        name = f"{module}({row.stats.get('program_id')})"
        if name not in self._read:
            serialized = self._serialized.get(name) or self._serialized.get(module)
            self._read[name] = hlo.program(serialized) if serialized else None
        return self._read[name]

    def differentiate(self) -> bool | None:
        """True if any program that was looked up computes a derivative, False if none does, None if unknown."""
        told = {program.differentiates for program in self._read.values() if program}
        if True in told:
            return True
        return False if False in told and None not in told else None


def of_profile(space: Any) -> Programs:
    found = {}
    for plane in space.planes:
        if plane.name == _PLANE:
            stats = metadata(plane)[1]
            for entry in plane.event_metadata.values():
                for stat in entry.stats:
                    if stats.get(stat.metadata_id, "").lower().replace(" ", "_") == "hlo_proto":
                        found[entry.name] = stat.bytes_value
    return Programs(found)
