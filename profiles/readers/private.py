"""List the parts of an SQLite recording that hold no private data, for copies that are given to others.

Tables of operations, calls and marks are kept, with their numbers. Two kinds of texts are kept: names of kernels,
calls, ranges and domains, which the measures need, without folders, hosts and users (`private_names`); and, if they
match a strict pattern, names, bus locations and ids of GPUs, versions, and the kinds of copies and memory that nsys's
reports look up. Any other value, also in columns that later versions add, becomes NULL, or an empty text if the column
is NOT NULL.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, Final

from ..model.marks import PLACE_PREFIX
from . import private_names
from .nsys import gpu_metrics, message_sizes
from .nsys import marks as nsys_marks
from .nvprof.marks import MARKER
from .tables.sqlite import Database, plain, quoted

TABLES: Final = re.compile(
    r"CUPTI_ACTIVITY_KIND_(?:KERNEL|CONCURRENT_KERNEL|GRAPH_TRACE|MEMCPY2?|MEMSET|RUNTIME|DRIVER|SYNCHRONIZATION|"
    r"CUDA_EVENT|MARKER|MARKER_DATA|OVERHEAD|DEVICE|CONTEXT|STREAM|UNIFIED_MEMORY_COUNTER)(?:_V\d)?|"
    r"NVTX_EVENTS|NVTX_PAYLOAD_SCHEMA_ENTRIES|ENUM_CUDA_MEMCPY_OPER|ENUM_CUDA_MEM_KIND|StringIds|META_DATA_EXPORT|"
    r"EXPORT_META_DATA|TARGET_INFO_(?:GPU|CUDA_DEVICE|CUDA_STREAM|CUDA_CONTEXT_INFO|SESSION_START_TIME)|"
    r"PROFILER_OVERHEAD|StringTable|Version|GPU_METRICS|TARGET_INFO_GPU_METRICS|GENERIC_EVENTS|"
    r"GENERIC_EVENT_(?:DATA|TYPE_FIELDS)"
)
# Columns with ids of strings to keep. NVTX_EVENTS.textId counts only in rows of marks (`_IF_MARK`).
_NAMES: Final = re.compile(
    r"CUPTI_ACTIVITY_KIND_(?:CONCURRENT_)?KERNEL(?:_V\d)?\.(?:demangledName|shortName|mangledName|name)|"
    r"CUPTI_ACTIVITY_KIND_RUNTIME(?:_V\d)?\.nameId|PROFILER_OVERHEAD\.nameId|NVTX_EVENTS\.textId|"
    r"CUPTI_ACTIVITY_KIND_MARKER\.(?:name|domain)|GENERIC_EVENT_TYPE_FIELDS\.fieldNameId"
)
_GPU: Final = (
    r"(?:NVIDIA|Tesla|Quadro|GeForce|GRID|TITAN|Graphics Device)(?: [A-Za-z0-9.+-]{1,20}(?:/[0-9]{1,4})?){0,6}"
)
# nsys's names of the kinds of copies and memory.
_WAYS: Final = "(?:Host|Device|Array|Peer)-to-(?:Host|Device|Array|Peer)"
_MEMORY: Final = "UNKNOWN|PAGEABLE|PINNED|ARRAY|(?:DEVICE|MANAGED)(?:_STATIC)?"
_KINDS: Final = (
    rf"(?:Unified )?{_WAYS}|Unknown|Pageable|Pinned|Array|(?:Device|Managed)(?: Static)?|"
    rf"CUDA_MEMCPY_KIND_(?:UNKNOWN|(?:UVM_)?[HDAP]TO[HDAP])|CUDA_MEMOPR_MEMORY_KIND_(?:{_MEMORY})"
)
_ABOUT: Final = ("META_DATA_EXPORT", "EXPORT_META_DATA")  # tables of facts about the export itself
_VERSION: Final = r"[0-9]{1,4}(?:\.[0-9]{1,6}){0,4}"
_VERSIONS: Final = r"EXPORT_(?:PRODUCT|SCHEMA)_VERSION(?:_MAJOR|_MINOR|_MICRO)?"
# table.column -> pattern that a text in this column must match as a whole to be kept.
_TEXTS: Final[dict[str, str]] = {
    "TARGET_INFO_GPU.name": _GPU,
    "TARGET_INFO_GPU.busLocation": r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]",
    "TARGET_INFO_GPU.uuid": r"(?:GPU-|MIG-)?[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
    **{f"{table}.name": _VERSIONS for table in _ABOUT},
    **{f"{table}.value": _VERSION for table in _ABOUT},
    "NVTX_PAYLOAD_SCHEMA_ENTRIES.name": "|".join(map(re.escape, (message_sizes.SIZE, message_sizes.COMMUNICATOR))),
    "TARGET_INFO_GPU_METRICS.metricName": gpu_metrics.NAMED,
    **{f"ENUM_CUDA_{table}.{one}": _KINDS for table in ("MEMCPY_OPER", "MEM_KIND") for one in ("name", "label")},
}
_MARKS: Final = ", ".join(map(str, (*nsys_marks.INSTANTS, *nsys_marks.RANGES, nsys_marks.DOMAIN)))
_IF_MARK: Final = f"CASE WHEN eventType IN ({_MARKS}) THEN {{}} END"
_TYPES: Final = re.compile(r"(?:UNSIGNED )?(?:BIG|TINY|SMALL)?INT(?:EGER)?|REAL|TEXT|BLOB", re.IGNORECASE)


def prepare(connection: sqlite3.Connection, database: Database) -> None:
    """Add the SQL functions that `columns` and `rows` use."""
    ((encoding,),) = database.query("PRAGMA encoding")

    def looks_like(value: Any, pattern: str) -> bool:
        return isinstance(value, bytes) and re.fullmatch(pattern, value.decode(encoding, "replace")) is not None

    def without_places(value: bytes) -> str:
        return private_names.without_places(value.decode(encoding, "replace"))

    told = message_sizes.places(database), message_sizes.places(database, message_sizes.COMMUNICATOR)
    connection.create_function("looks_like", 2, looks_like, deterministic=True)
    connection.create_function("without_places", 1, without_places, deterministic=True)
    connection.create_function("size_alone", 2, lambda blob, domain: message_sizes.alone(blob, domain, *told))


def _matches(column: str, pattern: str) -> str:
    pattern = pattern.replace("'", "''")
    return f"typeof({column}) = 'text' AND looks_like(CAST({column} AS BLOB), '{pattern}')"


# For tables that lose some rows, the SQL condition for the rows to keep.
_ROWS: Final = {
    **dict.fromkeys(_ABOUT, f"{_matches('name', _VERSIONS)} AND {_matches('value', _VERSION)}"),
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": f"name IN ('{message_sizes.SIZE}', '{message_sizes.COMMUNICATOR}')",
}


def schema(database: Database, table: str) -> str:
    """A new CREATE TABLE for the table, since the file's own may hold private texts in comments and default values."""
    said = []
    for _, name, kind, required, _, key in database.query(f"PRAGMA table_info({quoted(table)})"):
        words = [quoted(str(name)), str(kind) if _TYPES.fullmatch(str(kind)) else ""]
        said.append(" ".join([*words, "NOT NULL" * bool(required), "PRIMARY KEY" * (key == 1)]))
    return f"CREATE TABLE {quoted(table)} ({', '.join(said)})"


