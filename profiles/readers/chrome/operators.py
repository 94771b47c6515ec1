"""Read the operators of a PyTorch trace: name, module, thread, inputs, and whether they belong to the backward pass."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from ..tables import printed
from . import events as chrome
from .events import Event

# Python function events with this prefix are calls of modules (layers); each event's name ends in the module's
# number.
MODULE: Final = "nn.Module: "


def columns(events: list[Event], args: list[chrome.Args]) -> dict[str, Any]:
    """Columns of the table `operators`. An operator belongs to the backward pass if it names a forward thread."""
    codes, names = chrome.coded([event.name for event in events])
    return {
        "tid": chrome.integers([event.tid for event in events]),
        "name": printed.categorical(codes, [name.removeprefix(MODULE) for name in names]),
        "module": np.array([name.startswith(MODULE) for name in names])[codes],
        "inputs": _inputs(args),
        "sequence": chrome.integers([a.sequence for a in args]),
        "backward": chrome.integers([a.forward_thread for a in args]) > 0,
    }


def _inputs(args: list[chrome.Args]) -> pd.Categorical:
    """Shapes, types and values of each operator's inputs as one JSON text; "" if the trace has no shapes."""
    told = [a for a in args if a.dims or a.older_dims]
    parts = (
        [b'{"dims":'] * len(told),
        [a.dims or a.older_dims for a in told],
        [b',"types":'] * len(told),
        [a.types or b"[]" for a in told],
        [b',"values":'] * len(told),
        [a.values or b"[]" for a in told],
        [b"}"] * len(told),
    )
    try:
        texts = chrome.strings(*parts)
    except ValueError:
        rows = zip(*parts, strict=True)
        texts = pa.array([b"".join(row).decode(errors="replace") for row in rows], pa.large_string())
    codes = np.full(len(args), -1)
    found, distinct = printed.coded(pa.chunked_array([texts]))
    codes[[bool(a.dims or a.older_dims) for a in args]] = found
    return printed.categorical(codes, distinct)
