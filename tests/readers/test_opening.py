"""Opening: what is compressed, what is no recording, what is no file; and that nothing is harmed."""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import sqlite3
import threading
from codecs import BOM_UTF8
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.training import Shape
from benchmarks.write import WRITERS
from profiles import readers
from profiles.ground.errors import UnreadableRecording
from profiles.readers import formats, opening
from tests.fuzz.target import CORPUS
from tests.tiers import few

from ..recordings import DATA, OURS, SHARED, fingerprint, needs_shared

SMALL = Shape(steps=3, kernels=20, gpus=2, processes=1)


def recording(path: Path, kind: str = "nsys") -> Path:
    WRITERS[kind](SMALL, path, None)
    return path


def zstd(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)


PACKED = {"xz": lzma.compress, "gz": gzip.compress, "zst": zstd}

# ---- compressed


@pytest.mark.parametrize("kind", ["nsys", "nvprof", "nvprof-csv"])
@pytest.mark.parametrize("packed", PACKED)
def test_a_compressed_recording_is_read_whatever_its_name(packed: str, kind: str, tmp_path: Path) -> None:
    plain = recording(tmp_path / "plain", kind)
    path = tmp_path / "nothing-in-the-name"
    path.write_bytes(PACKED[packed](plain.read_bytes()))
    read, expected = readers.read(path), readers.read(plain)
    assert read.kernels.equals(expected.kernels) and read.copies.equals(expected.copies)
    assert read.recording.path == str(path)


@pytest.mark.parametrize("seed", [f"chrome.{one}" for one in ("kineto", "rocprof", "horovod")] + ["xla_trace"])
def test_a_byte_order_mark_that_an_editor_has_put_there_changes_nothing(seed: str, tmp_path: Path) -> None:
    names = {"chrome.kineto": "all", "chrome.horovod": "gloo-2-ranks", "xla_trace": "built.json"}
    (plain := tmp_path / "plain").write_bytes((CORPUS / seed / names.get(seed, "steps.json")).read_bytes())
    (path := tmp_path / "marked").write_bytes(BOM_UTF8 + plain.read_bytes())
    read, expected = readers.read(path), readers.read(plain)
    assert read.recording.format == expected.recording.format
    assert len(expected.kernels) + len(expected.phases) > 0
    assert read.kernels.equals(expected.kernels) and read.phases.equals(expected.phases)


def test_compressed_twice_is_read(tmp_path: Path) -> None:
    plain = recording(tmp_path / "plain")
    path = tmp_path / "a"
    path.write_bytes(gzip.compress(lzma.compress(plain.read_bytes())))
    assert len(readers.read(path).kernels) == len(readers.read(plain).kernels)


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("keep", [30, -30])
def test_a_compressed_file_cut_short_is_said_to_be(packed: str, keep: int, tmp_path: Path) -> None:
    path = tmp_path / f"a.sqlite.{packed}"
    path.write_bytes(PACKED[packed](recording(tmp_path / "plain").read_bytes())[:keep])
    with pytest.raises(UnreadableRecording, match="damaged or cut short") as caught:
        readers.read(path)
    assert str(path) in str(caught.value)


BOMB_BYTES = 160 << 20


@pytest.mark.exhaustive
def test_a_bomb_of_letters_is_stopped(tmp_path: Path) -> None:
    letters = tmp_path / "letters"
    letters.write_bytes(PACKED["xz"](b"x" * BOMB_BYTES))
    assert letters.stat().st_size * opening.MAX_RATIO < BOMB_BYTES
    with pytest.raises(UnreadableRecording, match="unpacks to more than 1000 times its size.*--max-size"):
        readers.read(letters)


@pytest.mark.parametrize("packed", few(["zst", "gz", "xz"]))
def test_a_bomb_is_stopped_and_a_larger_limit_lets_it_through(packed: str, tmp_path: Path) -> None:
    size = BOMB_BYTES
    path = tmp_path / "bomb"
    if packed == "gz":  # at most 1032:1 by itself, so a gzip of a gzip
        path.write_bytes(gzip.compress(gzip.compress(bytes(size))))
    else:
        path.write_bytes(PACKED[packed](bytes(size)))
    assert path.stat().st_size * opening.MAX_RATIO < size
    with pytest.raises(UnreadableRecording, match="unpacks to zeros or blanks.*--max-size"):
        readers.read(path)
    with opening.plain(path, max_bytes=size) as file:
        assert file.stat().st_size == size
    with pytest.raises(UnreadableRecording, match=f"unpacks to more than {size - 1:,} bytes"):
        readers.read(path, max_bytes=size - 1)


