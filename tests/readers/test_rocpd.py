"""rocprofv3's databases, made as rocpd_tables.sql and generateRocpd.cpp of ROCm/rocprofiler-sdk make them.

They hold what results.json holds, so each is read and both are compared.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from profiles import analyse
from profiles.ground.errors import UnreadableRecording
from profiles.readers import read
from tests.readers.test_rocprofv3 import CPU, GPU0, GPU1, KERNELS, KINDS, Made, results, training

TABLES = {
    "string": "id, guid, string",
    "info_node": "id, guid, hash, machine_id, system_name, hostname, release, version",
    "info_process": "id, guid, nid, ppid, pid, init, fini, start, end, command, environment, extdata",
    "info_agent": "id, guid, nid, pid, type, absolute_index, logical_index, type_index, uuid, name, model_name, "
    "vendor_name, product_name, user_name, extdata",
    "info_kernel_symbol": "id, guid, nid, pid, code_object_id, kernel_name, display_name",
    "track": "id, guid, nid, pid, tid, name_id, extdata",
    "event": "id, guid, category_id, stack_id, parent_stack_id, correlation_id, call_stack, line_info, extdata",
    "region": "id, guid, nid, pid, tid, start, end, name_id, event_id, extdata",
    "sample": "id, guid, track_id, timestamp, event_id, extdata",
    "kernel_dispatch": "id, guid, nid, pid, tid, agent_id, kernel_id, dispatch_id, queue_id, stream_id, start, end, "
    "region_name_id, event_id, extdata",
    "memory_copy": "id, guid, nid, pid, tid, start, end, name_id, dst_agent_id, dst_address, src_agent_id, "
    "src_address, size, queue_id, stream_id, region_name_id, event_id, extdata",
}
NODES = {CPU: 0, GPU0: 2, GPU1: 3}  # the numbers of agents among all of a host


class Tables:
    """Those of one process; their names end in its number."""

    def __init__(self, connection: sqlite3.Connection, made: Made) -> None:
        self.connection, self.made, self.end = connection, made, f"_{made.pid:08x}_0190"
        for table, columns in TABLES.items():
            quoted = ", ".join(f'"{name.strip()}"' for name in columns.split(","))
            connection.execute(f'CREATE TABLE "rocpd_{table}{self.end}" ({quoted})')
        # As rocprofv3 makes them, so that queries need not know a process.
        connection.execute(f'CREATE VIEW IF NOT EXISTS rocpd_event AS SELECT * FROM "rocpd_event{self.end}"')
        self.strings: dict[str, int] = {}
        self.events = 0

    def add(self, table: str, **row: Any) -> None:
        names, values = ", ".join(f'"{name}"' for name in row), ", ".join("?" * len(row))
        sql = f'INSERT INTO "rocpd_{table}{self.end}" ({names}) VALUES ({values})'
        self.connection.execute(sql, tuple(row.values()))

    def string(self, text: str) -> int:
        if text not in self.strings:
            self.strings[text] = len(self.strings) + 1
            self.add("string", id=self.strings[text], string=text)
        return self.strings[text]

    def event(self, record: dict[str, Any], extra: str = "{}") -> dict[str, Any]:
        """The columns that all of a process's records have."""
        self.events += 1
        category, correlation = list(KINDS)[record["kind"]], record["correlation_id"]["internal"]
        self.add("event", id=self.events, category_id=self.string(category), stack_id=correlation, extdata=extra)
        times = {"start": record["start_timestamp"], "end": record["end_timestamp"]}
        return {"pid": self.made.pid, "tid": record["thread_id"], "event_id": self.events, **times}

    def fill(self) -> None:
        process = self.made.process()
        self.add("info_node", id=1, hostname=process["metadata"]["node"]["hostname"])
        for one in process["agents"]:
            kind = {1: "CPU", 2: "GPU"}[one["type"]]
            told = {"type_index": one["logical_node_type_id"], "name": one.get("name"), "extdata": json.dumps(one)}
            told["product_name"] = one.get("product_name")
            self.add("info_agent", id=NODES[one["id"]["handle"]], type=kind, **told)
        for number, name in enumerate(KERNELS):
            self.add("info_kernel_symbol", id=number, display_name=name)
        messages = {one["key"]: one["value"] for one in self.made.messages}
        for table, records in self.made.records.items():
            for record in records:
                self._record(table, record, messages)

    def _record(self, table: str, record: dict[str, Any], messages: dict[int, str]) -> None:
        name = KINDS[list(KINDS)[record["kind"]]][record["operation"]]
        if table == "kernel_dispatch":
            did = record["dispatch_info"]
            places = {"agent_id": NODES[did["agent_id"]["handle"]], "kernel_id": did["kernel_id"]}
            self.add(table, **self.event(record), **places, stream_id=record["stream_id"]["handle"])
        elif table == "memory_copy":
            ends = {f"{end}_agent_id": NODES[record[f"{end}_agent_id"]["handle"]] for end in ("src", "dst")}
            more = {"size": record["bytes"], "stream_id": record["stream_id"]["handle"], "name_id": self.string(name)}
            self.add(table, **self.event(record), **ends, **more)
        elif table == "marker_api":
            text = json.dumps({"message": messages[record["correlation_id"]["internal"]]})
            row = self.event(record, text)
            if row["start"] == row["end"]:
                self.add("track", id=self.events, pid=row["pid"], tid=row["tid"])
                self.add("sample", track_id=self.events, timestamp=row["start"], event_id=row["event_id"])
            else:
                self.add("region", name_id=self.string(name), **row)
        else:
            self.add("region", name_id=self.string(name), **self.event(record))


