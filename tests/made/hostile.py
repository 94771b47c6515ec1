"""Files made to do harm to who reads them: each is written to a folder, and none is a recording that can be trusted."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import random
import shutil
import sqlite3
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from profiles.ground.version import VERSION
from profiles.readers import xplane

MIB = 1 << 20
NOISE = random.Random(0).randbytes(MIB)  # the same in each run
EVENT = '{"ph":"X","cat":"kernel","name":"k","ts":%s,"dur":%s,"args":{"device":0,"stream":7}}'
KERNELS = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
INSERT INTO StringIds VALUES (1, 'k');
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, contextId INT, streamId INT,
 correlationId INT, globalPid INT, demangledName INT, shortName INT, graphNodeId INT);
"""
ROWS = """
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL
 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
 SELECT 10 * i, 10 * i + 5, 0, 1, 7, i, 1, 1, 1, 0 FROM n;
"""

Make = Callable[[Path], Path]
# By what they are; those of `LARGE` take hundreds of megabytes of disk. What is not in them is `READABLE`.
SMALL: dict[str, Make] = {}
LARGE: dict[str, Make] = {}
READABLE: dict[str, Make] = {}


def small(make: Make) -> Make:
    SMALL[make.__name__.replace("_", " ")] = make
    return make


def large(make: Make) -> Make:
    LARGE[make.__name__.replace("_", " ")] = make
    return make


def trace(*events: str) -> str:
    return '{"schemaVersion": 1, "traceEvents": [' + ",".join(events) + "]}"


def of_text(name: str, content: str | bytes | Callable[[], str]) -> None:
    """A function: what takes long to write, or much memory."""

    def make(folder: Path) -> Path:
        path, text = folder / "trace.json", content() if callable(content) else content
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
        return path

    SMALL[name] = make


of_text("events nested a million deep", trace(EVENT % (1, 1))[:-2] + ',{"args":' + "[" * MIB + "]" * MIB + "}]}")
of_text("a document nested a million deep", '{"traceEvents":' + '{"a":' * MIB)
of_text("times that are no numbers", trace(*(EVENT % (one, 1) for one in ("NaN", "Infinity", "-Infinity", "1e400"))))
of_text("durations that are no numbers", trace(*(EVENT % (1, one) for one in ("NaN", "Infinity", "1e400", '"x"'))))
of_text(
    "a GPU for each of 50 000 kernels", trace(*((EVENT % (at, 1)).replace(":0", f":{at}", 1) for at in range(50_000)))
)
of_text("durations below zero", trace(*(EVENT % (at, -5) for at in range(50))))
of_text("integers of a hundred thousand digits", trace(EVENT % ("9" * 100_000, "9" * 100_000)))
of_text("numbers with huge exponents", trace(EVENT % ("1e999999999", "1e-999999999"), EVENT % ("1e99999", 1)))
of_text("the events twice, the second time none", trace(EVENT % (1, 1))[:-1] + ',"traceEvents":[]}')
of_text("keys that are no UTF-8", b'{"schemaVersion":1,"\xff\xfe":1,"traceEvents":[{"\xff":"\xed\xa0\x80"}]}')
of_text("events that are an object", '{"schemaVersion":1,"traceEvents":{"0":' + EVENT % (1, 1) + "}}")
of_text("surrogates without a pair", '{"schemaVersion":1,"traceEvents":[{"ph":"X","cat":"\\ud800","name":"\\udfff"}]}')
of_text("five million empty events", lambda: '{"schemaVersion":1,"traceEvents":[' + "{}," * 5_000_000 + "{}]}")
of_text("ten million zeros for events", lambda: '{"schemaVersion":1,"traceEvents":[' + "0," * 10_000_000 + "0]}")
of_text("a bracket that opens ten million times", lambda: "[" * 10_000_000)
of_text(
    "a table of nvprof in one line of 100 MB",
    lambda: "==1== Profiling result:\nStart,Duration,Name\n" + "1," * 50_000_000,
)
of_text("a header with a million columns", lambda: "Start,Duration," + "a," * 1_000_000 + "Name\ns,s\n1,1\n")
of_text("a quote that never closes", lambda: 'Start,Duration,Name\ns,s,\n1,1,"' + "k\n" * 10_000_000)