def test_an_error_in_a_compressed_recording_names_the_file_the_user_gave(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite.gz"
    path.write_bytes(gzip.compress(recording(tmp_path / "plain").read_bytes()[:8192]))
    with pytest.raises(UnreadableRecording, match="cut short: 8,192 of") as caught:
        readers.read(path)
    assert caught.value.path == str(path)


# ---- no recording


def refused(path: Path, said: str) -> None:
    with pytest.raises(UnreadableRecording, match=said) as caught:
        readers.read(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


def test_what_is_no_recording_is_refused_each_with_its_own_message(tmp_path: Path) -> None:
    path = tmp_path / "a.nvvp"
    refused(path, "no such file; check the path")
    path.write_bytes(b"")
    refused(path, "empty; record again")
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n")
    refused(path, "a Git LFS pointer.*git lfs pull")
    path.write_bytes('{"traceEvents": []}'.encode("utf-16"))
    refused(path, "text in UTF-16; make it UTF-8")
    path.write_bytes(b'<?xml version="1.0" encoding="UTF-8"?><experiment/>')
    refused(path, "XML: a session that the Visual Profiler saved.*nvprof -o")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(2000))
    refused(path, "not a recording of a known format")
    path.write_bytes(opening.HEAD_BYTES * b"\0")
    refused(path, "not a recording of a known format")
    path.write_bytes(b"SQLite format 3\0")
    refused(path, "its SQLite header is incomplete")
    refused(tmp_path, "a directory, not a recording")
    refused(tmp_path / "a.nvvp" / "below", "no such file")


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE shopping (thing)")
    refused(path, "not a recording of a known format")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE dlprof_ops (thing)")
    refused(path, "a DLProf database.*give the nsys recording")
    path.unlink()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end)")
    refused(path, "without its table of strings")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    refused(path, "not a regular file")


