"""ringscope: why are N GPUs not N times faster, and what to change?

    import ringscope

    analysis = ringscope.analyse("rank*.sqlite")      # where every nanosecond of every GPU went
    for finding in analysis.measures.findings:
        print(finding.text, "->", finding.change)

    from ringscope import ring                        # a Keras script becomes a Horovod script:
    ring.init()                                       # one GPU for each process
    ring.distribute(model)                            # after model.compile(...)

The names below are the public API; docs/api.md shows its use. Everything but `ring` works without TensorFlow. Each name
is imported when it is first used, so that `import ringscope` takes no time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import profiles
from profiles.ground.version import VERSION as __version__

if TYPE_CHECKING:
    from profiles import *  # noqa: F403

    from . import ring

__all__ = ["__version__", "ring"]
__all__ += profiles.__all__


if not TYPE_CHECKING:  # else a type checker would accept any name as an attribute

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = importlib.import_module("ringscope.ring") if name == "ring" else getattr(profiles, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
