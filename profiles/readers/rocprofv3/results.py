"""Read the results.json of AMD's rocprofv3 (`rocprofv3 --runtime-trace --output-format json`).

source/docs/rocprofv3-schema.json of ROCm/rocprofiler-sdk describes it: per process the agents (CPUs and GPUs), the
names of kernels, kinds and operations, and records of kernels, copies, calls and ranges in ns. An operation's record
has the correlation of the HIP call that launched it, or of the HSA call. There are no records of memsets, because
kernels do them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ...model.timeline import Timeline
from ..chrome import events as chrome
from .assembly import MARKER, OF_NO_GPU, WITHOUT_TEXT, copy_of, number_of, timeline
from .document import Agent, Document, Handle, Message, Process, Raws, Record, Symbol

_HEAD: Final = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"rocprofiler-sdk-tool"')


def detects(head: bytes, path: Path) -> bool:
    """True for a JSON object whose first key is the name of rocprofv3's library."""
    return _HEAD.match(head) is not None


def read(path: Path) -> Timeline:
    """Read a results.json. Raises UnreadableRecording for broken JSON, and for recordings without GPU work."""
    return timeline(path, "rocprofv3", [_Told(one) for one in chrome.document(path, Document).processes])


class _Told:
    """The records of one process, and the names of the numbers in them; it has the methods of `assembly.Told`."""

    def __init__(self, process: Process) -> None:
        host = process.metadata.node.hostname
        self.host = host if isinstance(host, str) else None
        self.pid = process.metadata.pid
        self.agents = {one.id.handle: one for one in _each(process.agents, Agent)}
        self.kernels = {one.kernel_id: one.name for one in _each(process.kernel_symbols, Symbol)}
        self.kinds = {at: one.operations for at, one in enumerate(process.strings.buffer_records)}
        self.messages = {one.key: one.value for one in _each(process.strings.marker_api, Message)}
        self.records = process.buffer_records
        self.correlations: set[int | None] = set()  # correlations of the operations read so far
        self.damaged = 0  # number of records that cannot be decoded

    def operation(self, record: Record) -> str:
        """The name of a record's operation: a call, or the direction of a copy; "" if the file has no name for it."""
        if record.kind not in self.kinds:
            return ""
        names, place = self.kinds[record.kind], record.operation
        return str(names[place]) if isinstance(names, list) and place is not None and 0 <= place < len(names) else ""

    def gpu(self, handle: int | None) -> int:
        """The host's number of a GPU; -1 if the handle is unknown or not a GPU's."""
        return number_of(self.agents.get(handle))

    def rows(self, table: str) -> Iterator[dict[str, Any]]:
        """The records of a table, each as column -> value. The value of `dropped` is why the record is left out, or
        ""."""
        if table == "kernels":
            yield from map(self._kernel, self._each(self.records.kernel_dispatch))
        elif table == "copies":
            yield from map(self._copy, self._each(self.records.memory_copy))
        elif table == "marks":
            yield from map(self._mark, self._each(self.records.marker_api))
        else:
            called = list(self._each(self.records.hip_api))
            yield from map(self._call, called)
            # Of HSA's calls only those that launched an operation, because there are many others.
            wanted = self.correlations - {one.correlation_id.internal for one in called}
            for record in self._each(self.records.hsa_api) if wanted else ():
                if record.correlation_id.internal in wanted:
                    yield self._call(record)

    def _each(self, raw: Raws) -> Iterator[Record]:
        for records, damaged in chrome.events(raw, Record):
            self.damaged += damaged
            yield from records

    def _kernel(self, record: Record) -> dict[str, Any]:
        did = record.dispatch_info
        name = self.kernels.get(did.kernel_id)
        return self._operation(record, self.gpu(did.agent_id.handle), did.queue_id) | {"name": name}

    def _copy(self, record: Record) -> dict[str, Any]:
        ends = (self.gpu(one.handle) for one in (record.src_agent_id, record.dst_agent_id))
        size = record.bytes if isinstance(record.bytes, int) else 0
        copied = copy_of(self.operation(record), size, *ends)
        return self._operation(record, copied.pop("device"), Handle()) | copied

    def _operation(self, record: Record, device: int, queue: Handle) -> dict[str, Any]:
        stream = (record.stream_id or queue).handle
        self.correlations.add(record.correlation_id.internal)
        found = {"device": device, "stream": stream, "correlation": record.correlation_id.internal}
        return {**self._timed(record), **found, "dropped": OF_NO_GPU if device < 0 else ""}

    def _call(self, record: Record) -> dict[str, Any]:
        told = {"tid": record.thread_id, "name": self.operation(record)}
        return {**self._timed(record), **told, "correlation": record.correlation_id.internal, "dropped": ""}

    def _mark(self, record: Record) -> dict[str, Any]:
        said = self.messages.get(record.correlation_id.internal)
        is_mark = isinstance(said, str) and MARKER.fullmatch(self.operation(record)) is not None
        told = {"tid": record.thread_id, "name": said, "dropped": "" if is_mark else WITHOUT_TEXT}
        return {**self._timed(record), **told}

    def _timed(self, record: Record) -> dict[str, Any]:
        return {"pid": self.pid, "start_ns": record.start_timestamp, "end_ns": record.end_timestamp}


def _each(raw: Raws, kind: type[Any]) -> Iterator[Any]:
    for events, _ in chrome.events(raw, kind):
        yield from events
