"""Files appear whole or not at all, and what is no file stays what it is."""

from __future__ import annotations

import gzip
import os
import stat
import threading
from pathlib import Path

import pytest

from profiles.ground.errors import RingscopeError
from profiles.ground.files import alone, gzipped, in_order, made_folder, text_of, whole, write_whole, written_whole


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "measures.json"
    write_whole(path, "old")
    with pytest.raises(ZeroDivisionError), whole(path) as beside:
        beside.write_text("new")
        _ = 1 // 0
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["measures.json"]


def test_a_pipe_is_written_to_and_not_renamed_over(tmp_path: Path) -> None:
    """As /dev/null and /dev/stdout: root would have put a file in their place."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write_whole(pipe, "whole")
    reader.join(timeout=900)
    assert read == ["whole"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_folder_in_the_place_of_a_file_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "page.html").mkdir()
    with pytest.raises(RingscopeError, match=r"page.html: cannot be written: .*; name another file"):  # noqa: SIM117
        with written_whole(tmp_path / "page.html") as beside:
            beside.write_text("page")


@pytest.mark.parametrize("before", ["", "charts", "charts/of/today"])
def test_a_folder_is_made_only_if_what_goes_into_it_is_written(before: str, tmp_path: Path) -> None:
    (tmp_path / before).mkdir(parents=True, exist_ok=True)
    there = set(tmp_path.rglob("*"))
    folder = tmp_path / "charts" / "of" / "today"
    with pytest.raises(RingscopeError, match="cannot be written"), made_folder(folder), written_whole(folder / "a"):
        raise OSError("full")
    assert set(tmp_path.rglob("*")) == there
    with made_folder(folder):
        (folder / "a").write_text("whole")
    assert (folder / "a").exists()


def test_a_folder_that_cannot_be_made_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    refused = pytest.raises(RingscopeError, match=r"file/charts: cannot be made: Not a directory")
    with refused, made_folder(tmp_path / "file" / "charts"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_rank_2_comes_before_rank_10() -> None:
    names = ["b/rank10.sqlite", "b/rank2.sqlite", "a/rank10.sqlite", "b/rank1.sqlite", "b/10.log", "b/x.log"]
    assert [str(path) for path in in_order(map(Path, names))] == [
        *("a/rank10.sqlite", "b/10.log", "b/rank1.sqlite", "b/rank2.sqlite", "b/rank10.sqlite", "b/x.log")
    ]


def test_two_that_write_one_file_at_once_both_write_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    with whole(path) as first:
        first.write_text("first")
        with whole(path) as second:
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first" and list(tmp_path.iterdir()) == [path]


def test_a_gzipped_file_holds_neither_its_name_nor_the_time(tmp_path: Path) -> None:
    for name in ("one.json.gz", "another.json.gz"):
        with gzipped(tmp_path / name, 5) as out:
            out.write("a trace")
    one, other = ((tmp_path / name).read_bytes() for name in ("one.json.gz", "another.json.gz"))
    assert one == other and one[4:8] == bytes(4)
    assert gzip.decompress(one) == b"a trace"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_byte_order_mark_and_line_ends_of_windows_are_no_part_of_what_is_read(encoding: str, tmp_path: Path) -> None:
    (path := tmp_path / "measures.json").write_bytes("{}\r\n".encode(encoding))
    assert text_of(path) == "{}\n"
    path.write_bytes(b"\xfe\xff" + "{\N{GREEK SMALL LETTER MU}}".encode("utf-16-be"))
    assert text_of(path) == "{\N{GREEK SMALL LETTER MU}}"


@pytest.mark.parametrize(("data", "encoding"), [(b"{\xe4}", "UTF-8"), (b"\xff\xfe{\0}", "UTF-16")])
def test_other_encodings_are_named_and_not_decoded_by_halves(data: bytes, encoding: str, tmp_path: Path) -> None:
    (path := tmp_path / "measures.json").write_bytes(data)
    with pytest.raises(ValueError, match=f"^its text is not {encoding}$"):
        text_of(path)


def test_a_file_that_the_lock_made_goes_if_nothing_is_written_to_it(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with pytest.raises(OSError, match="full"), alone(path):
        raise OSError("full")
    assert not path.exists()
    with alone(path):
        write_whole(path, "a run")
    path.write_text("")
    with pytest.raises(OSError, match="full"), alone(path):
        raise OSError("full")
    assert path.exists()  # another had made it
