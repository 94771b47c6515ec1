"""Read the SQLite databases of AMD's rocprofv3 (rocpd), its default output format: <pid>_results.db.

In ROCm/rocprofiler-sdk, source/share/rocprofiler-sdk-rocpd/rocpd_tables.sql creates the tables, and
source/lib/output/generateRocpd.cpp fills them. All tables of a process have one suffix. The `stack_id` of an
operation's event is the correlation of the call that launched it; an agent's `extdata` is its record in results.json.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from ...ground.errors import UnreadableRecording
from ...model.timeline import Timeline
from ..tables import sqlite
from ..tables.sqlite import Database, quoted
from ..tables.texts import texts_by_number
from .assembly import GPU, MARKER, OF_NO_GPU, RECORD, WITHOUT_TEXT, copy_of, number_of, timeline
from .document import Agent

_KERNELS: Final = "rocpd_kernel_dispatch"
_OPERATION: Final = ("pid", "start", "end", "stream_id", "event_id")
# The tables and columns that are read. A database without one of them is refused.
_READ: Final = {
    _KERNELS: (*_OPERATION, "agent_id", "kernel_id"),
    "rocpd_memory_copy": (*_OPERATION, "name_id", "src_agent_id", "dst_agent_id", "size"),
    "rocpd_region": ("pid", "tid", "start", "end", "name_id", "event_id"),
    "rocpd_sample": ("track_id", "timestamp", "event_id"),
    "rocpd_track": ("id", "pid", "tid"),
    "rocpd_event": ("id", "category_id", "stack_id", "extdata"),
    "rocpd_string": ("id", "string"),
    "rocpd_info_kernel_symbol": ("id", "display_name"),
    "rocpd_info_agent": ("id", "type", "type_index", "product_name", "name", "extdata"),
    "rocpd_info_node": ("hostname",),
}
_SQL: Final = {
    "kernels": "SELECT o.pid, o.start, o.end, o.stream_id, e.stack_id, o.agent_id, o.kernel_id"
    " FROM {rocpd_kernel_dispatch} o LEFT JOIN {rocpd_event} e ON e.id = o.event_id",
    "copies": "SELECT o.pid, o.start, o.end, o.stream_id, e.stack_id, o.name_id, o.size, o.src_agent_id, o.dst_agent_id"
    " FROM {rocpd_memory_copy} o LEFT JOIN {rocpd_event} e ON e.id = o.event_id",
    # All calls of HIP; of HSA only the calls that launched an operation, because HSA has many others.
    "api": "SELECT r.pid, r.start, r.end, r.tid, e.stack_id, r.name_id FROM {rocpd_region} r"
    " JOIN {rocpd_event} e ON e.id = r.event_id JOIN {rocpd_string} c ON c.id = e.category_id WHERE"
    " c.string LIKE 'HIP%' OR c.string LIKE 'HSA%' AND e.stack_id IN (SELECT l.stack_id FROM {rocpd_event} l WHERE"
    " l.id IN (SELECT event_id FROM {rocpd_kernel_dispatch} UNION ALL SELECT event_id FROM {rocpd_memory_copy}))",
    "marks": "SELECT r.pid, r.start, r.end, r.tid, r.name_id, e.extdata FROM {rocpd_region} r"
    " JOIN {rocpd_event} e ON e.id = r.event_id JOIN {rocpd_string} c ON c.id = e.category_id WHERE"
    " c.string LIKE 'MARKER%' UNION ALL SELECT t.pid, o.timestamp, o.timestamp, t.tid, NULL, e.extdata"
    " FROM {rocpd_sample} o JOIN {rocpd_event} e ON e.id = o.event_id JOIN {rocpd_string} c ON c.id = e.category_id"
    " LEFT JOIN {rocpd_track} t ON t.id = o.track_id WHERE c.string LIKE 'MARKER%'",
    "agents": "SELECT id, type, type_index, product_name, name, extdata FROM {rocpd_info_agent}",
    "hosts": "SELECT hostname FROM {rocpd_info_node}",
}


class _Said(msgspec.Struct):
    message: Any = None


def detects(head: bytes, path: Path) -> bool:
    return head.startswith(sqlite.MAGIC) and any(name.startswith(_KERNELS) for name in sqlite.table_names(path))


def read(path: Path) -> Timeline:
    """Read a database. Raises UnreadableRecording for an unknown schema, and for a recording without GPU work."""
    with closing(Database(path)) as database:
        return _timeline(database)


def _timeline(database: Database) -> Timeline:
    ends = sorted(name.removeprefix(_KERNELS) for name in database.tables if name.startswith(_KERNELS))
    for end in ends:
        for table, columns in _READ.items():
            if not database.has(table + end, *columns):
                problem = f"a database of rocprofv3 (rocpd) with a schema that this version does not know ({table})"
                raise UnreadableRecording(database.path, problem, RECORD)
    return timeline(database.path, "rocpd", [_Told(database, end) for end in ends])


class _Told:
    """The records of one process, from the tables whose names end in `end`; it has the methods of `assembly.Told`."""

    damaged = 0

    def __init__(self, database: Database, end: str) -> None:
        self._database, self._end = database, end
        hosts = {host for (host,) in self._query("hosts") if isinstance(host, str)}
        self.host = hosts.pop() if len(hosts) == 1 else None
        self.agents = {row[0]: _agent(*row[1:]) for row in self._query("agents")}
        self._strings = self._texts("rocpd_string", "string")
        self._kernels = self._texts("rocpd_info_kernel_symbol", "display_name")

    def _query(self, what: str) -> list[tuple[Any, ...]]:
        return self._database.query(_SQL[what].format_map({table: quoted(table + self._end) for table in _READ}))

    def _texts(self, table: str, column: str) -> dict[Any, str]:
        """id -> text. Each name is in the file once, however many rows refer to it."""
        numbers, found = texts_by_number(self._database, table + self._end, "id", column)
        return dict(zip(numbers.tolist(), (one.decode("utf-8", "replace") for one in found.to_pylist()), strict=True))

    def rows(self, table: str) -> Iterator[dict[str, Any]]:
        return map(
            {"kernels": self._kernel, "copies": self._copy, "api": self._call, "marks": self._mark}[table],
            self._query(table),
        )

    def _kernel(self, row: tuple[Any, ...]) -> dict[str, Any]:
        return _operation(row, number_of(self.agents.get(row[5]))) | {"name": self._kernels.get(row[6])}

    def _copy(self, row: tuple[Any, ...]) -> dict[str, Any]:
        size = row[6] if isinstance(row[6], int) else 0
        copied = copy_of(self._strings.get(row[5], ""), size, *(number_of(self.agents.get(end)) for end in row[7:]))
        return _operation(row, copied.pop("device")) | copied

    def _call(self, row: tuple[Any, ...]) -> dict[str, Any]:
        told = dict(zip(("pid", "start_ns", "end_ns", "tid", "correlation"), row, strict=False))
        return told | {"name": self._strings.get(row[5]), "dropped": ""}

    def _mark(self, row: tuple[Any, ...]) -> dict[str, Any]:
        """A mark from its row: a range, or an instant, since rows of `rocpd_sample` have no call and start and end
        at once."""
        *told, call, extra = row
        said = _decoded(extra, _Said)
        text = said.message if said else None
        is_mark = isinstance(text, str) and (call is None or MARKER.fullmatch(self._strings.get(call, "")) is not None)
        named = dict(zip(("pid", "start_ns", "end_ns", "tid"), told, strict=True))
        return named | {"name": text, "dropped": "" if is_mark else WITHOUT_TEXT}


def _operation(row: tuple[Any, ...], device: int) -> dict[str, Any]:
    told = dict(zip(("pid", "start_ns", "end_ns", "stream", "correlation"), row, strict=False))
    return told | {"device": device, "dropped": OF_NO_GPU if device < 0 else ""}


def _agent(kind: Any, number: Any, product: Any, name: Any, extra: Any) -> Agent:
    """An agent from its row. `extdata` adds facts that have no column (uuid, PCI domain and location)."""
    told = _decoded(extra, Agent) or Agent()
    told.type = GPU if kind == "GPU" else None
    told.number = number if isinstance(number, int) else None
    told.product_name, told.name = product, name
    return told


def _decoded(text: Any, kind: type[Any]) -> Any:
    """The JSON text decoded as `kind`; None if it is not JSON of this type."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, TypeError, UnicodeError, RecursionError):
        return None