def columns(database: Database, table: str) -> str:
    """SQL for a SELECT: one expression per column, which gives the value to keep, or NULL."""
    found = database.query(f"PRAGMA table_info({quoted(table)})")
    return ", ".join(
        _column(plain(table), str(name), str(kind), bool(required)) for _, name, kind, required, *_ in found
    )


def _column(table: str, name: str, kind: str, required: bool) -> str:
    place, column = f"{table}.{name}", quoted(name)
    number = f"CASE WHEN typeof({column}) IN ('integer', 'real') THEN {column} END"
    if place in ("StringIds.value", "StringTable.value"):
        kept = _name(column)
    elif place == "NVTX_EVENTS.text":
        kept = _IF_MARK.format(_name(column))
    elif place == "NVTX_EVENTS.textId":
        kept = _IF_MARK.format(number)
    elif place == "NVTX_EVENTS.binaryData":
        kept = f"size_alone({column}, domainId)"
    elif place == f"{MARKER}.objectId" or place == "CUPTI_ACTIVITY_KIND_DEVICE.uuid":  # process and thread id: 16 bytes
        kept = f"CASE WHEN typeof({column}) = 'blob' AND length({column}) <= 16 THEN {column} END"
    elif place in _TEXTS:
        kept = f"CASE WHEN {_matches(column, _TEXTS[place])} THEN {column} END"
    else:
        kept = number
    if not required:
        return kept
    return kept if _is_number(kind) else f"COALESCE({kept}, '')"


