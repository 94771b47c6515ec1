"""`cut --strip-private` leaves out the folders, hosts and users that programs write into names, and keeps the names."""

from __future__ import annotations

import gzip
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.training import Shape
from benchmarks.write import WRITERS
from profiles import readers
from profiles.readers import cut
from profiles.readers.private_names import without_places

from ..recordings import PUBLIC, needs_shared
from .test_private import measured

# Each {} is a secret; what stays follows.
PLACES = [
    ("/home/{}/{}/train.py:41", "train.py:41"),
    ("/{}/{}", "..."),
    ("/mnt/{} {}/weights.h5", "... weights.h5"),
    ("~{}/{}", "..."),
    ("../{}/batch.npy", "batch.npy"),
    ("{}/my_train.py", "my_train.py"),
    ("C:\\Users\\{}\\{}\\data.csv", "data.csv"),
    ("\\\\{}\\{}\\", "..."),
    ("s3://{}/{}/epoch.ckpt", "epoch.ckpt"),
    ("https://{}:{}@web.org/x?y", "..."),
    ("{}@{}:22", "..."),
    ("ssh:{}@10.0.0.1", "..."),
]
AROUND = ["{}", "load {}", "save (in {}) done", "f#file={},step=3#", "['{}', 12]", 'open "{}"', "a=1;b={}"]
LETTERS = st.text("abcdefghijklmnopqrstuvwxyzäöü0123456789", min_size=6, max_size=12).map("q{}".format)


@given(st.sampled_from(PLACES), st.sampled_from(AROUND), LETTERS, LETTERS)
def test_no_folder_host_or_user_survives_and_the_words_around_do(
    place: tuple[str, str], around: str, first: str, second: str
) -> None:
    hidden, stays = place
    told = without_places(around.format(hidden.format(first, second)))
    assert first not in told and second not in told
    assert told == around.format(stays)


@pytest.mark.parametrize(
    "name",
    [
        "step 12", "rank 1 of 4", "step[DECODE bs=32]", "execute_context_1(128)_generation_4(9)", "epoch 3/10",
        "[Executor] _forward_step 7: 1 ctx reqs, 4 gen reqs", "aten::conv2d, seq = 3, op_id = 9", "1.2.3",
        "Thunk:#name=gradient_tape/resnet50/conv1/Conv2D,hlo_op=cudnn-conv.1#",
        "Thunk:#name=jit(step)/jit(main)/transpose(jvp(block))/dot_general,hlo_op=fusion.1#",
        "Gemm.1(L1_Grad/Gemm_0)", "void f<(anonymous namespace)::g>(float const*, int)", "?fill@ns@@YAXPEAMH@Z",
        "_ZN2at6native29vectorized_elementwise_kernelILi4EEEvi", "Optimizer.step#Adam.step", "~Segmenter::Guard",
    ],
)  # fmt: skip
def test_a_name_that_tells_no_place_stays_as_it_is(name: str) -> None:
    assert without_places(name) == name


def planted(path: Path, kind: str) -> tuple[list[str], int]:
    """Renames ranges, domains, kernels and calls; returns the secrets, and how many names were planted."""
    secrets, count = [], 0

    def name() -> str:
        nonlocal count
        two = f"qsecretä{count}", f"qhostö{count}"
        secrets.extend(two)
        hidden, around = PLACES[count % len(PLACES)][0], AROUND[count % len(AROUND)]
        count += 1
        return around.format(hidden.format(*two)) + (f"\0{two[0]}" if count % 5 == 0 else "")

    strings, number = ("StringIds", "id") if kind == "nsys" else ("StringTable", "_id_")
    with closing(sqlite3.connect(path)) as connection, connection:
        for row in connection.execute(f"SELECT {number} FROM {strings}").fetchall():
            connection.execute(f"UPDATE {strings} SET value = ? WHERE {number} = ?", (name(), *row))
        if kind == "nsys":
            for row in connection.execute("SELECT rowid FROM NVTX_EVENTS LIMIT 40").fetchall():
                connection.execute("UPDATE NVTX_EVENTS SET text = ?, textId = NULL WHERE rowid = ?", (name(), *row))
    return secrets, count


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le"])
@pytest.mark.parametrize("kind", ["nsys", "nvprof"])
def test_names_with_places_lose_them_wherever_a_recording_has_names(kind: str, encoding: str, tmp_path: Path) -> None:
    source, target = tmp_path / "whole.sqlite", tmp_path / "share.sqlite"
    WRITERS[kind](Shape(steps=2, kernels=20, gpus=1, processes=1), tmp_path / "utf-8", None)
    with closing(sqlite3.connect(tmp_path / "utf-8")) as old, closing(sqlite3.connect(source)) as new, new:
        new.execute(f"PRAGMA encoding = '{encoding}'")
        for line in old.iterdump():
            if not line.startswith(("BEGIN", "COMMIT")):
                new.execute(line)
    secrets, count = planted(source, kind)
    assert count > 20
    packed = tmp_path / "qsecret_in_gzips_header.sqlite.gz"
    packed.write_bytes(gzip.compress(source.read_bytes()))
    for given_file in (source, packed):
        target.unlink(missing_ok=True)
        cut.write(given_file, target, strip_private=True)
        content = target.read_bytes()
        for secret in [*secrets, "qsecret"]:
            assert secret.encode() not in content and secret.encode("utf-16-le") not in content
        before, after = readers.read(source), readers.read(target)
        assert len(after.kernels) == len(before.kernels) and len(after.marks) == len(before.marks)
        assert "load epoch.ckpt" in set(after.marks["name"]) or kind == "nvprof"


@pytest.mark.parametrize("name", ["NVIDIA /home/jane", "NVIDIA jäne", "janes-node", "Quadro RTX 6000/jane"])
def test_a_gpu_is_called_by_what_its_maker_calls_gpus(name: str, tmp_path: Path) -> None:
    source = tmp_path / "whole.sqlite"
    WRITERS["nsys"](Shape(steps=2, kernels=20, gpus=1, processes=1), source, None)
    for told, stays in ((name, False), ("Quadro RTX 6000/8000", True), ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", True)):
        with closing(sqlite3.connect(source)) as connection, connection:
            connection.execute("UPDATE TARGET_INFO_GPU SET name = ?", (told,))
        target = tmp_path / f"{len(told)}.{stays}.sqlite"
        cut.write(source, target, strip_private=True)
        assert (told.encode() in target.read_bytes()) is stays


@needs_shared
def test_the_home_of_who_recorded_stays_out_of_pyprofs_markers(tmp_path: Path) -> None:
    source, target = PUBLIC / "nvprof-sqlite" / "pytorch-lm-nvtx-1.sql", tmp_path / "share.sql"
    cut.write(source, target, strip_private=True)
    assert b"josiah" in source.read_bytes() and b"josiah" not in target.read_bytes()
    assert b"module.py:" in target.read_bytes()
    assert measured(target) == re.sub("/home/[^']*/", "", measured(source))