def gzipped(folder: Path, name: str, *parts: bytes) -> Path:
    """A gzip file of several members, each made once however often it is named."""
    packed = {part: gzip.compress(part, 6) for part in set(parts)}
    path = folder / name
    with path.open("wb") as file:
        for part in parts:
            file.write(packed[part])
    return path


@small
def four_gigabytes_of_zeros(folder: Path) -> Path:
    return gzipped(folder, "zeros.json.gz", *[b"\0" * (64 * MIB)] * 64)


@small
def four_gigabytes_of_blanks_in_a_trace(folder: Path) -> Path:
    return gzipped(folder, "blanks.json.gz", b'{"traceEvents": [', *[b" " * (64 * MIB)] * 64)


@small
def four_gigabytes_of_letters(folder: Path) -> Path:
    return gzipped(folder, "letters.json.gz", b'{"traceEvents": [{"name":"', *[b"ab" * (32 * MIB)] * 64)


@small
def an_archive_of_four_gigabytes_of_letters(folder: Path) -> Path:
    member = tarfile.TarInfo("trace.json")
    member.size = 64 * 64 * MIB
    return gzipped(folder, "bomb.tar.gz", member.tobuf(), *[b"ab" * (32 * MIB)] * 64, b"\0" * 1024)


@small
def an_archive_that_says_it_is_larger_than_any_disk(folder: Path) -> Path:
    member = tarfile.TarInfo("trace.json")
    member.size = 1 << 60
    return gzipped(folder, "long.tar.gz", member.tobuf(), b"a" * 4096)


@small
def an_archive_of_a_million_empty_files(folder: Path) -> Path:
    return gzipped(folder, "many.tar.gz", *[tarfile.TarInfo("trace.json").tobuf() * 10_000] * 100, b"\0" * 1024)


@small
def an_archive_of_links_and_devices(folder: Path) -> Path:
    path = folder / "links.tar"
    with tarfile.open(path, "w") as file:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo("../../outside.json")
            member.type, member.linkname = kind, "/etc/passwd"
            file.addfile(member)
    return path


@small
def an_archive_cut_short(folder: Path) -> Path:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as file:
        member = tarfile.TarInfo("trace.json")
        member.size = 100_000
        file.addfile(member, io.BytesIO(NOISE))
    path = folder / "cut.tar.gz"
    path.write_bytes(whole.getvalue()[:50_000])
    return path


@small
def a_zip_cut_short(folder: Path) -> Path:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as file:
        file.writestr("trace.json", NOISE)
    path = folder / "cut.zip"
    path.write_bytes(whole.getvalue()[:50_000])
    return path


@small
def packed_twenty_times(folder: Path) -> Path:
    data = trace(EVENT % (1, 1)).encode()
    for _ in range(20):
        data = gzip.compress(data)
    path = folder / "onion.gz"
    path.write_bytes(data)
    return path


@small
def an_xz_that_wants_four_gigabytes_to_unpack(folder: Path) -> Path:
    """The dictionary's size is a byte of the block's header, which has a sum of its own."""
    data = bytearray(lzma.compress(b"a" * 1000))
    header = data[12 : 12 + (data[12] + 1) * 4]
    at = bytes(header).index(b"\x21\x01") + 2
    header[at] = 40
    header[-4:] = zlib.crc32(bytes(header[:-4])).to_bytes(4, "little")
    data[12 : 12 + len(header)] = header
    path = folder / "hungry.xz"
    path.write_bytes(bytes(data))
    return path


def database(folder: Path, *sql: str) -> Path:
    path = folder / "made.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        for one in sql:
            connection.executescript(one)
    return path


def of_sql(name: str, *sql: str, into: dict[str, Make] = SMALL) -> None:
    into[name] = lambda folder: database(folder, *sql)


