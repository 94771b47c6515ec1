"""What `cut --strip-private` leaves: no text that was planted anywhere, and the same measures."""

from __future__ import annotations

import lzma
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.training import Shape
from benchmarks.write import WRITERS
from profiles import readers
from profiles.measuring.analysis import measure
from profiles.model import measures_json
from profiles.readers import cut, span

from ..recordings import DATA

# Of what measures are made of: names of kernels, calls, ranges and domains.
NAMED = {
    "nsys": ("StringIds", "id", "value"),
    "nvprof": ("StringTable", "_id_", "value"),
}
# Tables that nsys and nvprof write of hosts, users, processes and programs, and one of tomorrow.
OTHERS = {
    "nsys": ("TARGET_INFO_SYSTEM_ENV", "PROCESSES", "ThreadNames", "ProcessStreams", "ANALYSIS_FILE", "NVTX_PAYLOADS",
             "ENUM_OF_TOMORROW", "CUPTI_ACTIVITY_KIND_OF_TOMORROW", "TARGET_INFO_CUDA_OF_TOMORROW", "DIAGNOSTIC_EVENT",
             "EXPORT_META_DATA"),
    "nvprof": ("CUPTI_ACTIVITY_KIND_NAME", "CUPTI_ACTIVITY_KIND_MODULE", "CUPTI_ACTIVITY_KIND_SOURCE_LOCATOR",
               "CUPTI_ACTIVITY_KIND_ENVIRONMENT", "A_TABLE_OF_TOMORROW"),
}  # fmt: skip


