"""The GPUs of nvprof's files, and which contexts are on which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pandas as pd

from ..tables.sqlite import Database, is_device

_CUPTI: Final = "CUPTI_ACTIVITY_KIND_"


def of_contexts(database: Database) -> dict[int, int]:
    """The device of each context."""
    contexts = _CUPTI + "CONTEXT"
    if not database.has(contexts, "contextId", "deviceId"):
        return {}
    rows = database.query(f"SELECT contextId, deviceId FROM {contexts}")
    return {context: device for context, device in rows if type(context) is int and is_device(device)}


def table(database: Database, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The table `devices` of a Timeline: those listed, and those used but not listed."""
    gpus = _CUPTI + "DEVICE"
    listed: dict[int, tuple[str, str, str]] = {}
    if database.has(gpus, "id", "name"):
        uuid = "hex(uuid)" if database.has(gpus, "uuid") else "''"
        sql = f"SELECT d.id, {uuid}, s.value FROM {gpus} d LEFT JOIN StringTable s ON s._id_ = d.name"
        rows = database.query(sql)
        listed = {number: (_uuid(raw), "", str(name or "")) for number, raw, name in rows if is_device(number)}
    for name in ("kernels", "copies", "memsets"):
        for device in pd.unique(tables[name]["device"]) if name in tables else ():
            listed.setdefault(int(device), ("", "", ""))
    told = [(device, *listed[device]) for device in sorted(listed)]
    return pd.DataFrame(told, columns=["device", "uuid", "bus_id", "name"])


def _uuid(text: str) -> str:
    if len(text) != 32 or not text.strip("0"):
        return ""
    text = text.lower()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
