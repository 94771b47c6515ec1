"""A recording that is there twice is one: whatever it is called, and however it was named."""

from __future__ import annotations

import gzip
import lzma
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import ringscope
from benchmarks.training import Shape
from benchmarks.write import WRITERS
from profiles import readers
from profiles.model import measures_json
from profiles.readers import duplicates

SHAPE = Shape(steps=6, kernels=12, gpus=2, processes=2, skew_ns=50, hidden_ns=150_000, feed_ns=100_000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two ranks."""
    made = tmp_path / "made"
    made.mkdir()
    for rank in range(SHAPE.gpus):
        WRITERS["nsys"](SHAPE, made / f"rank{rank}.sqlite", range(rank, rank + 1))
    return made


def measured(*paths: Path) -> str:
    """Without the doubt that tells of a copy."""
    found = ringscope.analyse(paths).measures
    found.doubts = [doubt for doubt in found.doubts if doubt.code != "copy-left-out"]
    return measures_json.dumps(found)


def test_a_copy_is_left_out_and_named_and_changes_no_number(folder: Path) -> None:
    whole = measured(folder)
    shutil.copy(folder / "rank1.sqlite", folder / "zz-copy.sqlite")
    (doubt,) = (doubt for doubt in ringscope.analyse([folder]).measures.doubts if doubt.code == "copy-left-out")
    assert f"{folder / 'zz-copy.sqlite'}: the same recording as {folder / 'rank1.sqlite'}" in doubt.text
    assert measured(folder) == whole
    with pytest.raises(ringscope.RingscopeError, match="the same recording as"):
        ringscope.analyse([folder], strict=True)


def test_a_file_that_is_named_and_lies_in_a_directory_that_is_too_is_read_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = measured(folder)
    monkeypatch.chdir(folder)
    for more in (folder / "rank1.sqlite", Path("rank0.sqlite"), folder / ".." / "made"):
        timelines, doubts = readers.read_all([folder, more])
        assert (len(timelines), doubts) == (2, [])
        assert measured(folder, more) == whole


@pytest.mark.parametrize("pack", [lzma, gzip])
def test_a_packed_copy_is_the_same_recording_too(folder: Path, pack: Any) -> None:
    whole = measured(folder)
    plain = folder / "rank1.sqlite"
    packed = plain.with_name("rank1.sqlite.packed")
    packed.write_bytes(pack.compress(plain.read_bytes()))
    other = folder / "rank2.sqlite.packed"
    other.write_bytes(pack.compress(plain.read_bytes()[:-1] + b"x"))  # the last byte tells
    assert duplicates.originals([packed, plain, other]) == {plain: packed}
    other.unlink()
    (doubt,) = (doubt for doubt in ringscope.analyse([folder]).measures.doubts if doubt.code == "copy-left-out")
    assert f"{packed}: the same recording as {plain}" in doubt.text
    assert measured(folder) == whole
    plain.unlink()
    (folder / "again.packed").write_bytes(
        (lzma if pack is gzip else gzip).compress(pack.decompress(packed.read_bytes()))
    )
    assert len(readers.read_all([folder])[0]) == 2


def test_damaged_and_unlike_packed_files_are_nobodys_copies(tmp_path: Path) -> None:
    text = random.Random(3).randbytes(200_000)
    (tmp_path / "a").write_bytes(text)
    (tmp_path / "b.gz").write_bytes(gzip.compress(text)[:-30_000])
    (tmp_path / "c.gz").write_bytes(gzip.compress(text[:100_000]))
    os.mkfifo(tmp_path / "pipe")
    assert duplicates.originals(sorted(tmp_path.iterdir())) == {}


def test_a_link_that_nobody_can_follow_is_named_and_the_rest_is_read(folder: Path, tmp_path: Path) -> None:
    (folder / "rank7.sqlite").symlink_to("x" * 300)  # longer than a name may be
    assert len(readers.read_all([folder])[0]) == 2
    found = ringscope.analyse([folder], partial_to=tmp_path / "partial").measures
    assert len(found.gpus) == 2
    (doubt,) = (doubt for doubt in found.doubts if doubt.code == "unreadable")
    assert "rank7.sqlite: cannot be opened (File name too long)" in doubt.text


def test_copies_of_what_is_no_recording_are_nobodys_concern(folder: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("a note\n")
    assert [doubt.code for doubt in readers.read_all([folder])[1]] == ["skipped-files"]


@pytest.mark.parametrize("seed", range(20))
def test_originals_are_those_that_comparing_all_with_all_finds(seed: int, tmp_path: Path) -> None:
    rng, end = random.Random(seed), b"e" * (1 << 16)
    contents = [end + bytes([rng.randrange(3)]) * rng.choice([1, 2, 200_000]) + end for _ in range(8)] + [
        b"",
        b"",
        b"x",
    ]
    paths = [tmp_path / str(number) for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    os.mkfifo(tmp_path / "pipe")
    expected = {
        path: paths[contents.index(content)]
        for number, (path, content) in enumerate(zip(paths, contents, strict=True))
        if content and contents.index(content) < number
    }
    assert duplicates.originals([*paths, tmp_path / "pipe", tmp_path / "gone"]) == expected
