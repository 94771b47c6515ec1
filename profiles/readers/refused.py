"""Recognise files that are often mistaken for recordings; say what each is, and which file to give instead."""

from __future__ import annotations

import codecs
import re
from pathlib import Path
from typing import Final

from ..runs import written
from .tables import sqlite

_READ = (
    "give a recording of nsys, nvprof, rocprof, Horovod or the profiler of TensorFlow, JAX or PyTorch "
    "(docs/reference/files.md lists all formats)"
)


# The start of a Perfetto trace that `ringscope timeline --perfetto` wrote (views/perfetto.py).
_DRAWN: Final = re.compile(rb'\A\{"displayTimeUnit":"ns","otherData":\{"origin":"the first (?:recording|operation)')
_PACKET: Final = re.compile(rb"\n([\x80-\xff]{0,4}[\x00-\x7f])")  # tag and length of a packet in a Perfetto trace
# the same, and zlib's header in a packet `compressed_packets`, as PyTorch's writer is to make them
_COMPRESSED: Final = re.compile(_PACKET.pattern + rb"\x92\x03[\x80-\xff]{0,4}[\x00-\x7f]\x78[\x01\x5e\x9c\xda]")
_OF_PACKETS: Final = (8, 10, 60)  # timestamp, sequence and track descriptor (perfetto/trace/trace_packet.proto)
_ROCPROF = (
    "record with `rocprofv3 --runtime-trace --output-format json` (older: `rocprof --hip-trace`) and give its "
    "results.json, or give PyTorch's trace or JAX's .xplane.pb"
)
_PYTORCH = "give the trace that prof.export_chrome_trace or tensorboard_trace_handler wrote"
_BESIDE_NCCL = "record the same run with `nsys profile -t cuda,nvtx` or PyTorch's profiler, and give that"
# The start of a log of NCCL's Inspector (inspector_json.cc of github.com/NVIDIA/nccl), read by inspector_log.py.
_INSPECTOR: Final = re.compile(
    rb"\A(?:\xef\xbb\xbf)?\s*\{.{0,400}\"(?:inspector_output_format_version|coll_perf|p2p_perf)\"", re.DOTALL
)
# The start of what the example of a profiler plugin writes (print_event.cc there), read by plugin_log.py.
_PLUGIN: Final = re.compile(
    rb"\A(?:\xef\xbb\xbf)?\s*\[\s*\{.{0,400}"
    rb"\"cat\"\s*:\s*\"(?:GROUP|COLL|P2P|PROXY|NET|KERNEL_CH|KERNEL_LAUNCH|INIT)(?:_API)?\"",
    re.DOTALL,
)
NCCL_LOG: Final = (
    "a log of NCCL's Inspector or profiler plugin, which holds the speed of each collective and no timeline of a GPU",
    "give the logs of all ranks, without other files, to `ringscope timeline` or `ringscope gate`",
)
_KERNELS_ALONE: Final = ("rocprof's table of kernels, which holds neither copies nor calls", _ROCPROF)
# Well-known files that are no recordings: (pattern in their first bytes, (problem, remedy)).
_SIGNS: Final = tuple(
    (re.compile(sign, re.DOTALL), said)
    for sign, said in (
        (
            rb"\A\s*\{.{0,400}\"schema\"\s*:\s*\"[^\"]*chakra",
            ("an execution trace of PyTorch's (Chakra), which holds operators and no times of a GPU", _PYTORCH),
        ),
        (
            rb"\A\s*\{\s*\"traceEvents\"\s*:\s*\[\s*\{[^{}]{0,200}\{\s*\"name\"\s*:\s*\"Allocators\"",
            (
                "a timeline of TensorFlow 1's RunMetadata, which holds operators and no launch calls of the host",
                "record with `nsys profile -t cuda,nvtx`, or with TensorFlow 2's profiler and give its .xplane.pb",
            ),
        ),
        (
            rb"(?:\A|\n)\"?Index\"?,\"?KernelName\"?,\"?gpu-id\"?,",
            _KERNELS_ALONE,
        ),
        (
            rb"\A\s*\"(?:Kind\",\"(?:Agent_Id|Direction)|Domain\",\"Function\",\"Process_Id)\"",
            ("one of the tables of rocprofv3, each of which holds only kernels, copies or calls", _ROCPROF),
        ),
        (
            rb"\A\s*(?:Domain,Function,Start_Timestamp|Dispatch_ID,GPU_ID,Queue_ID),",
            ("one of the tables of rocprofv2, each of which holds only kernels or calls", _ROCPROF),
        ),
        (
            rb"(?:\A|\n)\"Name\",\"Calls\",\"TotalDurationNs\",",
            ("rocprof's totals by name, which do not say when anything ran", _ROCPROF),
        ),
        (
            rb"\A\n(?:.{0,3}\xef\xbf\xbd).{0,60}/(?:device:[A-Z]{3}:|host:CPU)",
            (
                "an .xplane.pb (TensorFlow's or JAX's profile) that was copied as text, which destroyed its bytes",
                "copy the file again as binary, or record again",
            ),
        ),
        (
            rb"\A\s*\[\s*\{\}\s*,\s*\{\"name\": ?\"process_name\".{0,60}\"GPU\d",
            ("a trace for a viewer, which rocmProfileData's rpd2tracing.py made of an .rpd", _ROCPROF),
        ),
        (
            rb"(?:\A|\n)==PROF== |(?:\A|\n)\"ID\",\"Process ID\",",
            (
                "metrics of Nsight Compute, which runs kernels one by one: no timeline",
                "record with `nsys profile -t cuda,nvtx`",
            ),
        ),
        (
            rb"\A\x80[\x02-\x05].{0,200}(?:segments|device_traces|segment_pool_id|allocator_settings)",
            ("a memory snapshot of PyTorch's, which holds allocations and no timeline", _PYTORCH),
        ),
        (
            # The export begins with its events, one per line, or without events with its strings.
            rb"\A\s*\{(?:\"[Tt]ype\":\"?\w+\"?,)?\"\w+Event\":\{|\A\s*\{\"data\":\[\"\[Unknown\]\""
            rb"|\A\s*\{\"type\":\"(?:String|ThreadName)\",\"",
            (
                "output of `nsys export -t json`, which ringscope does not read",
                "give the .nsys-rep that was exported, or the output of `nsys export -t sqlite`",
            ),
        ),
        (
            rb"\[\d+/\d+\] Executing '[a-z_]+' stats report"
            rb"|\*\* [^\n]{1,80}\((?:cuda_|nvtx_|osrt_|mpi_|um_|cudaapisum|gpukernsum|gpumem)[a-z_]*\)",
            (
                "the output of `nsys stats` (or `nsys profile --stats=true`), which holds sums and no timeline",
                "give the .nsys-rep or the .sqlite from which it was made",
            ),
        ),
        (
            rb"(?:\A|\n)(?:NCCL version \d|\S+:\d+:\d+ \[\d+\] NCCL (?:INFO|WARN|TRACE) )",
            ("a log of NCCL's (NCCL_DEBUG), which has no times", _BESIDE_NCCL),
        ),
        (rb"\APK\x03\x04", ("a zip archive", "unpack it with `unzip`, and give the recordings in it")),
        (
            rb"(?:^|\n)=+ ?(?:\d+= )?CPU profiling result",
            (
                "a table of nvprof's CPU profile, without GPU operations",
                "record again with `nvprof -o FILE`, without --cpu-profiling on",
            ),
        ),
    )
)


