"""Hypothesis over every text, JSON and protobuf reader: near misses of each format are read, or refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..readers.test_nsys_stats_csv import COLUMNS
from ..readers.test_nvprof_csv import MANAGED, NEW, OLD, TEXT
from .target import CORPUS, TARGETS, check

pytestmark = pytest.mark.ci
many = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

# Cells a table can have, and cells it should not.
numbers = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=True).map(str),
    st.sampled_from(["", "-", "1.500000", "2.445000e-03", "4.000000KB", "135.78us", "0x7b55", '"7"', "1,5", "1e999"]),
)
names = st.sampled_from(
    ["[CUDA memcpy HtoD]", "[CUDA memcpy XtoY]", "[CUDA memset]", "k(int) [5]", "cudaLaunch (k [6])", "", '"', "[", "é"]
)
devices = st.sampled_from(["GPU (0)", "GPU (99999999999)", "GPU", "", "(", "GPU (-1)"])
header = st.sampled_from([OLD, NEW, MANAGED, COLUMNS.format(rate="MB/s", green="")])
units = st.sampled_from(["ms,us", "s,ns", "ns,ns", "ms,", "KB,us"])


@st.composite
def tables(draw: st.DrawFn) -> str:
    """A header, a row of units that fits it or nearly, and rows whose cells are of their column's kind or not."""
    columns = draw(header).replace('"', "").split(",")
    lines = [",".join(columns), draw(units) + "," * (len(columns) - draw(st.sampled_from([2, 2, 2, 1])))]
    for _ in range(draw(st.integers(0, 5))):
        cells = [
            '"' + draw(names) + '"' if column == "Name" else draw(devices) if "Dev" in column else draw(numbers)
            for column in columns
        ]
        lines.append(",".join(cells[: draw(st.sampled_from([99, 99, 99, 5]))]))
        if draw(st.integers(0, 5)) == 0:
            lines.append(draw(st.text(max_size=30)))
    return (
        draw(st.sampled_from(["", "==7== Profiling result:\n"])) + "\n".join(lines) + draw(st.sampled_from(["", "\n"]))
    )


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=6)),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
times = st.one_of(st.integers(-(10**16), 10**19), st.floats(0, 1e19), st.text("0123456789.e-", max_size=9), values)
arguments = st.fixed_dictionaries(
    {},
    optional={
        **{key: st.integers(-5, 2**33) | values for key in ("device", "stream", "correlation", "bytes", "context")},
        **{key: st.integers(0, 8) | values for key in ("fromDevice", "inDevice", "toDevice")},
        **{"name": values, "start_time_since_epoch_in_micros": st.integers(0, 2**63)},
    },
)
events = st.fixed_dictionaries(
    {"ph": st.sampled_from(["X", "B", "E", "M", "i", "X", None])},
    optional={
        "cat": st.sampled_from(["kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "user_annotation", "cuda_sync"]),
        "name": st.sampled_from(["Memcpy HtoD (Pageable -> Device)", "process_name", "NEGOTIATE_ALLREDUCE", "0", "k"])
        | values,
        "pid": st.integers(0, 3) | values,
        "tid": st.integers(0, 3) | values,
        "ts": times,
        "dur": times,
        "args": arguments | values,
    },
)
extras = st.fixed_dictionaries(
    {},
    optional={key: values for key in ("distributedInfo", "deviceProperties", "baseTimeNanoseconds", "schemaVersion")},
)


def written(tmp_path: Path, data: str | bytes) -> Path:
    path = tmp_path / "recording"
    path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8", errors="surrogatepass"))
    return path


@many
@given(tables())
def test_any_table_is_read_or_refused(tmp_path: Path, text: str) -> None:
    for reader in ("nvprof.csv", "nsys.stats_csv"):
        check(reader, written(tmp_path, text))


@many
@given(st.lists(st.lists(names | numbers | devices, max_size=14).map("  ".join), max_size=4))
def test_any_text_under_nvprofs_header_is_read_or_refused(tmp_path: Path, lines: list[str]) -> None:
    check("nvprof.csv", written(tmp_path, "\n".join([*TEXT[:3], *lines])))


@many
@given(st.lists(events, max_size=6), extras)
def test_any_events_are_read_or_refused(tmp_path: Path, found: list[object], more: dict[str, object]) -> None:
    check("chrome.kineto", written(tmp_path, json.dumps({"traceEvents": found, **more})))
    bare = written(tmp_path, json.dumps(found))
    for reader in ("chrome.horovod", "chrome.kineto", "chrome.rocprof", "xla_trace"):
        check(reader, bare)


@pytest.mark.parametrize("reader", TARGETS)
@many
@given(st.data())
def test_any_damage_to_a_recording_is_read_or_refused(reader: str, tmp_path: Path, data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from(sorted(Path(CORPUS, reader).iterdir()))).read_bytes()
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, min(len(whole), start + 20)))
    check(reader, written(tmp_path, whole[:start] + data.draw(st.binary(max_size=8)) + whole[stop:]))


@many
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path: Path, data: bytes) -> None:
    for reader in TARGETS:
        check(reader, written(tmp_path, data))
