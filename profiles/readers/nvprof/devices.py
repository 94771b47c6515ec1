"""The GPUs of nvprof's files, and the GPU of each CUDA context."""

from __future__ import annotations

from typing import Final

from ..tables.gathering import Device, multiprocessors
from ..tables.sqlite import Database, is_device

_CUPTI: Final = "CUPTI_ACTIVITY_KIND_"


def of_contexts(database: Database) -> dict[int, int]:
    """The device number of each CUDA context."""
    contexts = _CUPTI + "CONTEXT"
    if not database.has(contexts, "contextId", "deviceId"):
        return {}
    rows = database.query(f"SELECT contextId, deviceId FROM {contexts}")
    return {context: device for context, device in rows if type(context) is int and is_device(device)}


def listed(database: Database) -> dict[int, Device]:
    """Each GPU that the file lists, by number; the file has no bus ids."""
    gpus = _CUPTI + "DEVICE"
    if not database.has(gpus, "id", "name"):
        return {}
    uuid = "hex(uuid)" if database.has(gpus, "uuid") else "''"
    sms = "d.numMultiprocessors" if database.has(gpus, "numMultiprocessors") else "0"
    rows = database.query(
        f"SELECT d.id, {uuid}, s.value, {sms} FROM {gpus} d LEFT JOIN StringTable s ON s._id_ = d.name"
    )
    return {
        number: Device(_uuid(raw), "", str(name or ""), multiprocessors(count))
        for number, raw, name, count in rows
        if is_device(number)
    }


def _uuid(text: str) -> str:
    if len(text) != 32 or not text.strip("0"):
        return ""
    text = text.lower()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