def stranger(head: bytes) -> tuple[str, str] | None:
    """(problem, remedy) if these are the first bytes of a well-known file that is no recording; else None."""
    if head.startswith(sqlite.MAGIC):
        return None  # most SQLite files are recordings, and `_database` tells more about the others
    return next((said for sign, said in _SIGNS if sign.search(head)), None)


def is_inspector_log(head: bytes) -> bool:
    """True if the file begins like a log of NCCL's Inspector."""
    return _INSPECTOR.match(head) is not None


def is_plugin_log(head: bytes) -> bool:
    """True if the file begins like what the example of NCCL's profiler plugins writes."""
    return _PLUGIN.match(head) is not None


def is_drawn(head: bytes) -> bool:
    """True for a Perfetto trace that ringscope wrote. Read as a recording, its ledger rows would count as a GPU."""
    return _DRAWN.match(head) is not None


def recognised(head: bytes, path: Path) -> tuple[str, str] | None:
    """(problem, remedy) for a Git LFS pointer, or for a profiler's file that no reader reads; None otherwise."""
    if head.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, not the file itself", "fetch it with `git lfs pull`"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # readers take tables of nvprof and nsys in UTF-16
        return "text in UTF-16", "make it UTF-8 with `iconv -f UTF-16 -t UTF-8`"
    if head.startswith(sqlite.MAGIC):
        return _database(path)
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<") and path.suffix in (".nvvp", ".nvprof", ".prof"):
        return (
            "XML: a session that the Visual Profiler saved, not a recording",
            "give the file that `nvprof -o FILE` wrote, from which the session was imported",
        )
    if head.startswith(b"\n") and (path.suffix in (".pftrace", ".perfetto-trace") or _is_perfetto(head)):
        return (
            "a Perfetto trace in protobuf, which ringscope does not read",
            'from PyTorch: let prof.export_chrome_trace("trace.json") write JSON, and give that; '
            f"from rocprofv3: {_ROCPROF}",
        )
    if path.suffix == ".otf2" or b"OTF2" in head[:32]:
        return "an OTF2 archive (rocprofv3 and Score-P write this format)", _ROCPROF
    if head.startswith(b"QDSTRM") or path.suffix == ".qdstrm":
        return "an nsys recording not yet imported (.qdstrm)", "make a .nsys-rep of it with `QdstrmImporter -i FILE`"
    return None