def database(path: Path, *processes: Made) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        for made in processes:
            Tables(connection, made).fill()
        connection.commit()
    return path


def _sorted(frame: pd.DataFrame) -> pd.DataFrame:
    plain = frame.astype({name: str for name in frame if isinstance(frame[name].dtype, pd.CategoricalDtype)})
    return plain.sort_values(list(plain.columns), ignore_index=True)


def test_a_database_says_what_the_results_of_the_same_run_say(tmp_path: Path) -> None:
    second = training(909, GPU1)
    second.copy("DEVICE_TO_DEVICE", 700_000, 710_000, 99, GPU1, GPU0, 64)
    second.copy("DEVICE_TO_HOST", 720_000, 730_000, 97, GPU1, CPU, 64)
    second.copy("HOST_TO_HOST", 730_000, 740_000, 96, CPU, CPU, 64)
    second.messages.append({"key": 95, "value": "here"})
    second.record("marker_api", "roctxMarkA", 5_000, 5_000, 95)
    both = (training(), second)
    told, expected = read(database(tmp_path / "908_results.db", *both)), read(results(tmp_path / "results.json", *both))
    assert (told.recording.format, told.recording.tool, told.recording.host) == ("rocpd", "rocprofv3", "amd1")
    assert told.recording.origin_ns == expected.recording.origin_ns
    assert told.left_out == expected.left_out == {"operations that name no GPU": 1}
    for table in ("kernels", "copies", "api", "marks", "devices"):
        pd.testing.assert_frame_equal(_sorted(getattr(told, table)), _sorted(getattr(expected, table)))
    assert len(told.kernels) == 24 and "here" in set(told.marks["name"])


def test_it_is_measured_like_any_other_recording(tmp_path: Path) -> None:
    (gpu,) = analyse([database(tmp_path / "results.db", training())], window="steps").measures.gpus
    assert (gpu.steps.source, gpu.steps.count) == ("marks", 6)
    assert gpu.ledger_ns["compute"] == 6 * (275_002 + 154_993)
    assert gpu.framework == "hip"


def test_another_schema_is_refused_and_told_what_to_record(tmp_path: Path) -> None:
    path = database(tmp_path / "results.db", training())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute('ALTER TABLE "rocpd_region_0000038c_0190" RENAME COLUMN "start" TO start_id')
        connection.commit()
    with pytest.raises(UnreadableRecording, match=r"rocpd.*schema.*rocpd_region") as refused:
        read(path)
    assert "--output-format json" in refused.value.remedy


def test_odd_values_are_left_out_and_counted(tmp_path: Path) -> None:
    path = database(tmp_path / "results.db", training())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute('UPDATE "rocpd_kernel_dispatch_0000038c_0190" SET "end" = \'x\' WHERE rowid = 1')
        connection.execute("UPDATE \"rocpd_info_agent_0000038c_0190\" SET extdata = x'ff00'")
        connection.execute('UPDATE "rocpd_event_0000038c_0190" SET extdata = 7')
        connection.execute(  # lists in lists without end
            'UPDATE "rocpd_event_0000038c_0190" SET extdata = ? WHERE rowid % 2', ('{"message":' + "[" * 100_000,)
        )
        connection.commit()
    timeline = read(path)
    assert len(timeline.kernels) == 11 and len(timeline.marks) == 0
    assert timeline.left_out == {"without times": 1, "calls of rocTX without a text": 6}