def _name(column: str) -> str:
    """SQL for the name in a column, without places; NULL for a value that is no text."""
    blob = f"CAST({column} AS BLOB)"
    # GLOB looks at a text up to its first character 0.
    suspect = " OR ".join([f"instr({blob}, X'00')", *(f"{column} GLOB '{one}'" for one in private_names.SUSPECT)])
    told = f"CASE WHEN {suspect} THEN without_places({blob}) ELSE {column} END"
    return f"CASE WHEN typeof({column}) = 'text' THEN {told} END"


def rows(database: Database, table: str) -> str:
    """The SQL condition for the rows to keep: rows that have a number in each NOT NULL column of numbers."""
    found = database.query(f"PRAGMA table_info({quoted(table)})")
    numbers = [quoted(str(name)) for _, name, kind, required, *_ in found if required and _is_number(str(kind))]
    there = [f"typeof({one}) IN ('integer', 'real')" for one in numbers]
    own = gpu_metrics.rows_of_power(database, plain(table)) if plain(table) in gpu_metrics.GENERIC else "TRUE"
    return " AND ".join([_ROWS.get(plain(table), own), _without_places(database, table), *there])


def _without_places(database: Database, table: str) -> str:
    """The SQL condition for marks that do not name the user's functions and files."""
    named = f"GLOB '{PLACE_PREFIX}*'"
    if plain(table) == "NVTX_EVENTS":
        found = [f"COALESCE(text {named}, FALSE)"] if database.has(table, "text") else []
        if database.has(table, "textId") and database.has("StringIds", "id", "value"):
            found.append(f"COALESCE(textId IN (SELECT id FROM source.StringIds WHERE value {named}), FALSE)")
        return f"NOT ({' OR '.join(found)})" if found else "TRUE"
    if plain(table) == MARKER and database.has("StringTable", "_id_", "value"):
        strings = f"SELECT _id_ FROM source.StringTable WHERE value {named}"
        return f"id NOT IN (SELECT id FROM source.{quoted(table)} WHERE name IN ({strings}))"
    return "TRUE"


def _is_number(kind: str) -> bool:
    return "INT" in kind.upper() or kind.upper() == "REAL"


def names(database: Database, stays: Callable[[str], bool]) -> Iterator[str]:
    """SQL queries for the ids of the strings to keep, over tables in the new file. `stays`: True for a table that is
    kept."""
    for table, found in database.tables.items():
        if not stays(table):
            continue
        for column in found:
            if _NAMES.fullmatch(f"{plain(table)}.{column}"):
                yield f"SELECT {quoted(column)} FROM main.{quoted(table)}"
    if database.has("CUPTI_ACTIVITY_KIND_DEVICE", "name") and database.has("StringTable", "_id_", "value"):
        yield f"SELECT _id_ FROM source.StringTable WHERE {_matches('value', _GPU)}"
