"""ringscope's analysis half: recordings and run records become answers. Imports neither TensorFlow nor Horovod.

    analysis = profiles.analyse("runs/")           # files -> numbers, findings, doubts
    for gpu in analysis.measures.gpus:
        print(gpu.rank, gpu.ledger_ns)

These names are the public functions and the types they give; each is imported when it is first used (pandas is heavy).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from .ground.errors import MissingLibrary, RingscopeError, UnreadableRecording

if TYPE_CHECKING:
    from .measuring.analysis import analyse, measure
    from .model.analysed import Analysis
    from .model.findings import Finding
    from .model.measures import GpuMeasures, Measures
    from .model.timeline import Doubt, Recording, Timeline
    from .readers import read
    from .verdicts import Context

__all__ = [
    "Analysis",
    "Context",
    "Doubt",
    "Finding",
    "GpuMeasures",
    "Measures",
    "MissingLibrary",
    "Recording",
    "RingscopeError",
    "Timeline",
    "UnreadableRecording",
    "analyse",
    "measure",
    "read",
]

_ROOMS = {
    "model.analysed": ("Analysis",),
    "measuring.analysis": ("analyse", "measure"),
    "model.findings": ("Finding",),
    "model.measures": ("GpuMeasures", "Measures"),
    "readers": ("read",),
    "model.timeline": ("Doubt", "Recording", "Timeline"),
    "verdicts": ("Context",),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}


if not TYPE_CHECKING:  # else a type checker would take any name for an attribute

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
