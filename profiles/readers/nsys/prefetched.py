"""Pages of managed memory that the program asked for: nsys does not say by which call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...ground.groups import by_value
from ..tables.strings import Strings

_ASKED: Final = 1  # CUpti_ActivityUnifiedMemoryMigrationCause: by a call such as cudaMemPrefetchAsync
_CALL: Final = re.compile(r"^cu(?:da)?MemPrefetch")


def calls(copies: Mapping[str, Any], api: Mapping[str, Any] | None, strings: Strings) -> NDArray[np.int64]:
    """The correlations of the copies, with that of a call for each page that the program asked for: the latest call to
    prefetch of its process that began before the page moved. `copies` and `api`: columns by name; `cause` may be
    missing."""
    correlation: NDArray[np.int64] = copies["correlation"]
    asked = np.flatnonzero(copies["cause"] == _ASKED) if "cause" in copies else np.empty(0, np.int64)
    if api is None or not len(asked):
        return correlation
    names = strings.categorical(api["name"])
    prefetches = np.array([bool(_CALL.match(name)) for name in names.categories])[names.codes]
    correlation = correlation.astype(np.int64)
    for pid, places in by_value(copies["pid"][asked]):
        mine = asked[places]
        rows = np.flatnonzero(prefetches & (api["pid"] == pid))
        rows = rows[np.argsort(api["start_ns"][rows], kind="stable")]
        latest = np.searchsorted(api["start_ns"][rows], copies["start_ns"][mine], side="right") - 1
        correlation[mine[latest >= 0]] = api["correlation"][rows[latest[latest >= 0]]]
    return correlation