of_sql("strings that are a view without an end", """
CREATE TABLE META_DATA_EXPORT (name, value);
CREATE VIEW StringIds AS
 WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT id, 'x' AS value FROM n;
""", KERNELS.partition("CREATE TABLE CUPTI")[1] + KERNELS.partition("CREATE TABLE CUPTI")[2])  # fmt: skip
of_sql("kernels that are a view of views of themselves", KERNELS.partition("CREATE TABLE CUPTI")[0], """
CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT * FROM deeper;
CREATE VIEW deeper AS SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL;
""")  # fmt: skip
of_sql("a table with two thousand columns and no others", "CREATE TABLE StringIds (id, value);",
       f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({', '.join(f'c{n}' for n in range(2000))});")  # fmt: skip
TABLES = "".join(f"CREATE TABLE CUPTI_{n} (a);" for n in range(5_000))
of_sql("five thousand tables", f"BEGIN; {KERNELS} {TABLES} COMMIT")
of_sql("columns that are computed, 50 MB a row", KERNELS.partition("CREATE TABLE CUPTI")[0], """
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (end INT, deviceId INT, contextId INT, streamId INT, correlationId INT,
 globalPid INT, demangledName INT, shortName INT, graphNodeId INT,
 start INT GENERATED ALWAYS AS (length(printf('%.*c', 50000000, 'x'))) VIRTUAL);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (2, 0, 1, 7, 1, 1, 1, 1, 0), (3, 0, 1, 7, 1, 1, 1, 1, 0);
""")  # fmt: skip
of_sql("kernels that are texts", KERNELS, """
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j');
""")  # fmt: skip
of_sql("kernels that end before they start", KERNELS, """
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (9, 2, 0, 1, 7, 1, 1, 1, 1, 0);
""")  # fmt: skip
of_sql("a name of 50 MB", KERNELS, ROWS, "UPDATE StringIds SET value = printf('%.*c', 50000000, 'x')")
of_sql("a start of 200 MB", KERNELS, ROWS,
       "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = zeroblob(200000000) WHERE rowid = 7", into=READABLE)  # fmt: skip


OF_POWER = """
CREATE TABLE GENERIC_EVENTS (genericEventId INT, timestamp INT, typeId TEXT);
CREATE TABLE GENERIC_EVENT_DATA (genericEventId INT, fieldIdx INT, uintVal INT);
CREATE TABLE GENERIC_EVENT_TYPE_FIELDS (typeId INT, fieldIdx INT, fieldNameId INT);
INSERT INTO StringIds VALUES (10, 'POWER'), (11, 'Power'), (12, 'Temperature');
INSERT INTO GENERIC_EVENT_TYPE_FIELDS VALUES (5, 2, 10), (5, 0, 11), (5, 1, 12);
INSERT INTO GENERIC_EVENTS VALUES (1, 100, 5);
INSERT INTO GENERIC_EVENT_DATA VALUES (1, 0, 300);
"""
of_sql("power whose types are texts, and names in any case", KERNELS.replace("TEXT", "TEXT COLLATE NOCASE"), ROWS,
       OF_POWER, into=READABLE)  # fmt: skip
OF_NCCL = """
CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, globalTid INT, domainId INT, binaryData BLOB);
CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId, schemaId, name, type, offset);
INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (1, 1, 'Message size [bytes]', 18, 'x');
INSERT INTO NVTX_EVENTS VALUES (0, NULL, 75, 'NCCL', 1, 1, NULL), (10, 15, 59, 'ncclAllReduce', 1, 1,
 x'010000000000000001000000000000001000000000000000200000000000000001010101010101010101010101010101');
"""
of_sql("message sizes at a place that is a text", KERNELS, ROWS, OF_NCCL, into=READABLE)


def tangled(path: Path, table: str, copies: int) -> Path:
    """The inner pages of a table lead each to the next, `copies` times, and the last of them to a page of rows."""
    with closing(sqlite3.connect(path)) as connection:
        ((root,),) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [table]).fetchall()
        ((size,),) = connection.execute("PRAGMA page_size").fetchall()
    data = bytearray(path.read_bytes())

    def children(number: int) -> list[int]:
        at = (number - 1) * size
        if data[at] != 5:
            return []
        places = range(at + 12, at + 12 + 2 * int.from_bytes(data[at + 3 : at + 5], "big"), 2)
        cells = [at + int.from_bytes(data[place : place + 2], "big") for place in places]
        return [int.from_bytes(data[cell : cell + 4], "big") for cell in cells]

    inner, leaf = [root], children(root)[0]
    while below := children(leaf):
        inner, leaf = [root, *children(root)[:5]], below[0]
    for number, child in zip(inner, [*inner[1:], leaf], strict=True):
        at = (number - 1) * size
        # One cell at the end of the page, where many places of cells do not overwrite it: the child, and a number.
        data[at + size - 13 : at + size] = child.to_bytes(4, "big") + b"\x01" + bytes(8)
        data[at + 3 : at + 7] = copies.to_bytes(2, "big") + (size - 13).to_bytes(2, "big")
        data[at + 8 : at + 12] = child.to_bytes(4, "big")
        data[at + 12 : at + 12 + 2 * copies] = (size - 13).to_bytes(2, "big") * copies
    path.write_bytes(bytes(data))
    return path


