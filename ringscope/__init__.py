"""ringscope: why are N GPUs not N times faster, and what to change?

    import ringscope

    analysis = ringscope.analyse(...)          # recordings -> where every nanosecond of every GPU went
    for finding in analysis.measures.findings:
        print(finding.text, "->", finding.change)

    from ringscope import ring                 # a Keras script becomes a Horovod script:
    ring.init()                                # one GPU for each process
    ring.distribute(model)                     # after model.compile(...)

This page is the public API; docs/api.md shows its use. Everything but `ring` works without TensorFlow. What it names is
imported when it is first used, so that `import ringscope` takes no time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from profiles.errors import MissingLibrary, RingscopeError, UnreadableRecording
from profiles.version import VERSION as __version__

if TYPE_CHECKING:
    from harness import ring
    from profiles.analysis import analyse, measure
    from profiles.measures import Analysis, Finding, GpuMeasures, Measures
    from profiles.readers import read
    from profiles.timeline import Doubt, Recording, Timeline

__all__ = [
    "Analysis",
    "Doubt",
    "Finding",
    "GpuMeasures",
    "Measures",
    "MissingLibrary",
    "Recording",
    "RingscopeError",
    "Timeline",
    "UnreadableRecording",
    "__version__",
    "analyse",
    "measure",
    "read",
    "ring",
]

_ROOMS = {
    "profiles.analysis": ("analyse", "measure"),
    "profiles.measures": ("Analysis", "Finding", "GpuMeasures", "Measures"),
    "profiles.readers": ("read",),
    "profiles.timeline": ("Doubt", "Recording", "Timeline"),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}


if not TYPE_CHECKING:  # else a type checker would take any name for an attribute

    def __getattr__(name: str) -> object:
        if name == "ring":
            value: object = importlib.import_module("harness.ring")
        elif name in _HOME:
            value = getattr(importlib.import_module(_HOME[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
