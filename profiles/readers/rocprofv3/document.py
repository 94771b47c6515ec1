"""The parts of rocprofv3's results.json that are read. A record with a value of another type counts as damaged."""

from __future__ import annotations

from typing import Any

import msgspec

Raws = list[msgspec.Raw]


class Handle(msgspec.Struct, gc=False, frozen=True):
    handle: int | None = None


class Correlation(msgspec.Struct, gc=False, frozen=True):
    internal: int | None = None


class Dispatch(msgspec.Struct, gc=False, frozen=True):
    agent_id: Handle = Handle()
    queue_id: Handle = Handle()
    kernel_id: int | None = None


class Record(msgspec.Struct, gc=False):
    kind: int | None = None
    operation: int | None = None
    thread_id: Any = None
    correlation_id: Correlation = Correlation()
    start_timestamp: Any = None
    end_timestamp: Any = None
    dispatch_info: Dispatch = Dispatch()
    stream_id: Handle | None = None
    src_agent_id: Handle = Handle()
    dst_agent_id: Handle = Handle()
    bytes: Any = None


class Symbol(msgspec.Struct, gc=False):
    kernel_id: int | None = None
    name: Any = msgspec.field(name="formatted_kernel_name", default=None)


class Message(msgspec.Struct, gc=False):
    key: int | None = None
    value: Any = None


class Uuid(msgspec.Struct, frozen=True):
    bytes: Any = None


class Agent(msgspec.Struct):
    id: Handle = Handle()
    type: Any = None
    number: int | None = msgspec.field(name="logical_node_type_id", default=None)  # number among the agents of its type
    product_name: Any = None
    name: Any = None
    domain: int | None = None
    location_id: int | None = None
    uuid: Uuid = Uuid()


class Operations(msgspec.Struct):
    kind: Any = None
    operations: Any = None


class Strings(msgspec.Struct, frozen=True):
    buffer_records: list[Operations] = []
    marker_api: Raws = []


class Records(msgspec.Struct, frozen=True):
    kernel_dispatch: Raws = []
    memory_copy: Raws = []
    hip_api: Raws = []
    hsa_api: Raws = []
    marker_api: Raws = []


class Node(msgspec.Struct, frozen=True):
    hostname: Any = None


class Metadata(msgspec.Struct, frozen=True):
    pid: Any = None
    node: Node = Node()


class Process(msgspec.Struct):
    metadata: Metadata = Metadata()
    agents: Raws = []
    strings: Strings = Strings()
    kernel_symbols: Raws = []
    buffer_records: Records = Records()


class Document(msgspec.Struct):
    processes: list[Process] = msgspec.field(name="rocprofiler-sdk-tool")