@small
def kernels_whose_pages_all_lead_to_one(folder: Path) -> Path:
    return tangled(database(folder, KERNELS, ROWS), "CUPTI_ACTIVITY_KIND_KERNEL", 600)


@small
def strings_whose_pages_lead_to_a_million_million_rows(folder: Path) -> Path:
    more = "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) SELECT i, 'k' FROM n"
    path = database(folder, "PRAGMA page_size = 1024;", KERNELS, ROWS, f"INSERT INTO StringIds {more};")
    return tangled(path, "StringIds", 150)


@small
def pages_of_noise(folder: Path) -> Path:
    path = database(folder, KERNELS, ROWS)
    data = bytearray(path.read_bytes())
    data[4096 * 3 :] = NOISE[: len(data) - 4096 * 3]
    path.write_bytes(bytes(data))
    return path


def a_database_with_a_pipe_where_changes_would_be(folder: Path) -> Path:
    path = database(folder, KERNELS, ROWS)
    os.mkfifo(path.with_name(path.name + "-wal"))
    return path


READABLE["a database with a pipe where changes would be"] = a_database_with_a_pipe_where_changes_would_be


@small
def a_database_whose_changes_are_beside_it(folder: Path) -> Path:
    path = database(folder, KERNELS, ROWS)
    path.with_name(path.name + "-wal").write_bytes(b"\x37\x7f\x06\x82" + NOISE[:1000])
    return path


@small
def a_pipe(folder: Path) -> Path:
    path = folder / "pipe.sqlite"
    os.mkfifo(path)
    return path


@small
def a_folder_named_as_a_recording(folder: Path) -> Path:
    path = folder / "made.sqlite"
    path.mkdir()
    return path


@small
def a_link_to_itself(folder: Path) -> Path:
    path = folder / "made.sqlite"
    path.symlink_to(path)
    return path


@small
def a_folder_of_links_to_itself(folder: Path) -> Path:
    inner = folder / "runs"
    inner.mkdir()
    for name in "abcdefgh":
        (inner / name).symlink_to(inner)
    return inner


@small
def a_device_without_an_end(folder: Path) -> Path:
    path = folder / "zero.sqlite"
    path.symlink_to("/dev/zero")
    return path


@small
def a_name_of_two_lines_and_a_command(folder: Path) -> Path:
    path = folder / "a\nb\x1b[2J.json"
    path.write_text("{")
    return path


def holes(folder: Path, name: str, start: bytes) -> Path:
    """A file of a terabyte that takes no disk."""
    path = folder / name
    with path.open("wb") as file:
        file.write(start)
        file.truncate(1 << 40)
    return path


@small
def a_trace_of_a_terabyte_of_holes(folder: Path) -> Path:
    return holes(folder, "sparse.json", b'{"traceEvents": [')


@small
def a_timeline_of_horovods_of_a_terabyte_of_holes(folder: Path) -> Path:
    return holes(folder, "sparse.json", b'[{"ph":"B","name":"NEGOTIATE_ALLREDUCE"},')


@small
def a_table_of_a_terabyte_of_holes(folder: Path) -> Path:
    return holes(folder, "sparse.csv", b"==1== Profiling result:\nStart,Duration,Name\ns,s,\n")


@small
def a_profile_of_a_terabyte_of_holes(folder: Path) -> Path:
    return holes(folder, "sparse.xplane.pb", b"\n\x10\x12\x0d/device:GPU:0")


