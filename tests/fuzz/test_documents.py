"""Partial files, measures and baselines whose values are not what they should be: read, or refused in one line."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from profiles import analyse
from profiles.gate import baseline_file
from profiles.gate.baseline import baseline_of
from profiles.ground.errors import RingscopeError
from profiles.measuring import subject
from profiles.model import measures_json

from ..recordings import DATA
from . import documents, verbs

RECORDING = DATA / "cnn-1gpu-node.rank0.sqlite.xz"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What ringscope writes of a recording, decoded."""
    folder = tmp_path_factory.mktemp("written")
    found = analyse(RECORDING, partial_to=folder / "a.partial").measures
    (folder / "measures.json").write_text(measures_json.dumps(found))
    baseline = baseline_file.to_json(baseline_of(subject.load([folder / "measures.json"])))
    texts = {"partial": gzip.decompress((folder / "a.partial").read_bytes()), "baseline": json.dumps(baseline)}
    return {name: json.loads(text) for name, text in {**texts, "measures": measures_json.dumps(found)}.items()}


def tried(kind: str, text: bytes, sound: Any, folder: Path) -> dict[str, str]:
    path = folder / {"partial": "a.partial", "measures": "measures.json", "baseline": "baseline.json"}[kind]
    path.write_bytes(gzip.compress(text, 1) if kind == "partial" else text)
    if kind != "baseline":
        said = verbs.read_as(path)
        return {verb: one for verb, one in said.items() if kind == "partial" or verb != "timeline"}
    measured = folder / "measured.json"
    measured.write_text(json.dumps(sound["measures"]))
    return verbs.as_baseline(measured, path)


