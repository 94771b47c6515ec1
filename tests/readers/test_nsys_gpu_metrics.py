"""GPU metrics and power of nsys: a real recording of two H200s beside plain SQL, and built ones for what it lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profiles import readers
from profiles.model.gpu_metrics import METRICS
from profiles.model.timeline import Timeline
from profiles.readers import cut, span

from ..recordings import DATA, rows
from .test_nsys_sqlite import CUPTI, build, kernel, strings

REAL = DATA / "gpu-metrics" / "phases-2gpu.sqlite.xz"
# The names of each metric on GH100; the values of several names are summed.
CALLED = {
    "gr_active": ["GR Active [Throughput %]"],
    "sm_active": ["SMs Active [Throughput %]"],
    "sm_issue": ["SM Issue [Throughput %]"],
    "tensor_active": ["Tensor Active [Throughput %]"],
    "dram_read": ["DRAM Read Bandwidth [Throughput %]"],
    "dram_write": ["DRAM Write Bandwidth [Throughput %]"],
    **{
        f"nvlink_{way.lower()}": [
            f"NVLink {way} {what} {kind} Data [Throughput %]"
            for what in ("Requests", "Responses")
            for kind in ("Protocol", "User")
        ]
        for way in ("RX", "TX")
    },
    "pcie_rx": ["PCIe RX Throughput [Throughput %]"],
    "pcie_tx": ["PCIe TX Throughput [Throughput %]"],
}


@pytest.mark.parametrize("device", [0, 1])
def test_every_counter_is_that_of_plain_sql_and_pandas(device: int) -> None:
    asked = (
        "SELECT timestamp, metricName, value FROM GPU_METRICS g JOIN TARGET_INFO_GPU_METRICS t"
        f" ON t.typeId = g.typeId AND t.metricId = g.metricId WHERE g.typeId % 256 = {device} AND metricName != ''"
    )
    told = pd.DataFrame(rows(REAL, asked), columns=["at", "name", "value"]).pivot(
        index="at", columns="name", values="value"
    )
    read = readers.read(REAL)
    found = read.gpu_metrics[read.gpu_metrics["device"] == device]
    assert found["at_ns"].tolist() == told.index.tolist() and len(told) == 250
    for key, names in CALLED.items():
        assert found[key].tolist() == told[names].sum(axis=1).clip(upper=100).tolist(), key
    assert set(CALLED) == set(METRICS) and not read.left_out
    assert found["lasts_ns"].iloc[:-1].tolist() == np.diff(told.index).tolist()


def test_power_is_that_of_plain_sql_in_the_order_of_the_gpus() -> None:
    told = rows(
        REAL,
        "SELECT e.typeId & 255, timestamp, uintVal FROM GENERIC_EVENTS e JOIN GENERIC_EVENT_DATA d"
        " ON d.genericEventId = e.genericEventId AND fieldIdx = 0 ORDER BY 1, 2",
    )
    found = readers.read(REAL).power
    assert list(found.itertuples(index=False, name=None)) == [(at, kind - 1, watts) for kind, at, watts in told]
    assert len(told) == 4


# ---- built

GPU = 1 << 48  # the type of the counters of GPU 0; its lowest byte is the number


def counter(at: Any, metric: Any, value: Any, kind: Any = GPU) -> dict[str, Any]:
    return {"rawTimestamp": at, "timestamp": at, "typeId": kind, "metricId": metric, "value": value}


def name(metric: int, called: Any, kind: int = GPU) -> dict[str, Any]:
    return {"typeId": kind, "sourceId": GPU, "typeName": "", "metricId": metric, "metricName": called}


def read(path: Path, counters: list[dict[str, Any]], names: list[dict[str, Any]], **more: Any) -> Timeline:
    tables = {"StringIds": strings("k"), CUPTI + "KERNEL": [kernel(0, 1000)]}
    tables |= {"GPU_METRICS": counters} if counters else {}
    tables |= {"TARGET_INFO_GPU_METRICS": names} if names else {}
    return readers.read(build(path / "a.sqlite", {**tables, **more}))


def column(found: Timeline, key: str, device: int = 0) -> dict[int, int]:
    table = found.gpu_metrics[found.gpu_metrics["device"] == device]
    return dict(zip(table["at_ns"].tolist(), table[key].tolist(), strict=True))


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0), (100, 100), (101, 100), (200, 100), (201, -1), (-1, -1), (-375_012, -1), (None, -1), (1 << 62, -1)],
)
def test_what_is_no_percentage_is_not_known(tmp_path: Path, value: Any, expected: int) -> None:
    found = read(tmp_path, [counter(0, 3, value), counter(100, 3, 50)], [name(3, "SMs Active [Throughput %]")])
    assert column(found, "sm_active") == {0: expected, 100: 50}
    assert column(found, "tensor_active") == {0: -1, 100: -1}
    assert sum(found.left_out.values()) == (expected < 0)


@pytest.mark.parametrize(
    ("called", "key"),
    [
        ("SMs Active", "sm_active"),
        ("SM Active [%]", "sm_active"),
        ("DRAM Read Throughput [Throughput %]", "dram_read"),
        ("PCIe Read Throughput [Throughput %]", "pcie_rx"),
        ("NVLink RX Bandwidth [Throughput %]", "nvlink_rx"),
        ("Tensor Active / FP16 Active [Throughput %]", None),  # of chips without a counter for tensor cores alone
        ("DRAM Read Bandwidth [Avg]", None),
        ("Compute Warps in Flight [Throughput %]", None),
        (None, None),
        (7, None),
    ],
)
def test_counters_are_taken_by_name_whatever_their_number(tmp_path: Path, called: Any, key: str | None) -> None:
    found = read(tmp_path, [counter(0, 77, 40), counter(100, 77, 41)], [name(77, called)])
    known = [one for one in METRICS if (found.gpu_metrics[one] >= 0).any()]
    assert known == ([key] if key else [])


def test_a_sample_lasts_until_the_next_or_a_period_where_some_are_missing(tmp_path: Path) -> None:
    found = read(tmp_path, [counter(at, 3, 1) for at in (0, 100, 202, 300, 900, 1000)], [name(3, "SMs Active")])
    assert found.gpu_metrics["lasts_ns"].tolist() == [100, 102, 98, 100, 100, 100]
    assert read(tmp_path / "..", [], []).gpu_metrics.empty


def test_rows_that_nothing_names_and_times_of_other_centuries_are_left_out(tmp_path: Path) -> None:
    far = 1 << 62
    counters = [counter(0, 3, 10), counter(100, 99, 20), counter(200, 3, 30, GPU + 5), counter(far, 3, 40)]
    counters += [counter(-far, 3, 50), counter(None, 3, 60), counter(300, None, 70), counter(400, 3, 80, None)]
    found = read(tmp_path, counters, [name(3, "SMs Active")])
    assert {at: value for at, value in column(found, "sm_active").items() if value >= 0} == {0: 10}
    assert max(column(found, "sm_active")) < far and found.left_out == {"impossible times in GPU_METRICS": 3}


def test_the_first_of_two_values_and_of_two_names_counts(tmp_path: Path) -> None:
    names = [name(3, "SMs Active"), name(3, "Tensor Active"), name(4, "SMs Active")]
    found = read(tmp_path, [counter(0, 3, 10), counter(0, 3, 20), counter(0, 4, 30), counter(100, 4, 40)], names)
    assert set(column(found, "sm_active").values()) <= {10, 40}
    assert column(found, "tensor_active") == {0: -1, 100: -1}


def test_two_types_tell_of_one_gpu_and_add_up_once(tmp_path: Path) -> None:
    other = GPU + 0x400  # the same lowest byte
    rx = ["NVLink RX Requests User Data", "NVLink RX Responses User Data"]
    names = [name(0, rx[0]), name(1, rx[1]), name(0, rx[0], other), name(1, "SMs Active", other)]
    counters = [counter(0, 0, 30), counter(0, 1, 40), counter(0, 0, 30, other), counter(0, 1, 9, other)]
    found = read(tmp_path, [*counters, counter(100, 0, 5, other), counter(200, 0, 90), counter(200, 1, 90)], names)
    assert column(found, "nvlink_rx") == {0: 70, 100: 5, 200: 100}
    assert column(found, "sm_active") == {0: 9, 100: -1, 200: -1}


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        ([], {0: 10, 1: 11}),  # nothing says which GPU is which device
        ([(50, 0, 1)], {0: 11}),  # CUDA_VISIBLE_DEVICES=1: the process calls it 0
        ([(50, 0, 1), (51, 0, 0)], {0: 10, 1: 11}),  # each calls its own 0
    ],
)
def test_counters_are_of_the_gpu_that_the_process_used(
    tmp_path: Path, used: list[tuple[int, int, int]], expected: dict[int, int]
) -> None:
    numbers = [{"gpuId": gpu, "cudaId": cuda, "pid": pid} for pid, cuda, gpu in used]
    counters = [counter(at, 3, 10 + gpu, GPU + gpu) for at in (0, 100) for gpu in (0, 1)]
    more: dict[str, Any] = {"TARGET_INFO_CUDA_DEVICE": numbers} if numbers else {}
    found = read(tmp_path, counters, [name(3, "SMs Active", GPU + gpu) for gpu in (0, 1)], **more)
    of_device = {
        device: column(found, "sm_active", device)[0] for device in found.gpu_metrics["device"].unique() if device >= 0
    }
    assert of_device == expected


@pytest.mark.parametrize("lacks", ["typeId", "metricId", "value", "timestamp", "metricName", "names"])
def test_a_recording_whose_tables_lack_something_is_read_without_counters(tmp_path: Path, lacks: str) -> None:
    counters = [{key: value for key, value in counter(0, 3, 10).items() if key != lacks}]
    names = [{key: value for key, value in name(3, "SMs Active").items() if key != lacks}]
    assert read(tmp_path, counters, [] if lacks == "names" else names).gpu_metrics.empty


# ---- power


def powered(kinds: int, gpus: int, value: dict[str, Any] | None = None, fields: str = "Power Temperature") -> Any:
    told = {"uintVal": 300, "intVal": None, "doubleVal": None} | (value or {})
    texts = strings("k", "Power", "Temperature", "Users", "queue length")
    called = [next(one["id"] for one in texts if one["value"] == field) for field in fields.split()]
    tables: dict[str, Any] = {"StringIds": texts, CUPTI + "KERNEL": [kernel(0, 1000)]}
    tables["TARGET_INFO_GPU"] = [{"id": gpu, "name": "NVIDIA H200"} for gpu in range(gpus)]
    tables["GENERIC_EVENT_TYPE_FIELDS"] = [
        {"typeId": 500 + kind, "fieldIdx": place, "fieldNameId": id} for kind in range(kinds) for place, id in
        enumerate(called)
    ]  # fmt: skip
    tables["GENERIC_EVENTS"] = [
        {"genericEventId": kind, "timestamp": 10 * kind, "typeId": 500 + kind, "data": "mine"} for kind in range(kinds)
    ]
    tables["GENERIC_EVENT_DATA"] = [{"genericEventId": kind, "fieldIdx": 0, **told} for kind in range(kinds)]
    return tables


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        (powered(2, 2), [(0, 0, 300.0), (10, 1, 300.0)]),
        (powered(1, 1, {"uintVal": None, "doubleVal": 12.5}), [(0, 0, 12.5)]),
        (powered(1, 1, {"uintVal": None}), []),
        (powered(1, 1, {"uintVal": -3}), []),
        (powered(1, 1, {"uintVal": 1 << 40}), []),
        (powered(1, 1, {"uintVal": "much"}), []),
        (powered(1, 2), [(0, -1, 300.0)]),  # whose it is, nobody says
        (powered(2, 2, fields="Power"), []),  # another program's counter
    ],
)
def test_power_is_read_with_its_gpu_and_impossible_readings_are_left_out(
    tmp_path: Path, tables: Any, expected: list[tuple[int, int, float]]
) -> None:
    found = readers.read(build(tmp_path / "a.sqlite", tables)).power
    assert list(found.itertuples(index=False, name=None)) == expected


@pytest.mark.parametrize("gone", ["GENERIC_EVENTS", "GENERIC_EVENT_DATA", "GENERIC_EVENT_TYPE_FIELDS"])
def test_power_needs_all_its_tables_and_a_cut_does_without(tmp_path: Path, gone: str) -> None:
    path = build(tmp_path / "a.sqlite", {name: one for name, one in powered(2, 2).items() if name != gone})
    assert readers.read(path).power.empty
    cut.write(path, tmp_path / "b.sqlite", within=span.Span(0, 5), shrink=True, strip_private=True)
    assert len(readers.read(tmp_path / "b.sqlite").kernels) == 1


# ---- cut


def test_a_cut_keeps_the_counters_and_the_power_of_its_span_alone(tmp_path: Path) -> None:
    whole = readers.read(REAL)
    low, high = 230_000_000, 235_000_000
    cut.write(REAL, tmp_path / "b.sqlite", within=span.Span(low, high), shrink=True, strip_private=True)
    part = readers.read(tmp_path / "b.sqlite")
    for table in ("gpu_metrics", "power"):
        one, other = getattr(whole, table), getattr(part, table)
        kept = one[(one["at_ns"] >= low) & (one["at_ns"] < high)].reset_index(drop=True)
        assert len(kept) and len(kept) < len(one)
        pd.testing.assert_frame_equal(kept.drop(columns="lasts_ns", errors="ignore"),
                                      other.drop(columns="lasts_ns", errors="ignore"))  # fmt: skip
    events, data = (
        rows(tmp_path / "b.sqlite", f"SELECT COUNT(*) FROM GENERIC_EVENT{of}")[0][0] for of in ("S", "_DATA")
    )
    assert data == 2 * events == 2 * len(part.power)


def test_stripping_leaves_power_and_known_counters_of_the_generic_events_and_no_other(tmp_path: Path) -> None:
    tables = powered(2, 2)
    tables["GENERIC_EVENT_TYPE_FIELDS"] += [{"typeId": 900, "fieldIdx": 0, "fieldNameId": 4}]
    tables["GENERIC_EVENTS"] += [{"genericEventId": 9, "timestamp": 1, "typeId": 900, "data": "mine"}]
    tables["GENERIC_EVENT_DATA"] += [{**tables["GENERIC_EVENT_DATA"][0], "genericEventId": 9}]
    tables["GPU_METRICS"] = [counter(0, 3, 10), counter(100, 4, 20)]
    tables["TARGET_INFO_GPU_METRICS"] = [name(3, "SMs Active [Throughput %]"), name(4, "Secrets of my company [%]")]
    path = build(tmp_path / "a.sqlite", tables)
    cut.write(path, tmp_path / "b.sqlite", strip_private=True)
    new = (tmp_path / "b.sqlite").read_bytes()
    assert not [text for text in (b"queue length", b"mine", b"Secrets") if text in new]
    assert rows(tmp_path / "b.sqlite", "SELECT COUNT(*) FROM GENERIC_EVENTS") == [(2,)]
    assert rows(tmp_path / "b.sqlite", "SELECT COUNT(*) FROM GENERIC_EVENT_DATA") == [(2,)]
    before, after = readers.read(path), readers.read(tmp_path / "b.sqlite")
    pd.testing.assert_frame_equal(before.gpu_metrics, after.gpu_metrics)
    pd.testing.assert_frame_equal(before.power, after.power)