@small
def a_message_longer_than_its_file(folder: Path) -> Path:
    path = folder / "long.xplane.pb"
    path.write_bytes(b"\n\x10\x12\x0e/device:GPU:0\n" + b"\n\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
    return path


@small
def a_message_within_a_message_ten_thousand_deep(folder: Path) -> Path:
    data = b""
    for _ in range(10_000):
        size, length = len(data), b""
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        data = b"\n" + length + bytes([size]) + data
    path = folder / "deep.xplane.pb"
    path.write_bytes(b"\n\x0f\x12\x0d/device:GPU:0" + data)
    return path


@small
def four_million_planes_without_anything(folder: Path) -> Path:
    path = folder / "planes.xplane.pb"
    path.write_bytes(b"\n\x0f\x12\x0d/device:GPU:0" + b"\n\0" * 4_000_000)
    return path


@large
def a_trace_with_a_name_of_400_MB(folder: Path) -> Path:
    path = folder / "name.json"
    with path.open("wb") as file:
        file.write(trace(EVENT % (1, 1)).partition('"k"')[0].encode() + b'"')
        for _ in range(400):
            file.write(b"x" * 1_000_000)
        file.write(b'"' + trace(EVENT % (1, 1)).partition('"k"')[2].encode())
    return path


@large
def a_trace_with_a_name_of_400_MB_of_quotation_marks(folder: Path) -> Path:
    path = folder / "name.json"
    begin, _, end = trace(EVENT % (1, 1)).partition('"k"')
    path.write_bytes(begin.encode() + b'"' + b'\\"' * 200_000_000 + b'"' + end.encode())
    return path


@large
def a_trace_of_400_MB_cut_short(folder: Path) -> Path:
    path = folder / "cut.json"
    event = (EVENT % (1, 1)).encode() + b","
    path.write_bytes(b'{"schemaVersion": 1, "traceEvents": [' + event * (400_000_000 // len(event)))
    return path


@large
def a_trace_with_400_MB_of_blanks(folder: Path) -> Path:
    path = folder / "blanks.json"
    with path.open("wb") as file:
        file.write(b'{"schemaVersion": 1, "traceEvents": [')
        for _ in range(400):
            file.write(b" " * 1_000_000)
        file.write((EVENT % (1, 1) + "]}").encode())
    return path


of_sql("a process for each of 20 000 kernels", KERNELS, ROWS,
       "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = correlationId << 24")  # fmt: skip
of_sql("a collective of another name for each of 20 000 kernels", KERNELS, ROWS,
       "INSERT INTO StringIds SELECT correlationId + 9, 'ncclDevKernel_AllReduce_' || correlationId"
       " FROM CUPTI_ACTIVITY_KIND_KERNEL; UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = correlationId + 9",
       into=READABLE)  # fmt: skip
of_sql("a stream and a context for each of 20 000 kernels", KERNELS, ROWS,
       "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET streamId = correlationId, contextId = correlationId % 9000",
       into=READABLE)  # fmt: skip


def two_contexts_with_streams_of_the_same_numbers(folder: Path) -> Path:
    streams = "(SELECT 7 AS s UNION ALL SELECT 13 UNION ALL SELECT 14 UNION ALL SELECT 15 UNION ALL SELECT 16)"
    rows = f"""INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT 1000 * n, 1000 * n + 900, 0, c, s, n, 1, 1, 1, 0 FROM
     (SELECT row_number() OVER () AS n, c, s FROM
      (WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < 40) SELECT i FROM k),
      (SELECT 1 AS c UNION ALL SELECT 2), {streams})"""
    return database(folder, KERNELS, rows)


READABLE["two contexts with streams of the same numbers"] = two_contexts_with_streams_of_the_same_numbers


@small
def a_tensor_of_a_long_name_with_many_phases(folder: Path) -> Path:
    """Each phase refers to the name, which would take gigabytes if it were there for each."""
    path = folder / "timeline.json"
    named = '[{"ph":"M","name":"process_name","pid":0,"args":{"name":"%s"}}' % ("t" * 900_000)
    phase = ',{"ph":"B","name":"NEGOTIATE_ALLREDUCE","pid":0,"ts":%d},{"ph":"E","pid":0,"ts":%d}'
    path.write_text(named + "".join(phase % (2 * at, 2 * at + 1) for at in range(4000)) + "]")
    return path


def a_profile_whose_events_share_long_names(folder: Path) -> Path:
    space = xplane.message()()
    plane = space.planes.add(name="/device:GPU:0")
    for number, word in ((1, "tf_op"), (2, "kernel_details"), (3, "o" * (8 << 20))):
        plane.stat_metadata[number].name = word
    plane.event_metadata[1].name = "k" * (8 << 20)
    line = plane.lines.add(name="Stream #1")
    for at in range(20_000):
        event = line.events.add(metadata_id=1, offset_ps=at * 10**6, duration_ps=10**5)
        event.stats.add(metadata_id=1, ref_value=3)
        event.stats.add(metadata_id=2, ref_value=3)
    path = folder / "long.xplane.pb"
    path.write_bytes(space.SerializeToString())
    return path


READABLE["a profile whose events share long names"] = a_profile_whose_events_share_long_names


@small
def kernels_of_rocprofv3_that_share_a_long_name(folder: Path) -> Path:
    path = folder / "1_results.db"
    shutil.copy(Path(__file__).parents[1] / "fuzz" / "corpus" / "rocprofv3.database" / "steps.db", path)
    with closing(sqlite3.connect(path)) as connection, connection:
        found = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        kernels = next(name for name in found if name.startswith("rocpd_kernel_dispatch"))
        symbols = next(name for name in found if name.startswith("rocpd_info_kernel_symbol"))
        connection.execute(f"UPDATE \"{symbols}\" SET display_name = printf('%.*c', 8000000, 'k')")
        listed = [row[1] for row in connection.execute(f'PRAGMA table_info("{kernels}")')]
        chosen = ", ".join("100000 + i" if name == "id" else f'"{name}"' for name in listed)
        counted = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)"
        first = f'(SELECT * FROM "{kernels}" LIMIT 1)'
        connection.execute(f'INSERT INTO "{kernels}" {counted} SELECT {chosen} FROM n, {first}')
    return path


@small
def ranges_whose_domains_share_a_long_name(folder: Path) -> Path:
    of_domains = """
    CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT, domainId INT);
    INSERT INTO StringIds VALUES (2, printf('%.*c', 8000000, 'd'));
    INSERT INTO NVTX_EVENTS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
     SELECT 0, NULL, 75, NULL, 2, 1, i FROM n
     UNION ALL SELECT 10 * i, 10 * i + 5, 59, NULL, 1, 1, i FROM n;
    """
    return database(folder, KERNELS, ROWS, of_domains)


def of_partial(name: str, *parts: bytes) -> None:
    """A partial file whose units are these, each part packed once however often it is named."""
    head = b'{"schema": "ringscope.partial/1", "version": "%s", "window": null, "doubts": [], "units": ['
    SMALL[name] = lambda folder: gzipped(folder, "host.partial", head % VERSION.encode(), *parts)


of_partial("a partial file of four gigabytes of blanks", *[b" " * (64 * MIB)] * 64)
of_partial("a partial file of a gigabyte of numbers", *[b"1,1,1,1," * (2 * MIB)] * 64, b"1]}")
of_partial("a partial file of 75 million lists", *[b"[],[],[]," * MIB] * 24, b"1]}")
of_partial("a partial file nested 200 000 deep", b"[" * 200_000)
of_partial("a partial file of units without anything", b"{}," * MIB, b"{}]}")


def rows_that_share_pages(folder: Path, table: str, columns: str) -> Path:
    """Two thousand rows of eight megabytes of text, which is there once: all places of its parent lead to one leaf."""
    size = 1 << 16
    path = database(folder, f"PRAGMA page_size = {size};", KERNELS, ROWS)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS TARGET_INFO_GPU (id INT, name TEXT, busLocation TEXT)")
        connection.execute("CREATE TABLE IF NOT EXISTS META_DATA_EXPORT (name TEXT, value TEXT)")
        connection.execute("CREATE TABLE IF NOT EXISTS DIAGNOSTIC_EVENT (timestamp INT, text TEXT)")
        connection.execute(f"DELETE FROM {table}")
        for number, text in enumerate(["x" * (8 * MIB)] * 2 + ["y" * (size // 40)] * 200, 1):
            connection.execute(f"INSERT INTO {table} {columns} VALUES (?, ?)", (number, text))
        ((root,),) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [table]).fetchall()
    data = bytearray(path.read_bytes())
    at = (root - 1) * size
    cell = at + int.from_bytes(data[at + 12 : at + 14], "big")
    leaf = data[cell : cell + 4]
    inside = (int.from_bytes(leaf, "big") - 1) * size
    data[inside + 3 : inside + 5] = (1).to_bytes(2, "big")  # its first row alone
    data[at + size - 13 : at + size] = bytes(leaf) + b"\x01" + bytes(8)
    data[at + 3 : at + 7] = (2000).to_bytes(2, "big") + (size - 13).to_bytes(2, "big")
    data[at + 8 : at + 12] = leaf
    data[at + 12 : at + 12 + 2 * 2000] = (size - 13).to_bytes(2, "big") * 2000
    path.write_bytes(bytes(data))
    return path


for _table, _columns in (
    ("StringIds", "(id, value)"),
    ("TARGET_INFO_GPU", "(id, name)"),
    ("META_DATA_EXPORT", "(name, value)"),
    ("DIAGNOSTIC_EVENT", "(timestamp, text)"),
    ("CUPTI_ACTIVITY_KIND_KERNEL", "(start, streamId)"),
):
    SMALL[f"rows of {_table} that share pages"] = partial(rows_that_share_pages, table=_table, columns=_columns)


@small
def events_of_rocprofv3_that_all_have_one_number(folder: Path) -> Path:
    """A join of kernels with their events has as many rows as both multiplied."""
    path = folder / "1_results.db"
    shutil.copy(Path(__file__).parents[1] / "fuzz" / "corpus" / "rocprofv3.database" / "steps.db", path)
    with closing(sqlite3.connect(path)) as connection, connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        events = next(name for name in names if name.startswith("rocpd_event"))
        kernels = next(name for name in names if name.startswith("rocpd_kernel_dispatch"))
        listed = [row[1] for row in connection.execute(f'PRAGMA table_info("{events}")')]
        connection.execute(f'DROP TABLE "{events}"')
        connection.execute(f'CREATE TABLE "{events}" ({", ".join(listed)})')
        counted = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)"
        connection.execute(f'INSERT INTO "{events}" (id, stack_id) {counted} SELECT 1, i FROM n')
        listed = [row[1] for row in connection.execute(f'PRAGMA table_info("{kernels}")')]
        told = {"id": "100000 + i", "event_id": "1"}
        chosen = ", ".join(told.get(name, f'"{name}"') for name in listed)
        first = f'(SELECT * FROM "{kernels}" LIMIT 1)'
        connection.execute(f'INSERT INTO "{kernels}" {counted} SELECT {chosen} FROM n, {first}')
    return path


@small
def an_archive_with_a_header_of_four_megabytes_of_zeros(folder: Path) -> Path:
    """Python before 3.11.10 looks for a word in it in the square of its length."""
    header, path = tarfile.TarInfo("pax"), folder / "pax.tar"
    header.type, header.size = tarfile.XHDTYPE, 4_000_000
    path.write_bytes(header.tobuf(tarfile.USTAR_FORMAT) + b"0" * header.size + bytes(-header.size % 512 + 1024))
    return path


def of_headers(name: str, *headers: tuple[bytes, bytes], into: dict[str, Make] = SMALL) -> None:
    """An archive of one trace that can be read, with these headers (type and data) before it."""

    def make(folder: Path) -> Path:
        path = folder / "odd.tar"
        event = EVENT % (1, 1)
        found = b""
        for kind, data in (*headers, (tarfile.REGTYPE, trace(event).encode())):
            header = tarfile.TarInfo("trace.json")
            header.type, header.size = kind, len(data)
            found += header.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)
        path.write_bytes(found + bytes(1024))
        return path

    into[name] = make


of_headers(
    "an archive with a map of holes that is none",
    (tarfile.XHDTYPE, b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n34 GNU.sparse.realsize=64424509440\n"),
)
of_headers("an archive of a thousand long names of one file", *[(tarfile.GNUTYPE_LONGLINK, b"a" * 100)] * 1000)
of_headers("an archive with a NUL in a name", (tarfile.XHDTYPE, b"12 path=a\0b\n"), into=READABLE)
of_headers("an archive with a name that is no UTF-8", (tarfile.XHDTYPE, b"13 path=a\xff\xfe\n"), into=READABLE)


@small
def an_archive_of_a_file_that_is_all_hole(folder: Path) -> Path:
    """A kilobyte that is unpacked to 60 GB."""
    header, size = tarfile.TarInfo("zeros.json"), 60 << 30
    header.size = 512
    block = bytearray(header.tobuf(tarfile.GNU_FORMAT))
    block[156:157] = b"S"
    block[386:398] = b"\x80" + (size - 512).to_bytes(11, "big")
    block[398:410] = b"%011o\0" % 512
    block[482:495] = b"\0\x80" + size.to_bytes(11, "big")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:512])
    path = folder / "hole.tar"
    path.write_bytes(bytes(block) + b"x" * 512 + bytes(1024))
    return path