def _is_perfetto(head: bytes) -> bool:
    """True if the first bytes are a whole packet of Perfetto's with its time, its sequence or a track, or the beginning
    of compressed packets."""
    from google.protobuf.empty_pb2 import Empty
    from google.protobuf.message import DecodeError
    from google.protobuf.unknown_fields import UnknownFieldSet

    if _COMPRESSED.match(head):
        return True
    begins = _PACKET.match(head)
    if begins is None:
        return False
    size = sum((byte & 127) << 7 * at for at, byte in enumerate(begins[1]))
    packet = head[begins.end() :][:size]
    try:
        fields = {field.field_number for field in UnknownFieldSet(Empty.FromString(packet))}
    except DecodeError:
        return False
    return len(packet) == size and not fields.isdisjoint(_OF_PACKETS)


def unknown(head: bytes, path: Path) -> tuple[str, str]:
    """(problem, remedy) for a file that no reader and neither `stranger` nor `recognised` knows."""
    if is_drawn(head):
        return "a trace that ringscope wrote for Perfetto", "name the recordings"
    if ours := written.told(path, head):
        return ours
    if head.lstrip()[:1] == b"<":
        return "XML or HTML, not a recording of a known format", _READ
    return "not a recording of a known format", _READ


def _database(path: Path) -> tuple[str, str] | None:
    sqlite.check(path)  # raises UnreadableRecording if the file is damaged
    tables = sqlite.table_names(path)
    if not tables:
        return "an SQLite file whose list of tables cannot be read or is empty", "copy or export it again"
    of_dlprof = {"kernel_iteration_stats", "read_only_op_instances"}
    if of_dlprof & tables or any("dlprof" in name.lower() for name in tables):
        return (
            "a DLProf database, which holds summaries and no timeline",
            "give the nsys recording from which DLProf made it",
        )
    if {"rocpd_op", "rocpd_api"} <= tables:
        return (
            "a database of rocmProfileData's (.rpd), which ringscope does not read",
            f"{_ROCPROF}; rpd2tracing.py makes a picture of this one for Perfetto",
        )
    if any(name.startswith("rocpd_") for name in tables):
        return "a database of rocprofv3 (rocpd) without kernels", _ROCPROF
    if "COPY" in tables and {"HIP", "HSA", "KERN"} & tables:
        return "the database from which rocprof makes its results.json", "give the results.json beside it"
    if "KERN" in tables:
        return _KERNELS_ALONE
    if any(name.startswith("CUPTI_ACTIVITY_KIND_") for name in tables):
        return (
            "an nsys or nvprof database without its table of strings",
            "export it again with `nsys export -t sqlite`",
        )
    return None