class Planted:
    """Texts that may stand nowhere afterwards, each of its own."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def one(self, of: str) -> str:
        self.texts.append(f"planted{len(self.texts)}é/home/jane@host {of}")
        return self.texts[-1]

    def found_in(self, path: Path) -> list[str]:
        data = path.read_bytes()
        return [text for text in self.texts if text.encode() in data or text.encode("utf-16-le") in data]


def columns(connection: sqlite3.Connection, table: str) -> list[tuple[str, str, bool]]:
    return [(name, kind, bool(key)) for _, name, kind, _, _, key in connection.execute(f'PRAGMA table_info("{table}")')]


def plant(path: Path, kind: str) -> Planted:
    """Plants in every column of every table: in those of text in all rows, in the others in rows of their own."""
    planted = Planted()
    strings, number, value = NAMED[kind]
    with closing(sqlite3.connect(path)) as connection, connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in (name for name in tables if not name.startswith("sqlite_") and name != strings):
            for name, text in texts(connection, table, planted):
                connection.execute(f'UPDATE "{table}" SET "{name}" = ?', (text,))
            plain = [name for name, kind_, key in columns(connection, table) if not key]
            row = [planted.one(f"{table}.{name}") for name in plain]
            listed = ", ".join(f'"{name}"' for name in plain)
            connection.execute(f'INSERT INTO "{table}" ({listed}) VALUES ({", ".join("?" * len(row))})', row)
        for at, used in enumerate(("nobody", "other tables", "a column of no name")):
            connection.execute(
                f"INSERT INTO {strings} ({number}, {value}) VALUES (?, ?)", (70001 + at, planted.one(used))
            )
        for table in OTHERS[kind]:
            connection.execute(f'DROP TABLE IF EXISTS "{table}"')
            comment, default = planted.one("a comment"), planted.one("a default")
            connection.execute(f"CREATE TABLE \"{table}\" (name, value DEFAULT '{default}', nameId /* {comment} */)")
            named = ("EXPORT_OUTUPT_PATH", "EXPORT_INPUT_PATH_ABS", "EXPORT_HOST", planted.one("a name"))
            rows = [(name, planted.one(f"{table} {name}"), 70002) for name in named]
            connection.executemany(f'INSERT INTO "{table}" VALUES (?, ?, ?)', rows)
        if kind == "nsys":
            told = [
                (name, planted.one(name)) for name in ("EXPORT_HOST", "EXPORT_PRODUCT_VERSION", "EXPORT_INPUT_PATH")
            ]
            connection.executemany("INSERT INTO META_DATA_EXPORT VALUES (?, ?)", told)
            # Names of categories, threads, streams and processes; a blob with a text after the size of a message.
            for event in (33, 39, 72, 73, 97, 99):
                text = planted.one(f"an event of type {event}")
                connection.execute("INSERT INTO NVTX_EVENTS (start, eventType, text) VALUES (1, ?, ?)", (event, text))
                text_id = "INSERT INTO NVTX_EVENTS (start, eventType, textId) VALUES (1, ?, 70003)"
                connection.execute(text_id, (event,))
    return planted


def texts(connection: sqlite3.Connection, table: str, planted: Planted) -> Iterator[tuple[str, str]]:
    """Columns of text with a planted one each, but those that measures are made of: marks, versions and what a GPU is
    called are left to rows of their own."""
    for name, kind, _ in columns(connection, table):
        measured = (table, name) in {("NVTX_EVENTS", "text"), ("NVTX_EVENTS", "binaryData")}
        measured |= table in ("META_DATA_EXPORT", "TARGET_INFO_GPU", "NVTX_PAYLOAD_SCHEMA_ENTRIES")
        if "TEXT" in kind.upper() and not measured:
            yield name, planted.one(f"{table}.{name}")


def measured(path: Path) -> str:
    found = measure(path)
    for one in (*found.recordings, *found.doubts):
        object.__setattr__(one, "path" if hasattr(one, "path") else "text", "")
    found.doubts = [doubt for doubt in found.doubts if doubt.code != "mixed-types"]  # the planted rows
    return measures_json.dumps(found)


def sources(folder: Path) -> Iterator[tuple[str, Path]]:
    for kind in ("nsys", "nvprof"):
        WRITERS[kind](Shape(steps=4, kernels=20, gpus=2, processes=1), folder / kind, None)
        yield kind, folder / kind
    for name in ("cnn-1gpu-node.rank0", "resnet50-2gpu-in-stream.rank0"):
        real = folder / name
        real.write_bytes(lzma.decompress((DATA / f"{name}.sqlite.xz").read_bytes()))
        yield "nsys", real


@pytest.mark.parametrize("place", range(4))
def test_no_planted_text_survives_and_the_measures_do(place: int, tmp_path: Path) -> None:
    kind, source = list(sources(tmp_path))[place]
    without = measured(source)
    planted = plant(source, kind)
    assert len(planted.texts) > 60 and planted.found_in(source) == planted.texts
    cut.write(source, tmp_path / "new", strip_private=True)
    assert planted.found_in(tmp_path / "new") == []
    assert measured(tmp_path / "new") == without


@pytest.mark.parametrize("shrink", [False, True])
def test_what_is_stripped_can_be_cut_shrunk_and_stripped_again(shrink: bool, tmp_path: Path) -> None:
    for kind, source in list(sources(tmp_path))[:2]:
        once, twice = tmp_path / f"{kind}1", tmp_path / f"{kind}2"
        cut.write(source, once, strip_private=True, shrink=shrink, within=span.parsed("1ms:"))
        cut.write(once, twice, strip_private=True, shrink=shrink)
        assert readers.read(twice).kernels.equals(readers.read(once).kernels) and len(readers.read(once).kernels)


def test_of_a_message_of_nccls_the_size_alone_stays(tmp_path: Path) -> None:
    source, secret = tmp_path / "whole", b"hunter2 in a payload"
    WRITERS["nsys"](Shape(steps=4, kernels=20, gpus=2, processes=1), source, None)
    payload = struct.pack("<QQQQ", 1, 7, 36, 32) + struct.pack("<QQ", 3, 4096) + secret
    with closing(sqlite3.connect(source)) as connection, connection:
        connection.execute("ALTER TABLE NVTX_EVENTS ADD COLUMN binaryData BLOB")
        entries = "domainId, schemaId, idx, type, name, description, offset"
        connection.execute("DROP TABLE IF EXISTS NVTX_PAYLOAD_SCHEMA_ENTRIES")
        connection.execute(f"CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES ({entries})")
        rows = [(9, 7, 1, 18, "Message size [bytes]", secret.decode(), 8), (9, 7, 2, 18, secret.decode(), "", 16)]
        connection.executemany("INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        ((tid,),) = connection.execute("SELECT globalTid FROM NVTX_EVENTS WHERE eventType = 60 LIMIT 1")
        event = "INSERT INTO NVTX_EVENTS (start, end, eventType, globalTid, domainId, text, binaryData) VALUES "
        connection.execute(event + "(0, NULL, 75, ?, 9, 'NCCL', NULL)", (tid,))
        connection.execute(event + "(10, 20, 59, ?, 9, 'ncclAllReduce', ?)", (tid, payload))
    assert readers.read(source).exchanges["bytes"].tolist() == [4096]
    cut.write(source, tmp_path / "new", strip_private=True)
    assert readers.read(tmp_path / "new").exchanges["bytes"].tolist() == [4096]
    assert secret in source.read_bytes() and secret not in (tmp_path / "new").read_bytes()


@pytest.mark.parametrize("by_number", [False, True])
def test_names_of_the_users_own_code_are_left_out(tmp_path: Path, by_number: bool) -> None:
    source, target = tmp_path / "rank0.sqlite", tmp_path / "share.sqlite"
    source.write_bytes(lzma.decompress(next(DATA.glob("cnn-1gpu*.sqlite.xz")).read_bytes()))
    secret = "place callback Norms.on_train_batch_end (secret/my_train.py:41)"
    with closing(sqlite3.connect(source)) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(NVTX_EVENTS)")]
        of_range = next(connection.execute("SELECT * FROM NVTX_EVENTS WHERE eventType = 59"))
        row = dict(zip(columns, of_range, strict=True))
        row |= {"text": None if by_number else secret, "textId": 987_654 if by_number else None}
        connection.execute("INSERT INTO StringIds VALUES (987654, ?)", (secret if by_number else "other",))
        told = f"INSERT INTO NVTX_EVENTS VALUES ({', '.join('?' * len(columns))})"
        connection.execute(told, tuple(row[name] for name in columns))
        connection.commit()
    (tmp_path / "rank0.places.json").write_text("{}")
    cut.write(source, target, strip_private=True)
    assert secret.encode() in source.read_bytes() and b"secret" not in target.read_bytes()
    assert not target.with_name("share.places.json").exists()
