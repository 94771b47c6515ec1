"""A process that nothing has launched is one rank: Horovod starts without MPI, which takes a second to find that out.

Horovod reads these variables when it starts. They are taken back then, so that what this process launches itself does
not take them for its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..internals.frameworks import hvd
from ..internals.launched import launched

ONE_RANK = {
    **{f"HOROVOD_{name}RANK": "0" for name in ("", "LOCAL_", "CROSS_")},
    **{f"HOROVOD_{name}SIZE": "1" for name in ("", "LOCAL_", "CROSS_")},
    "HOROVOD_CONTROLLER": "gloo",
    "HOROVOD_CPU_OPERATIONS": "gloo",
    "HOROVOD_GLOO_IFACE": "lo",  # a host need not know its own name
}


@contextmanager
def alone() -> Iterator[None]:
    """While it lasts, Horovod starts so where that is so; else as it would."""
    taken = sys.platform == "linux" and hvd.gloo_built() and not launched() and not set(ONE_RANK) & set(os.environ)
    os.environ.update(ONE_RANK if taken else {})
    try:
        yield
    finally:
        for name in ONE_RANK if taken else ():
            os.environ.pop(name, None)
