"""A run in the formats of other tools: valid by their own schema or grammar, and with the run's numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from profiles.gate.exported import Value, values
from profiles.ground.errors import RingscopeError
from profiles.measuring.subject import Subject
from profiles.model import measures_json
from profiles.runs.records import Cell
from profiles.scaling.measure import Scaling
from profiles.scaling.rows import CellRow
from profiles.verbs.gate import command
from profiles.views.files import exports
from tests.made.hand import gpu, measures

MS = 1_000_000
# bencher.dev/docs/reference/bencher-metric-format
_NUMBER = {"type": "number"}
_METRIC = {
    "type": "object",
    "properties": {"value": _NUMBER, "lower_value": _NUMBER, "upper_value": _NUMBER},
    "required": ["value"],
}
BENCHER = {"type": "object", "patternProperties": {".+": {"type": "object", "patternProperties": {".+": _METRIC}}}}
# benchmark-action/github-action-benchmark, README.md
GITHUB = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "unit": {"type": "string"}, "value": _NUMBER},
        "required": ["name", "unit", "value"],
    },
}
# prometheus.io/docs/specs/om/open_metrics_spec, its ABNF
_SAMPLE = re.compile(r'([a-z_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\} (-?[0-9.]+(?:e-?[0-9]+)?)')


def written(folder: Path, source: Path | None = None) -> dict[str, str]:
    if source is None:
        source = folder / "m.json"
        source.write_text(measures_json.dumps(measures([gpu(ledger={"idle_feed": MS, "h2d": None})])))
    words = [word for ending in exports.FORMATS for word in ("--export", str(folder / f"run{ending}"))]
    result = CliRunner().invoke(command, [str(source), *words])
    assert result.exit_code == 0, result.output
    return {ending: (folder / f"run{ending}").read_text() for ending in exports.FORMATS}


def test_each_format_is_valid_and_tells_the_same_numbers(tmp_path: Path) -> None:
    texts = written(tmp_path)
    bencher, github = json.loads(texts[".bmf.json"]), json.loads(texts[".benchmark.json"])
    jsonschema.validate(bencher, BENCHER)
    jsonschema.validate(github, GITHUB)
    told = {measure: one["value"] for measure, one in bencher["training"].items()}
    assert (told["step_ns"], told["idle_feed_ns"], told["feed_gap_share"]) == (10 * MS, MS, 0.1)
    assert "h2d_ns" not in told and "exposed_h2d_share" not in told  # unknown is no 0
    assert {one["name"]: one["value"] for one in github} == {
        f"training: {name}": value for name, value in told.items() if name != "compute_share"
    }
    *lines, end, _ = texts[".openmetrics"].split("\n")
    assert end == "# EOF"
    found = {}
    for line in lines:
        if line.startswith("# "):
            assert re.fullmatch(r"# (TYPE \w+ gauge|UNIT \w+_(seconds|ratio) \2|HELP \w+ .+)", line)
            continue
        name, labels, value = _SAMPLE.fullmatch(line).groups()  # type: ignore[union-attr]
        measure = re.search(r'measure="(.*?)"', labels)[1]  # type: ignore[index]
        found[measure] = float(value) * (1e9 if name == "ringscope_time_seconds" else 1)
    assert found == pytest.approx(told)


def test_cells_of_a_sweep_are_benchmarks_of_their_own() -> None:
    cells = [Cell("mlp", ranks, 64) for ranks in (1, 2)]
    rows = [
        CellRow(cell, 1, 1, "ok", "", samples_per_s_global=rate, efficiency=share)
        for cell, rate, share in zip(cells, (100.0, 160.0), (1.0, 0.8), strict=True)
    ]
    found = {
        (one.benchmark, one.measure): one.value for one in values(Subject("", None, Scaling([], rows, [], [], {})))
    }
    assert found == pytest.approx(
        {(cells[0].id, "sample_ns"): 1e7, (cells[1].id, "sample_ns"): 6.25e6, (cells[1].id, "efficiency"): 0.8}
    )


def test_the_logs_of_nccl_tell_the_bandwidth_and_the_waiting_in_every_format(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for rank, us in enumerate((400, 500)):
        header = {"id": "0xa", "rank": rank, "n_ranks": 2, "nnodes": 1}
        call = {"coll": "AllReduce", "coll_sn": 0, "coll_msg_size_bytes": 10_000_000, "coll_exec_time_us": us}
        line = {"header": header, "metadata": {"hostname": "a", "pid": rank}, "coll_perf": call}
        (logs / f"a-pid{rank}.log").write_text(json.dumps(line) + "\n")
    texts = written(tmp_path, logs)
    rate, waiting = 10_000_000 / 400e-6, 100 / 500  # two ranks: the factor is 1
    bencher, github = json.loads(texts[".bmf.json"]), json.loads(texts[".benchmark.json"])
    assert bencher["AllReduce"] == {"bus_gb_per_s": {"value": pytest.approx(rate / 1e9)}}
    jsonschema.validate(github, GITHUB)
    found = {one["name"]: one["value"] for one in github}
    assert found == pytest.approx({"AllReduce: bus_s_per_gb": 1e9 / rate, "training: waiting_share": waiting})
    samples = [match for line in texts[".openmetrics"].split("\n") if (match := _SAMPLE.fullmatch(line))]
    assert {match[1]: float(match[3]) for match in samples} == pytest.approx(
        {"ringscope_bandwidth_bytes_per_second": rate, "ringscope_share_ratio": waiting}
    )


def test_any_name_of_a_cell_is_told_whole() -> None:
    odd = 'a "b" \\ c\nd'
    text = exports.openmetrics([Value(odd, "step_ns", "ns", 5e9)])
    labels = next(match for line in text.split("\n") if (match := _SAMPLE.fullmatch(line)))[2]
    value = re.match(r'benchmark="((?:[^"\\]|\\.)*)"', labels)[1]  # type: ignore[index]
    assert re.sub(r"\\(.)", lambda one: "\n" if one[1] == "n" else one[1], value) == odd
    assert "5.0" in text and json.loads(exports.bencher([Value(odd, "step_ns", "ns", 5e9)]))[odd]


@pytest.mark.parametrize("name", ["run.json", "run", "bmf.json.txt"])
def test_a_name_that_tells_no_format_is_refused(name: str) -> None:
    with pytest.raises(RingscopeError, match=re.escape(".openmetrics")):
        exports.of(Path(name))


def test_two_exports_into_one_file_are_refused(tmp_path: Path) -> None:
    words: list[Any] = ["a.json", "--export", tmp_path / "a.bmf.json", "--export", tmp_path / "a.bmf.json"]
    result = CliRunner().invoke(command, [str(word) for word in words])
    assert isinstance(result.exception, RingscopeError) and "cannot write the same file" in str(result.exception)
