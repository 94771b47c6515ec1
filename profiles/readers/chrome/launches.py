"""Complete the operations of a PyTorch trace from the calls that launched them. `frames`: table name -> rows."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from ...model.names import fitting, rows_of
from . import events as chrome

OPERATIONS: Final = ("kernels", "copies", "memsets", "syncs")
_CALL: Final = ["pid", "correlation"]
_ROUNDED_NS: Final = 1_000  # times may be rounded to whole microseconds
_EARLY_NS: Final = 1_000_000  # a kernel that starts so long before a call was launched by another process
_FEW: Final = 0.05  # this share of the kernels may be out of order
_GRAPH_LAUNCH: Final = r"^(?:cu(?:da)?|hip)GraphLaunch"


def number_graph_nodes(frames: dict[str, pd.DataFrame]) -> None:
    """Number the operations of each launch of a CUDA graph from 1, in order of start, in the column `graph_node`. These
    operations have the correlation of the launch call."""
    api = frames.get("api")
    if api is None:
        return
    names = api["name"].cat
    launched = rows_of(names.codes.to_numpy(), fitting(names.categories, _GRAPH_LAUNCH))
    calls = api[_CALL][launched & (api["correlation"] >= 0).to_numpy()].drop_duplicates()
    for table in OPERATIONS if len(calls) else ():
        if table in frames:
            frame = frames[table]
            rows = frame[_CALL].reset_index().merge(calls)["index"].to_numpy()
            nodes = frame.loc[rows].sort_values("start_ns", kind="stable")
            frame.loc[nodes.index, "graph_node"] = nodes.groupby(_CALL).cumcount() + 1


def exchanges(frames: dict[str, pd.DataFrame]) -> pd.DataFrame | None:
    """The collectives with known bytes, each at the time of the call that launched its kernel and no other; None if
    none."""
    kernels, api = frames.get("kernels"), frames.get("api")
    if kernels is None or api is None:
        return None
    told = kernels[(kernels["exchanged"] >= 0) & (kernels["correlation"] >= 0)]
    told = told.drop_duplicates(_CALL, keep=False)
    calls = api.drop_duplicates(_CALL)[[*_CALL, "start_ns", "end_ns", "tid"]]
    told = told[[*_CALL, "exchanged", "collective", "communicator", "dtype"]].merge(calls)
    if not len(told):
        return None
    return pd.DataFrame(
        {
            "start_ns": told["start_ns"].to_numpy(),
            "end_ns": told["end_ns"].to_numpy() + 1,
            "open": False,
            "pid": told["pid"].to_numpy(),
            "tid": told["tid"].to_numpy(),
            "bytes": told["exchanged"].to_numpy(),
            "library": chrome.texts(["NCCL"] * len(told)),
            "name": told["collective"].array,
            "communicator": told["communicator"].array,
            "dtype": told["dtype"].array,
        }
    )


def give_process(frames: dict[str, pd.DataFrame]) -> bool:
    """Give each operation the process of its launch call, or the only process that has calls.

    False if the file holds several processes and their operations cannot be told apart. Several processes use the
    same correlation numbers: then the first call in the file gets the first operation (or nodes of a graph) with
    this number, and so on, because merged files hold one process after the other, or are in order of time.
    """
    if "api" not in frames:
        return True
    callers = frames["api"]["pid"].unique()
    if len(callers) == 1:
        for frame in (frames[table] for table in OPERATIONS if table in frames):
            frame["pid"] = np.full(len(frame), callers[0], dtype=np.int64)
        return True
    calls = frames["api"][["correlation", "pid"]].drop_duplicates()
    calls = calls[(calls["correlation"] >= 0).to_numpy()]
    calls = calls.assign(nth=calls.groupby("correlation").cumcount())
    of_one = calls["correlation"].value_counts()
    for frame in (frames[table] for table in OPERATIONS if table in frames):
        same = frame.groupby("correlation")["correlation"]
        called = frame["correlation"].map(of_one).fillna(0).to_numpy(np.int64)
        rows = same.transform("size").to_numpy()
        nth = same.cumcount().to_numpy() * np.minimum(called, rows) // rows
        found = pd.DataFrame({"correlation": frame["correlation"].to_numpy(), "nth": nth}).merge(calls, how="left")
        frame["pid"] = found["pid"].fillna(-1).to_numpy(np.int64)
        _by_device(frame, called > rows)
    return "kernels" not in frames or (_in_turn(frames["kernels"]) and _called_first(frames["kernels"], frames["api"]))


def _by_device(frame: pd.DataFrame, uncertain: np.ndarray) -> None:
    """Give each operation whose process is uncertain the process of all certain operations of its device, if they
    have one."""
    of_device = frame[~uncertain].groupby("device")["pid"]
    owner = of_device.first()[of_device.nunique() == 1]
    told = frame["device"].map(owner)
    rows = uncertain & told.notna().to_numpy()
    frame.loc[rows, "pid"] = told[rows].astype(np.int64)


def _in_turn(kernels: pd.DataFrame) -> bool:
    """True if at most 5 % of the kernels start before the previous kernel of their stream has ended."""
    streams = ["pid", "device", "context", "stream"]
    ordered = kernels[[*streams, "start_ns", "end_ns"]].sort_values([*streams, "start_ns"], kind="stable")
    same = (ordered[streams].to_numpy()[1:] == ordered[streams].to_numpy()[:-1]).all(axis=1)
    early = ordered["start_ns"].to_numpy()[1:] < ordered["end_ns"].to_numpy()[:-1] - _ROUNDED_NS
    return bool((early & same).sum() <= _FEW * len(kernels))


def _called_first(kernels: pd.DataFrame, api: pd.DataFrame) -> bool:
    """True if at most 5 % of the kernels start more than 1 ms before their launch calls."""
    calls = api.drop_duplicates(_CALL)[[*_CALL, "start_ns"]]
    both = kernels[[*_CALL, "start_ns"]].merge(calls, on=_CALL, suffixes=("", "_of_call"))
    return bool((both["start_ns"] < both["start_ns_of_call"] - _EARLY_NS).sum() <= _FEW * len(kernels))


def give_bytes(frames: dict[str, pd.DataFrame]) -> None:
    """Take the bytes of ROCm's copies and memsets from their launch calls, because only these have them."""
    if "api" not in frames:
        return
    told = frames["api"][frames["api"]["size"] > 0].drop_duplicates("correlation").set_index("correlation")["size"]
    for frame in (frames[table] for table in ("copies", "memsets") if table in frames and len(told)):
        by_call = frame["correlation"].map(told).fillna(0).astype(np.int64)
        frame["bytes"] = frame["bytes"].where(frame["bytes"] > 0, by_call)
