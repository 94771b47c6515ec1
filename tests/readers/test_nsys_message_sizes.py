"""Bytes that collectives moved, from NVTX payloads: beside plain struct decoding of a real file, and of built ones."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from profiles import analyse, readers
from profiles.model.collectives import Collectives
from profiles.model.timeline import Timeline

from ..recordings import DATA, SHARED, needs_shared, rows
from .test_nsys_sqlite import CUPTI, PID, build, kernel, strings

PINNED = DATA / "resnet50-4gpu-pinned.rank0.sqlite.xz"
# ResNet-50's trainable parameters as Keras counts them; two bytes each in float16.
GRADIENTS = 25_583_592 * 2


def told(timeline: Timeline, library: str) -> list[tuple[int, int, int, str]]:
    found = timeline.exchanges[timeline.exchanges["library"] == library]
    return sorted(zip(found["start_ns"], found["end_ns"], found["bytes"], found["name"].astype(str), strict=True))


def test_nccls_message_sizes_are_those_of_a_plain_decoding():
    """Real: `nsys export --include-blobs=true` of one rank of four, gradients as float16."""
    ((schema, offset),) = rows(
        PINNED,
        "SELECT e.schemaId, e.offset FROM NVTX_PAYLOAD_SCHEMA_ENTRIES e JOIN NVTX_PAYLOAD_SCHEMA_ENTRIES r"
        " ON r.schemaId = e.schemaId AND r.name = 'Reduction operation' WHERE e.name = 'Message size [bytes]'",
    )
    expected = []
    calls = 'SELECT start, "end", binaryData FROM NVTX_EVENTS n JOIN StringIds s ON s.id = n.textId WHERE s.value = '
    for start, end, blob in rows(PINNED, f"{calls}'ncclAllReduce'"):
        count, its_schema, length, begin = struct.unpack_from("<4Q", blob)
        assert (count, its_schema, len(blob)) == (1, schema, begin + length)
        (size,) = struct.unpack_from("<Q", blob, begin + offset)
        expected.append((start, end, size, "ncclAllReduce"))
    assert told(readers.read(PINNED), "NCCL") == sorted(expected)
    assert len(expected) == 7 and {size for _, _, size, _ in expected} == {GRADIENTS}


def test_nccls_communicators_are_those_of_a_plain_decoding():
    calls = "SELECT start, binaryData FROM NVTX_EVENTS n JOIN StringIds s ON s.id = n.textId WHERE s.value = "
    expected = {}
    for start, blob in rows(PINNED, f"{calls}'ncclAllReduce'"):
        (begin,) = struct.unpack_from("<Q", blob, 24)
        expected[start] = hex(struct.unpack_from("<Q", blob, begin)[0])
    found = readers.read(PINNED).exchanges
    nccl = found[found["library"] == "NCCL"]
    assert dict(zip(nccl["start_ns"], nccl["communicator"].astype(str), strict=True)) == expected and len(expected) == 7
    assert set(found[found["library"] == "Horovod"]["communicator"].astype(str)) == {""}
    (size,) = analyse([PINNED]).measures.gpus[0].collectives.by_size
    assert size.communicator in expected.values() and size.bytes == GRADIENTS


def test_horovods_sizes_are_its_ranges_integers():
    expected = rows(
        PINNED,
        'SELECT n.start, n."end", int64Value, s.value FROM NVTX_EVENTS n JOIN StringIds s ON s.id = n.textId'
        " WHERE s.value LIKE 'Horovod%' AND eventType = 60 ORDER BY n.start",
    )
    assert told(readers.read(PINNED), "Horovod") == expected
    assert {size for _, _, size, _ in expected} == {GRADIENTS}


@needs_shared
@pytest.mark.parametrize("feed", ["device", "prefetch"])
def test_an_export_without_blobs_has_horovods_sizes_only(feed: str):
    read = readers.read(SHARED / "h200" / f"resnet50-2gpu-{feed}.rank0.sqlite.xz")
    assert not told(read, "NCCL")
    assert [size for _, _, size, _ in told(read, "Horovod")] == [2 * GRADIENTS] * 12  # float32


# ---- built

SCHEMA = 77
DOMAIN = {"eventType": 75, "start": 0, "end": None}


def event(text: str, payload: int | None = None, blob: Any = None, **more: Any) -> dict[str, Any]:
    row = {"eventType": 59, "start": 10, "end": 20, "globalTid": PID | 50 << 24 | 51, "text": text, "domainId": 5}
    return row | {"int64Value": payload, "binaryData": blob} | more


def payloads(*parts: tuple[int, bytes]) -> bytes:
    """As nsys writes them: how many, of each its schema, length and place, then their bytes."""
    head, body = struct.pack("<Q", len(parts)), b""
    begin = 8 + 24 * len(parts)
    for schema, part in parts:
        head += struct.pack("<3Q", schema, len(part), begin + len(body))
        body += part
    return head + body


def made(path: Path, *events: dict[str, Any], domain: str = "NCCL", type_of: int = 22) -> Timeline:
    entry = {"domainId": 5, "schemaId": SCHEMA, "idx": 1, "type": type_of, "name": "Message size [bytes]", "offset": 8}
    return readers.read(
        build(
            path,
            {
                "StringIds": strings("k"),
                CUPTI + "KERNEL": [kernel(10, 20)],
                "NVTX_EVENTS": [event(domain, **DOMAIN), *events],
                "NVTX_PAYLOAD_SCHEMA_ENTRIES": [entry],
            },
        )
    )


def sized(size: int) -> bytes:
    return struct.pack("<QQ", 1234, size)


@pytest.mark.parametrize(
    ("blob", "size"),
    [
        (payloads((SCHEMA, sized(4096))), 4096),
        (payloads((1, b"other"), (SCHEMA, sized(8))), 8),
        (payloads((SCHEMA, sized(0))), 0),
        (payloads((SCHEMA + 1, sized(8))), None),
        (payloads((SCHEMA, b"short")), None),
        (payloads((SCHEMA, sized(8)))[:-1], None),
        (struct.pack("<4Q", 1 << 60, SCHEMA, 16, 1 << 62), None),
        (b"", None),
        (b"\x01", None),
        ("text", None),
        (7, None),
        (None, None),
    ],
)
def test_a_payload_that_tells_no_size_gives_none(tmp_path: Path, blob: Any, size: int | None):
    read = made(tmp_path / "a", event("ncclAllReduce", blob=blob))
    assert [found[2] for found in told(read, "NCCL")] == ([] if size is None else [size])


def test_only_nccl_and_horovod_are_asked(tmp_path: Path):
    blob = payloads((SCHEMA, sized(4096)))
    other = made(tmp_path / "a", event("ncclAllReduce", payload=5, blob=blob), domain="mine")
    assert not len(other.exchanges)
    narrow = made(tmp_path / "b", event("ncclAllReduce", blob=blob), type_of=16)
    assert not len(narrow.exchanges)
    horovod = made(
        tmp_path / "c",
        event("HorovodAllreduce", payload=5),
        event("HorovodAllreduce", payload=6, end=None),
        event("HorovodAllreduce"),
        event("TheirAllreduce", payload=5),
        domain="HorovodOps",
    )
    assert told(horovod, "Horovod") == [(10, 10, 6, "HorovodAllreduce"), (10, 20, 5, "HorovodAllreduce")]
    assert horovod.exchanges["open"].tolist() == [False, True]


def traced(path: Path, each: list[tuple[str, str, str, str, int]]) -> Collectives:
    """Collectives as PyTorch's profiler tells them: kernel, kind, group, type and length in us of each, a million
    numbers each."""
    events: list[dict[str, Any]] = []
    for number, (name, kind, group, dtype, lasts) in enumerate(each):
        start, stream = 1_000 * number, 7 + int(group)
        called = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": start, "dur": 5}
        args = {"device": 0, "context": 1, "stream": stream, "correlation": number, "Process Group Name": group}
        args |= {"Collective name": kind, "In msg nelems": 1_000_000, "dtype": dtype}
        kernel_of = {"cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": start + 10, "dur": lasts}
        events += [{"ph": "X", **called, "args": {"correlation": number}}, {"ph": "X", **kernel_of, "args": args}]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return analyse([path], window="capture").measures.gpus[0].collectives


def test_collectives_of_two_process_groups_have_rates_of_their_own(tmp_path: Path) -> None:
    """Gradients of one group, and as large activations of another that take longer."""
    kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    calls = [(kernel, "allreduce", str(at % 2), "Float", 400 * (1 + at % 2)) for at in range(8)]
    found = traced(tmp_path / "trace.json", calls)
    each = {one.communicator: (one.count, one.bytes, one.lasted_ns, one.gb_per_s) for one in found.by_size}
    assert each == {"0": (4, 4_000_000, 1_600_000, 10.0), "1": (4, 4_000_000, 3_200_000, 5.0)}


def test_a_kernel_that_runs_any_collective_is_of_the_kind_and_type_that_its_call_tells(tmp_path: Path) -> None:
    """RCCL's, under FSDP with a norm in float32."""
    calls = [("_allgather_base", "BFloat16")] * 4 + [("_reduce_scatter_base", "BFloat16")] * 2
    calls += [("allreduce", "Float"), ("broadcast", "Long")]
    kernel = "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"
    found = traced(tmp_path / "trace.json", [(kernel, kind, "0", dtype, 100) for kind, dtype in calls])
    assert {kind: (one["count"], one["bytes"], one["dtype"]) for kind, one in found.kinds.items()} == {
        "all_gather": (4, 8_000_000, "bfloat16"),
        "reduce_scatter": (2, 4_000_000, "bfloat16"),
        "all_reduce": (1, 4_000_000, "float"),
        "broadcast": (1, 8_000_000, "long"),
    }
