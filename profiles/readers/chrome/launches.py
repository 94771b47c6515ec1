"""What the calls of a PyTorch trace tell of the operations that they launched; frames are by table."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from ...names import fitting, rows_of
from . import events as chrome

OPERATIONS: Final = ("kernels", "copies", "memsets", "syncs")
_GRAPH_LAUNCH: Final = r"^(?:cu(?:da)?|hip)GraphLaunch"


def number_graph_nodes(frames: dict[str, pd.DataFrame]) -> None:
    """Numbers what a CUDA graph's launch ran from 1, in order of start: it has the correlation of the launch."""
    api = frames.get("api")
    if api is None:
        return
    names = api["name"].cat
    launched = rows_of(names.codes.to_numpy(), fitting(names.categories, _GRAPH_LAUNCH))
    calls = api[["pid", "correlation"]][launched & (api["correlation"] >= 0).to_numpy()].drop_duplicates()
    for table in OPERATIONS if len(calls) else ():
        if table in frames:
            frame = frames[table]
            rows = frame[["pid", "correlation"]].reset_index().merge(calls)["index"].to_numpy()
            nodes = frame.loc[rows].sort_values("start_ns", kind="stable")
            frame.loc[nodes.index, "graph_node"] = nodes.groupby(["pid", "correlation"]).cumcount() + 1


def exchanges(frames: dict[str, pd.DataFrame]) -> pd.DataFrame | None:
    """The collectives whose bytes are told, each around the call that launched it alone; None where none are."""
    kernels, api = frames.get("kernels"), frames.get("api")
    if kernels is None or api is None:
        return None
    told = kernels[(kernels["exchanged"] >= 0) & (kernels["correlation"] >= 0)]
    told = told.drop_duplicates("correlation", keep=False)
    calls = api.drop_duplicates("correlation").set_index("correlation")
    told = told[told["correlation"].isin(calls.index).to_numpy()]
    if not len(told):
        return None
    called = calls.loc[told["correlation"]]
    return pd.DataFrame(
        {
            "start_ns": called["start_ns"].to_numpy(),
            "end_ns": called["end_ns"].to_numpy() + 1,
            "open": False,
            "pid": called["pid"].to_numpy(),
            "tid": called["tid"].to_numpy(),
            "bytes": told["exchanged"].to_numpy(),
            "library": chrome.texts(["NCCL"] * len(told)),
            "name": told["collective"].array,
        }
    )


def give_process(frames: dict[str, pd.DataFrame]) -> None:
    """Operations have no process of their own: that of their launch call, or the only one that calls."""
    if "api" not in frames:
        return
    callers = frames["api"]["pid"].unique()
    by_call = frames["api"].drop_duplicates("correlation").set_index("correlation")["pid"]
    for frame in (frames[table] for table in OPERATIONS if table in frames):
        owner = frame["correlation"].map(by_call).fillna(-1) if len(callers) > 1 else np.full(len(frame), callers[0])
        frame["pid"] = np.asarray(owner, dtype=np.int64)


def give_bytes(frames: dict[str, pd.DataFrame]) -> None:
    """ROCm's copies and memsets say no bytes, but their launch calls do."""
    if "api" not in frames:
        return
    told = frames["api"][frames["api"]["size"] > 0].drop_duplicates("correlation").set_index("correlation")["size"]
    for frame in (frames[table] for table in ("copies", "memsets") if table in frames and len(told)):
        by_call = frame["correlation"].map(told).fillna(0).astype(np.int64)
        frame["bytes"] = frame["bytes"].where(frame["bytes"] > 0, by_call)