def test_an_unfinished_recording_says_how_to_finish_it(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("INSERT INTO StringIds VALUES (99999, 'x')")
        connection.commit()
        assert (tmp_path / "a.sqlite-wal").stat().st_size
        shutil.copytree(tmp_path, tmp_path.parent / "copied")
    folder = tmp_path.parent / "copied"
    before = fingerprint(folder)
    with pytest.raises(UnreadableRecording, match="still in a.sqlite-wal.*wal_checkpoint"):
        readers.read(folder / "a.sqlite")
    assert fingerprint(folder) == before
    # The remedy given works, word for word.
    with closing(sqlite3.connect(folder / "a.sqlite")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert len(readers.read(folder / "a.sqlite").kernels)


# ---- no harm


def test_nothing_changes_where_recordings_are_read(tmp_path: Path) -> None:
    recording(tmp_path / "nsys.sqlite")
    recording(tmp_path / "nvprof.nvvp", "nvprof")
    shutil.copy(OURS[0], tmp_path)
    (tmp_path / "broken.sqlite").write_bytes((tmp_path / "nsys.sqlite").read_bytes()[:9000])
    before = fingerprint(tmp_path)
    timelines, doubts = readers.read_all([tmp_path])
    assert len(timelines) == 3 and [doubt.code for doubt in doubts] == ["unreadable"]
    assert fingerprint(tmp_path) == before


def test_a_file_in_wal_mode_stays_as_it_is(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    before = fingerprint(tmp_path)
    assert list(before) == [".", "a.sqlite"]
    assert len(readers.read(path).kernels)
    assert fingerprint(tmp_path) == before


def test_a_hot_journal_is_not_rolled_back(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN")
        connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = start + 1")
        shutil.copytree(tmp_path, tmp_path.parent / "crashed")  # as a crash would leave it
        connection.execute("ROLLBACK")
    folder = tmp_path.parent / "crashed"
    assert (folder / "a.sqlite-journal").stat().st_size
    before = fingerprint(folder)
    with pytest.raises(UnreadableRecording, match="still in a.sqlite-journal"):
        readers.read(folder / "a.sqlite")
    assert fingerprint(folder) == before


def test_a_read_only_directory_is_enough(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    path = recording(folder / "a.sqlite")
    path.chmod(0o444)
    folder.chmod(0o555)
    try:
        before = fingerprint(folder)
        assert len(readers.read(path).kernels)
        assert fingerprint(folder) == before
    finally:
        folder.chmod(0o755)


@pytest.mark.parametrize("name", ["a b?c#d%20e.sqlite", "ü.sqlite", "x\ny", os.fsdecode(b"\xff.sqlite"), "a'b\"c"])
def test_odd_file_names_are_no_obstacle(name: str, tmp_path: Path) -> None:
    assert len(readers.read(recording(tmp_path / "plain").rename(tmp_path / name)).kernels)


@pytest.mark.exhaustive  # reads them all, as others do; on small ones it is tried above
@needs_shared
def test_the_shared_recordings_stay_as_they_are() -> None:
    before = fingerprint(SHARED)
    readers.read_all([SHARED])
    assert fingerprint(SHARED) == before


# ---- several


def test_a_directory_gives_its_recordings_and_counts_the_rest(tmp_path: Path) -> None:
    (tmp_path / "runs" / "one").mkdir(parents=True)
    two = Shape(steps=3, kernels=20, gpus=2, processes=2)
    for rank in (1, 0):
        WRITERS["nsys"](two, tmp_path / "runs" / "one" / f"{'ba'[rank]}.sqlite", range(rank, rank + 1))
    (tmp_path / "runs" / "record.json").write_text('{"schema": "ringscope.run/1"}')
    (tmp_path / "runs" / "notes.txt").write_text("notes")
    (tmp_path / "runs" / "empty.sqlite").touch()
    timelines, doubts = readers.read_all([tmp_path / "runs"])
    assert [timeline.recording.rank for timeline in timelines] == [1, 0]  # in the order of their names
    assert [timeline.recording.rank_source for timeline in timelines] == ["marks"] * 2
    assert sorted(doubt.code for doubt in doubts) == ["skipped-files", "unreadable"]
    assert any(doubt.text.startswith("1 other file ") for doubt in doubts)  # record.json is the run's own
    with pytest.raises(UnreadableRecording, match="empty"):
        readers.read_all([tmp_path / "runs"], strict=True)


def test_a_report_beside_its_export_is_one_recording(tmp_path: Path) -> None:
    recording(tmp_path / "rank0.sqlite")
    (tmp_path / "rank0.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report 1.\n")
    timelines, doubts = readers.read_all([tmp_path])
    assert len(timelines) == 1 and not doubts


def test_patterns_are_expanded_and_a_file_named_like_one_is_found(tmp_path: Path) -> None:
    recording(tmp_path / "rank0.sqlite")
    WRITERS["nsys"](replace(SMALL, steps=SMALL.steps + 1), tmp_path / "rank1.sqlite", None)  # no copy of the other
    recording(tmp_path / "a[1].sqlite")
    assert len(readers.read_all([f"{tmp_path}/rank*.sqlite"])[0]) == 2
    assert len(readers.read_all([f"{tmp_path}/a[1].sqlite"])[0]) == 1
    with pytest.raises(UnreadableRecording, match="no file matches"):
        readers.read_all([f"{tmp_path}/none*"])


def test_where_nothing_can_be_read_the_reason_is_the_error(tmp_path: Path) -> None:
    with pytest.raises(UnreadableRecording, match="no recordings there"):
        readers.read_all([tmp_path])
    (tmp_path / "a.sqlite").touch()
    with pytest.raises(UnreadableRecording, match="a.sqlite: empty"):
        readers.read_all([tmp_path])


def test_progress_tells_how_far_in_which_file_of_how_many(tmp_path: Path) -> None:
    paths = [recording(tmp_path / f"rank{rank}") for rank in range(3)]
    told: list[tuple[float, float, Path]] = []
    readers.read_all(paths, progress=lambda *now: told.append(now))
    done = [now for now, _, _ in told]
    assert done == sorted(done) and done[-1] == 3 and {0, 1, 2} <= set(done)
    assert all(total == 3 and path == paths[min(int(now), 2)] or now == int(now) for now, total, path in told)
    assert len(set(done)) > 4  # and parts of files


def test_ranks_come_from_marks_then_the_format_then_the_file_name(tmp_path: Path) -> None:
    names = {
        "rank3.sqlite": 3,
        "out_rank12.sqlite.xz": 12,
        "Rank-4.csv": 4,
        "frank5": None,
        "run.2": None,
        "prank.1": None,
    }
    for name, rank in names.items():
        match = formats._RANK_NAME.search(name)
        assert (int(match[1]) if match else None) == rank


def test_reading_twice_at_once_is_safe() -> None:
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(len(readers.read(DATA / OURS[0].name).kernels))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(900)
    assert len(found) == 3 and len(set(found)) == 1
