"""Read how many bytes collectives were asked to move, from the NVTX ranges of an nsys export.

Horovod's ranges have the bytes of the tensor, or of the group of tensors, as their integer payload
(horovod/common/operations.cc). NCCL's ranges have a binary payload, which is in the export only with
`nsys export --include-blobs=true`; the payload schema that NCCL registers says which field is the message size
(nccl: src/include/nvtx_payload_schemas.h).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..tables.sqlite import Database
from ..tables.strings import categorical

_EVENTS, _ENTRIES = "NVTX_EVENTS", "NVTX_PAYLOAD_SCHEMA_ENTRIES"
SIZE: Final = "Message size [bytes]"
COMMUNICATOR: Final = "NCCL communicator ID"
# Numbers of the payload types with 8 bytes: NVTX_PAYLOAD_ENTRY_TYPE_INT64, _UINT64 and _SIZE
# (nvtx3/nvToolsExtPayload.h).
_WIDE: Final = (17, 18, 22)
# A blob holds the number of payloads; then each payload's schema, length and offset; then the payloads.
_COUNT, _HEADER, _VALUE = struct.Struct("<Q"), struct.Struct("<QQQ"), struct.Struct("<q")
_AT_ONCE: Final = 500

Columns = dict[str, Any]
Places = Mapping[tuple[Any, Any], Any]


def rows(database: Database, marks: Columns, wanted: NDArray[np.bool_]) -> Columns:
    """The table `exchanges` of a Timeline: each row in `marks` that is `wanted` and says how many bytes it moves. The
    column `payload`, if there, is -1 for a range without an integer payload."""
    domains, names = marks["domain"], marks["name"]
    moved, communicator = np.full(len(wanted), -1, np.int64), np.full(len(wanted), -1, np.int64)
    horovod = wanted & _among(names, "Horovod") & (domains == "HorovodOps")
    if "payload" in marks:
        moved[horovod] = marks["payload"][horovod]
    if database.has(_EVENTS, "binaryData", "domainId"):
        nccl = np.flatnonzero(wanted & _among(names, "nccl") & (domains == "NCCL"))
        events = database, marks["row"][nccl], marks["domain_id"][nccl]
        moved[nccl] = _values(*events, places(database))
        communicator[nccl] = _values(*events, places(database, COMMUNICATOR))
    told = np.flatnonzero(moved >= 0)
    return {
        **{column: marks[column][told] for column in ("start_ns", "end_ns", "open", "pid", "tid")},
        "bytes": moved[told],
        "library": categorical(horovod[told].astype(np.int8), ["NCCL", "Horovod"]),
        "name": names[told],
        "communicator": _communicators(communicator[told]),
        "dtype": categorical(np.zeros(len(told), np.int8), [""]),
    }


def _communicators(ids: NDArray[np.int64]) -> pd.Categorical:
    """Communicator ids in hexadecimal, as NCCL prints them; "" for -1 (unknown)."""
    codes, distinct = pd.factorize(ids)
    return categorical(codes, ["" if one == -1 else f"0x{one & 0xFFFFFFFFFFFFFFFF:x}" for one in distinct.tolist()])


def _among(names: pd.Categorical, prefix: str) -> NDArray[np.bool_]:
    fits = np.append(np.asarray(names.categories.str.startswith(prefix), dtype=bool), False)
    found: NDArray[np.bool_] = fits[names.codes]
    return found


def _values(database: Database, row: NDArray[np.int64], domain: NDArray[np.int64], where: Places) -> NDArray[np.int64]:
    """For each event, the value at one of these places in its payloads; -1 if it has none."""
    moved = np.full(len(row), -1, np.int64)
    if not where:
        return moved
    place = {number: at for at, number in enumerate(row.tolist())}
    for first in range(0, len(row), _AT_ONCE):
        some: Sequence[int] = row[first : first + _AT_ONCE].tolist()
        marks = ", ".join("?" * len(some))
        events = database.stored(_EVENTS)
        sql = f"SELECT rowid, binaryData FROM {events} WHERE binaryData IS NOT NULL AND rowid IN ({marks})"
        for number, blob in database.query(sql, some):
            at = place[number]
            moved[at] = _size(blob, int(domain[at]), where)
    return moved


def places(database: Database, name: str = SIZE) -> Places:
    """(domain, schema) -> byte offset, in payloads of that schema, of the entry `name` (by default the message
    size)."""
    if not database.has(_ENTRIES, "domainId", "schemaId", "name", "type", "offset"):
        return {}
    entries = database.stored(_ENTRIES)
    sql = f"SELECT domainId, schemaId, COALESCE(offset, 0) FROM {entries} WHERE name = ? AND type IN {_WIDE}"
    found = database.query(sql, (name,))
    return {(number, schema): offset for number, schema, offset in found if isinstance(offset, int)}


def alone(blob: object, domain: object, where: Places, communicators: Places) -> bytes | None:
    """The blob with the message size and the communicator alone; None if it does not hold the message size."""
    found = _found(blob, domain, where)
    if found is None:
        return None
    schema, offset, size = found
    values = {offset: size}
    if (of := _found(blob, domain, communicators)) is not None and of[0] == schema:
        values[of[1]] = of[2]
    payload = bytearray(max(values) + _VALUE.size)
    for at, value in values.items():
        _VALUE.pack_into(payload, at, value)
    begin = _COUNT.size + _HEADER.size
    return _COUNT.pack(1) + _HEADER.pack(schema, len(payload), begin) + bytes(payload)


def _size(blob: object, domain: int, where: Places) -> int:
    """The message size in bytes in one event's payloads; -1 if none has it."""
    found = _found(blob, domain, where)
    return -1 if found is None else found[2]


def _found(blob: object, domain: object, where: Places) -> tuple[int, int, int] | None:
    """(schema, byte offset in the payload, value there) of the first payload that has one of the places; else None."""
    if not isinstance(blob, bytes):
        return None
    try:
        (count,) = _COUNT.unpack_from(blob)
        for at in range(min(count, len(blob) // _HEADER.size)):
            schema, length, begin = _HEADER.unpack_from(blob, _COUNT.size + at * _HEADER.size)
            offset = where.get((domain, schema))
            if offset is not None and 0 <= offset <= length - _VALUE.size:
                (size,) = _VALUE.unpack_from(blob, begin + offset)
                return int(schema), int(offset), int(size)
    except (struct.error, OverflowError):  # the blob is cut short, or has an unknown layout
        pass
    return None