@pytest.mark.parametrize("count", [12, pytest.param(40, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("kind", ["partial", "measures", "baseline"])
def test_whatever_stands_in_it_is_read_or_refused_in_one_line(
    kind: str, count: int, written: dict[str, Any], tmp_path: Path
) -> None:
    assert not any(tried(kind, json.dumps(written[kind]).encode(), written, tmp_path).values())
    dice = random.Random(8)
    refused = 0
    for _ in range(count):
        text = documents.written(documents.changed(written[kind], dice), dice)
        refused += any(tried(kind, text, written, tmp_path).values())
    assert 4 * refused > count


def without(document: Any, *path: Any) -> Any:
    made = json.loads(json.dumps(document))
    holder = made
    for key in path[:-1]:
        holder = holder[key]
    del holder[path[-1]]
    return made


def test_measures_without_an_owner_are_refused_by_name(written: dict[str, Any]) -> None:
    for place in (("gpus", 0, "ledger_ns", "idle_launch"), ("gpus", 0, "steps", "rows", 3, "ledger_ns", "compute")):
        with pytest.raises(RingscopeError, match=f"has no key {place[-1]}"):
            measures_json.from_json(without(written["measures"], *place))


def put(document: Any, value: Any, *path: Any) -> Any:
    made = json.loads(json.dumps(document))
    holder = made
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return made


@pytest.mark.parametrize(
    ("value", "path", "why"),
    [
        (2**50, ("ledger_ns", "compute"), "a ledger"),
        (2**50, ("capture", "ledger_ns", "compute"), "a ledger"),
        (-1, ("steps", "rows", 3, "ledger_ns", "h2d"), "a ledger"),
        (0, ("steps", "count"), "there are 0"),
        ({"bytes": 1, "busy_ns": 1, "overlap": 0.5}, ("input_copies",), "has no key exposed_ns"),
        ([{"call": "cudaMemcpy"}], ("host_waits",), "missing"),
        ("5", ("capture", "ledger_ns", "compute"), "got `str`"),
        ([{"kind": "api", "name": "x", "ns": "5"}], ("idle_gaps", 0, "host"), "got `str`"),
        ([{"kind": "api", "name": 7, "ns": 1}], ("idle_gaps", 0, "host"), "str"),
        ({"all_reduce": {"count": 1, "busy_ns": 1, "exposed_ns": 1, "dtype": 7}}, ("collectives", "kinds"), "str"),
    ],
)
def test_measures_that_contradict_themselves_are_refused(
    value: Any, path: tuple[Any, ...], why: str, written: dict[str, Any]
) -> None:
    with pytest.raises(RingscopeError, match=why):
        measures_json.from_json(put(written["measures"], value, "gpus", 0, *path))


@pytest.mark.parametrize("where", ["/gpus/0\x1b[31m\n", ""])
def test_a_doubt_about_no_place_in_measures_is_refused(where: str, written: dict[str, Any], tmp_path: Path) -> None:
    doubt = {"code": "x", "text": "x", "next": "x", "where": [where]}
    with pytest.raises(RingscopeError, match="no place in measures"):
        measures_json.from_json(put(written["measures"], [doubt], "doubts"))
    text = json.dumps(put(written["partial"], [doubt], "units", 0, "measured", 0, "doubts")).encode()
    assert all("no place in measures" in one for one in tried("partial", text, written, tmp_path).values())


def test_a_doubt_about_another_gpu_of_a_partial_file_is_read(written: dict[str, Any], tmp_path: Path) -> None:
    doubt = {"code": "x", "text": "x", "next": "x", "where": ["/gpus/7/collectives/bytes_per_step"]}
    text = json.dumps(put(written["partial"], [doubt], "units", 0, "measured", 0, "doubts")).encode()
    assert not any(tried("partial", text, written, tmp_path).values())


def test_a_kind_of_collective_that_is_not_known_is_told_as_an_exchange(written: dict[str, Any], tmp_path: Path) -> None:
    ledger = written["partial"]["units"][0]["measured"][0]["measures"]["ledger_ns"]
    ledger = {**ledger, "collective": ledger["collective"] + ledger["compute"], "compute": 0}
    own = {"": {"count": 5, "busy_ns": ledger["collective"], "exposed_ns": ledger["collective"]}}
    text = put(written["partial"], own, "units", 0, "measured", 0, "measures", "collectives", "kinds")
    text = put(text, ledger, "units", 0, "measured", 0, "measures", "ledger_ns")
    assert not any(tried("partial", json.dumps(text).encode(), written, tmp_path).values())


def test_a_partial_file_with_times_of_a_number_that_it_does_not_have_is_refused(
    written: dict[str, Any], tmp_path: Path
) -> None:
    gpu = written["partial"]["units"][0]["measured"][0]
    gone = next(name for name in gpu["meanwhile"] if gpu["measures"].get(name) is not None)
    text = json.dumps(put(written["partial"], None, "units", 0, "measured", 0, "measures", gone)).encode()
    said = tried("partial", text, written, tmp_path)
    assert all(gone in one for one in said.values()), said


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**400])
def test_numbers_beyond_64_bits_are_refused_and_work_is_not(number: int, written: dict[str, Any]) -> None:
    data = json.loads(json.dumps(written["measures"]))
    data["gpus"][0]["kernels"]["count"] = number
    with pytest.raises(RingscopeError, match="too large"):
        measures_json.from_json(data)


def test_what_a_gpu_computes_may_be_more_than_64_bits_hold(written: dict[str, Any]) -> None:
    data = json.loads(json.dumps(written["measures"]))
    none = {"mfu": None, "mfu_unknown": "", "matrix_share": None, "peak_flops_per_s": None, "peak_bytes_per_s": None}
    told = {"flops": 2**70, "flops_by_dtype": {"float32": 2**70}, "flops_per_s": 1e15, "kernel_ns": 5, "distinct": 0}
    data["gpus"][0]["arithmetic"] = {**none, **told, "peak_source": None, "rows": []}
    found = measures_json.from_json(data).gpus[0].arithmetic
    assert found is not None and found.flops == 2**70
