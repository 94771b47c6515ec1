"""Damaged SQLite recordings: an error a person can use or a doubt, never a traceback, never a hang, never a change."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from benchmarks.training import Shape
from benchmarks.write import WRITERS
from profiles import measure, readers
from profiles.ground.errors import RingscopeError, UnreadableRecording
from profiles.readers import cut
from tests.tiers import few

from ..fuzz.target import CORPUS
from ..recordings import OURS, rows

SHAPE = Shape(steps=3, kernels=20, gpus=2, processes=1)
PAGE = 4096


class Whole(bytes):
    """A sound recording; hypothesis prints its arguments, so a short one."""

    def __repr__(self) -> str:
        return f"<{len(self)} bytes>"


@pytest.fixture(scope="module", params=["nsys", "nvprof"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    path = tmp_path_factory.mktemp("whole") / "a.sqlite"
    WRITERS[request.param](SHAPE, path, None)
    return Whole(path.read_bytes())


def read_or_refuse(path: Path) -> None:
    """What every file must lead to: a sound timeline, or one line that names the file, and the file as it was."""
    before = path.read_bytes()
    try:
        read = readers.read(path)
    except RingscopeError as error:
        assert str(path) in str(error) and "Traceback" not in str(error)
    else:
        for name in ("kernels", "copies", "memsets", "api"):
            table = getattr(read, name)
            assert (table["start_ns"] <= table["end_ns"]).all()
        assert any(len(getattr(read, name)) for name in ("kernels", "graphs", "copies", "memsets"))
    assert path.read_bytes() == before
    assert [other.name for other in path.parent.iterdir() if other.name.startswith(path.name)] == [path.name]


fuzzed = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.ci
@fuzzed
@example(changes=[(5500881, b"\x00\x00\x00\x1a")])  # a last rowid below the first
@example(changes=[(5500881, b"\x00" * 14 + b"\x15")])
@given(changes=st.lists(st.tuples(st.integers(0, 10**7), st.binary(min_size=1, max_size=16)), min_size=1, max_size=12))
def test_a_file_written_over_anywhere_is_read_or_refused(
    whole: Whole, tmp_path: Path, changes: list[tuple[int, bytes]]
) -> None:
    data = bytearray(whole)
    for place, noise in changes:
        start = place % len(data)
        data[start : start + len(noise)] = noise
    path = tmp_path / "a.sqlite"
    path.write_bytes(data[: len(whole)])
    read_or_refuse(path)


@pytest.mark.ci
@fuzzed
@given(changes=st.lists(st.tuples(st.integers(0, PAGE - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_bytes_changed_in_the_first_page_where_the_schema_is(
    whole: Whole, tmp_path: Path, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(whole)
    for place, value in changes:
        data[place] = value
    path = tmp_path / "a.sqlite"
    path.write_bytes(data)
    read_or_refuse(path)


@pytest.mark.parametrize("value", few([b"\0" * 7 + b"\x80", b"\xff" * 8]))
def test_names_of_columns_that_are_no_utf8(whole: Whole, tmp_path: Path, value: bytes) -> None:
    """Found by the fuzzing here."""
    path = tmp_path / "a.sqlite"
    for start in range(100, PAGE - 8, 97):
        path.write_bytes(whole[:start] + value + whole[start + 8 :])
        read_or_refuse(path)


@fuzzed
@given(length=st.integers(1, 10**7))
def test_a_file_cut_anywhere_is_read_or_refused(whole: Whole, tmp_path: Path, length: int) -> None:
    path = tmp_path / "a.sqlite"
    path.write_bytes(whole[: length % len(whole) + 1])
    read_or_refuse(path)


def test_a_file_cut_short_says_how_much_is_missing(whole: Whole, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    path.write_bytes(whole[: 3 * PAGE])
    with pytest.raises(
        UnreadableRecording, match=f"cut short: 12,288 of {len(whole):,} bytes; copy or export it again"
    ):
        readers.read(path)


def test_every_page_of_noise_in_turn(whole: Whole, tmp_path: Path) -> None:
    noise = random.Random(7).randbytes(PAGE)
    path = tmp_path / "a.sqlite"
    pages = range(0, len(whole), PAGE)
    for start in pages[:: max(1, len(pages) // 40)]:
        path.write_bytes(whole[:start] + noise + whole[start + PAGE :])
        read_or_refuse(path)


def test_a_page_of_noise_in_a_real_recording_is_an_error(tmp_path: Path) -> None:
    import lzma

    data = bytearray(lzma.decompress(OURS[0].read_bytes()))
    path = tmp_path / "a.sqlite"
    path.write_bytes(data)
    [(root,)] = rows(path, "SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'")
    data[(root - 1) * PAGE : root * PAGE] = random.Random(1).randbytes(PAGE)
    path.write_bytes(data)
    with pytest.raises(UnreadableRecording, match="SQLite cannot read it.*sqlite3 FILE .recover"):
        readers.read(path)
    with pytest.raises(UnreadableRecording, match="SQLite cannot read it"):
        cut.write(path, tmp_path / "new", shrink=True)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("odd", ["NULL", "'text'", "x'ff00'", str(1 << 40), "-7", "1.5"])
@pytest.mark.parametrize("column", ["id", "deviceId"])
def test_devices_and_contexts_of_nvprof_that_cannot_be_are_no_devices(column: str, odd: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged.nvvp"
    shutil.copy(CORPUS / "nvprof.sqlite" / "small", path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_CONTEXT (contextId, deviceId)")
        connection.execute("DROP TABLE IF EXISTS CUPTI_ACTIVITY_KIND_DEVICE")
        connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_DEVICE (id, name)")
        if column == "id":
            connection.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_DEVICE VALUES ({odd}, 1)")
        connection.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_CONTEXT VALUES (1, {odd if column == 'deviceId' else 0})")
        connection.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (type, start, end, correlationId, contextId, streamId)"
        )
        start = connection.execute("SELECT min(start) FROM CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL").fetchone()[0]
        connection.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (3, ?, ?, 1, 1, 7)", (start, start + 10)
        )
        connection.commit()
    found = readers.read(path)
    assert found.devices["device"].tolist() == [0]
    assert found.syncs["device"].tolist() == ([0] if column == "id" else [-1])


@pytest.mark.parametrize("odd", ["NULL", "'text'", str(1 << 40), "-7"])
def test_devices_of_nsys_that_cannot_be_are_no_devices(odd: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged.sqlite"
    shutil.copy(CORPUS / "nsys.sqlite" / "small", path)
    with closing(sqlite3.connect(path)) as connection:
        for table in ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        connection.execute("CREATE TABLE TARGET_INFO_GPU (id, name)")
        connection.execute("CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId, cudaId, pid)")
        connection.execute(f"INSERT INTO TARGET_INFO_GPU VALUES ({odd}, 'H200'), (0, 'H200')")
        connection.execute(f"INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES ({odd}, 0, 1), (0, {odd}, 1), (0, 0, 1)")
        connection.commit()
    found = readers.read(path)
    assert (found.devices["device"].tolist(), found.devices["name"].tolist()) == ([0], ["H200"])


def _made_anew(path: Path, *before: str, after: tuple[str, ...] = ()) -> Path:
    """What the small recording of nsys holds, in a file of another make."""
    with (
        closing(sqlite3.connect(CORPUS / "nsys.sqlite" / "small")) as small,
        closing(sqlite3.connect(path, isolation_level=None)) as connection,
    ):
        for sql in (*before, *small.iterdump(), *after):
            connection.execute(sql)
    return path


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le", "UTF-16be"])
def test_names_are_the_same_in_every_encoding_of_sqlite(encoding: str, tmp_path: Path) -> None:
    found = readers.read(_made_anew(tmp_path / "a.sqlite", f"PRAGMA encoding = '{encoding}'"))
    expected = readers.read(CORPUS / "nsys.sqlite" / "small")
    for table in ("kernels", "api", "marks"):
        assert getattr(found, table)["name"].tolist() == getattr(expected, table)["name"].tolist()


@pytest.mark.parametrize("more", [0, (1 << 31) - 20, 1 << 31, 1 << 40, (1 << 62) - 1])
def test_correlations_of_any_size_join_calls_and_kernels(more: int, tmp_path: Path) -> None:
    """Not those of memsets: their table is kept in a smaller type than that of calls."""
    tables = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME")
    after = tuple(f"UPDATE {table} SET correlationId = correlationId + {more}" for table in tables)
    (gpu,) = measure(_made_anew(tmp_path / "a.sqlite", after=after)).gpus
    (expected,) = measure(CORPUS / "nsys.sqlite" / "small").gpus
    assert gpu.kernels.launch_latency_ns == expected.kernels.launch_latency_ns is not None


@pytest.mark.parametrize("stream", [70_000, (1 << 31) - 60])
def test_streams_and_devices_of_large_numbers_are_kept_apart(stream: int, tmp_path: Path) -> None:
    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    after = (f"UPDATE {table} SET streamId = streamId + {stream}", f"UPDATE {table} SET deviceId = 300 WHERE rowid % 2")
    found = readers.read(_made_anew(tmp_path / "a.sqlite", after=after)).kernels
    expected = readers.read(CORPUS / "nsys.sqlite" / "small").kernels
    assert (found["stream"] - stream).tolist() == expected["stream"].tolist()
    assert found["device"].tolist() == [300, 0] * (len(found) // 2)
