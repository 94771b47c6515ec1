"""Can a recording be trusted: recordings with a known fault and without one, and the weights one by one."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from profiles.doubts import forecasts, inference, logged, sweeps, trust, weights
from profiles.gate.judgement import judge
from profiles.ground.errors import RingscopeError
from profiles.measuring.subject import Subject
from profiles.model import measures_json
from profiles.model.measures import GpuMeasures, Measures, Trust
from profiles.model.operations import Launches
from profiles.model.timeline import Doubt
from profiles.verbs.check import command
from profiles.verbs.timeline import command as timeline
from tests.made.hand import gpu, measures
from tests.recordings import DATA, ROOT

MS = 1_000_000
PAGE = ROOT / "docs" / "reference" / "doubts.md"


def check(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(one) for one in arguments])


def doubted(code: str, *gpus: GpuMeasures, where: tuple[str, ...] = ()) -> Measures:
    found = measures(gpus or (gpu(),))
    found.doubts = [Doubt(code, "", "", where)]
    return found


def verdict(code: str, *gpus: GpuMeasures, where: tuple[str, ...] = ()) -> str:
    return trust.judged(doubted(code, *gpus, where=where)).verdict


@pytest.mark.parametrize(
    ("names", "exit_code", "because"),
    [
        (["resnet50-2gpu-prefetch.rank0.sqlite.xz", "resnet50-2gpu-prefetch.rank1.sqlite.xz"], 0, []),
        (["lstm-1gpu.rank0.sqlite.xz"], 0, []),
        (["made/k_plain.json.gz"], 0, []),
        (["made/k_merged.json.gz"], 0, []),
        (["cnn-1gpu-node.rank0.sqlite.xz"], 0, []),
        (["cnn-1gpu-graph.rank0.sqlite.xz"], 1, ["graph-level-recording"]),
        (["made/jax.trace.json.gz"], 1, ["no-api-rows"]),
        (["made/k_drop.json.gz"], 2, ["launches-lost"]),
        (["made/k_hipgraph.json.gz"], 2, ["launches-lost"]),
    ],
)
def test_recordings_whose_fault_is_known(names: Sequence[str], exit_code: int, because: list[str]) -> None:
    result = check(*(DATA / name for name in names), "--json", "-")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["exit_code"], found["because"]) == (exit_code, exit_code, because)
    assert found["schema"] == "ringscope.check/1"
    assert len(found["recordings"]) == len(names)


def test_ranks_in_one_file_are_told_and_take_no_trust_away() -> None:
    found = json.loads(check(DATA / "made" / "k_merged0.json.gz", "--json", "-").stdout)
    assert [(one["weight"]) for one in found["reasons"] if one["code"] == "ranks-in-one-file"] == ["note"]


def test_what_cannot_be_read_is_no_verdict_and_has_the_exit_code_of_no(tmp_path: Path) -> None:
    (tmp_path / "text.sqlite").write_text("no recording")
    result = check(tmp_path / "text.sqlite", "--json", "-")
    assert isinstance(result.exception, RingscopeError) and result.exception.exit_code == 2 and not result.stdout
    whole = DATA / "lstm-1gpu.rank0.sqlite.xz"
    beside = check(whole, tmp_path / "text.sqlite", "--json", "-")
    assert (beside.exit_code, json.loads(beside.stdout)["because"]) == (2, ["unreadable"])


def test_every_doubt_of_recordings_has_a_weight_and_no_other() -> None:
    others = {Path(module.__file__).name for module in (forecasts, inference, logged, sweeps) if module.__file__}
    codes = set()
    for path in (ROOT / "profiles" / "doubts").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())) if path.name not in others else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Doubt":
                assert isinstance(node.args[0], ast.Constant)
                codes.add(node.args[0].value)
    assert codes == set(weights.OF)


def test_the_page_says_what_the_table_of_weights_says() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| ((?:note|care|refuse)[^|]*) \| ([^|]*) \|$", PAGE.read_text(), re.MULTILINE)
    assert {code: (weight, numbers) for code, weight, numbers in rows} == {
        code: (_told(one), one.numbers) for code, one in weights.OF.items()
    }


def _told(one: weights.Weight) -> str:
    told = one.least if one.share is None else f"{one.least} from {weights.LITTLE:.0%} on"
    return told if one.refuse_from == float("inf") else f"{told}, refuse from {one.refuse_from:.0%}"


@pytest.mark.parametrize(("lost", "expected"), [(5, "yes"), (50, "with care"), (99, "with care"), (100, "no")])
def test_lost_launches_weigh_by_their_share(lost: int, expected: str) -> None:
    assert verdict("launches-lost", replace(gpu(), launches=Launches(1000, lost))) == expected


@pytest.mark.parametrize(
    ("code", "owner"),
    [("calls-missing", "idle_unknown"), ("no-api-rows", "idle_unknown"), ("python-traced", "idle_launch")],
)
@pytest.mark.parametrize(("ns", "expected"), [(99_000, "yes"), (100_000, "with care"), (9 * MS, "with care")])
def test_a_doubt_about_time_weighs_by_the_time(code: str, owner: str, ns: int, expected: str) -> None:
    """Of steps of 10 ms."""
    assert verdict(code, gpu(ledger={owner: ns})) == expected


@pytest.mark.parametrize(
    ("ns", "expected"), [(0, "yes"), (3 * MS, "with care"), (49 * MS, "with care"), (50 * MS, "no")]
)
def test_a_start_weighs_by_its_share(ns: int, expected: str) -> None:
    assert verdict("start-up-inside-window", replace(gpu(), startup_ns=ns)) == expected


@pytest.mark.parametrize(
    ("unit", "idle_ns", "expected"),
    [("step", 0, "with care"), ("step", 4 * MS, "with care"), ("step", 5 * MS, "no"), ("batch", 9 * MS, "with care")],
)
def test_no_training_is_refused_if_it_is_mostly_idle_and_no_server(unit: str, idle_ns: int, expected: str) -> None:
    one = gpu(ledger={"idle_launch": idle_ns})
    one.steps.unit = unit
    assert verdict("mostly-no-training", one) == expected


@pytest.mark.parametrize(("kernels", "expected"), [((0,), "no"), ((0, 0), "no"), ((0, 100), "with care")])
def test_a_recording_in_which_no_gpu_computes_is_refused(kernels: tuple[int, ...], expected: str) -> None:
    gpus = [gpu(rank=rank, kernels={"count": count}) for rank, count in enumerate(kernels)]
    assert verdict("mostly-no-training", *gpus) == expected


@pytest.mark.parametrize(
    ("residual_ns", "expected"), [(None, "with care"), (20_000, "yes"), (100_000, "with care"), (5 * MS, "with care")]
)
def test_clocks_weigh_by_how_far_they_are_apart_in_a_step(residual_ns: int | None, expected: str) -> None:
    found = doubted("clock-residual", gpu(rank=0), gpu(rank=1), where=("/clock",))
    found.clock = {"residual_ns": residual_ns}
    assert trust.judged(found).verdict == expected


@pytest.mark.parametrize(
    ("launches", "expected"),
    [(Launches(1000, 1), "with care"), (Launches(1000, 200), "no"), (Launches(0, 0), "no"), (None, "no")],
)
def test_what_the_profiler_dropped_weighs_by_what_launches_tell(launches: Launches | None, expected: str) -> None:
    assert verdict("dropped-events", replace(gpu(), launches=launches)) == expected


@pytest.mark.parametrize(
    ("uuid", "collectives", "expected"), [("GPU-0", 0, "yes"), (None, 0, "with care"), ("GPU-0", 9, "with care")]
)
def test_processes_on_a_gpu_without_a_name_or_with_collectives_may_be_ranks(
    uuid: str | None, collectives: int, expected: str
) -> None:
    one = replace(gpu(), uuid=uuid, collectives=replace(gpu().collectives, count=collectives))
    assert verdict("several-processes-on-gpu", one) == expected


@pytest.mark.parametrize(("host", "expected"), [("a", "yes"), (None, "with care")])
def test_a_bus_id_names_a_gpu_of_several_recordings_only_on_a_known_host(host: str | None, expected: str) -> None:
    one = replace(gpu(), uuid=None, bus_id="0000:19:00.0", recordings=[0, 1])
    found = doubted("several-processes-on-gpu", one)
    found.recordings = [replace(found.recordings[0], host=host)] * 2
    assert trust.judged(found).verdict == expected


def test_a_doubt_weighs_on_the_gpus_that_it_names() -> None:
    both = (gpu(rank=0), gpu(rank=1, ledger={"idle_unknown": MS}))
    where = "/ledger_ns/idle_unknown"
    assert verdict("calls-missing", *both, where=(f"/gpus/0{where}",)) == "yes"
    assert verdict("calls-missing", *both, where=(f"/gpus/1{where}",)) == "with care"
    assert verdict("calls-missing", *both, where=(f"/gpus/0{where}", f"/gpus/1{where}")) == "with care"


def test_the_heaviest_doubt_decides_and_one_of_a_later_version_asks_for_care() -> None:
    found = measures([gpu()])
    found.doubts = [Doubt(code, "", "") for code in ("peak-unknown", "of-a-later-version", "peak-unknown")]
    assert trust.judged(found) == Trust("with care", ["of-a-later-version"])
    found.doubts += [Doubt("capture-recording", "", "")] * 2
    assert trust.judged(found) == Trust("no", ["capture-recording"])
    assert [one.weight for one in trust.reasons(found)] == ["refuse", "refuse", "care", "note", "note"]


def test_timeline_page_and_json_say_the_verdict(tmp_path: Path) -> None:
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "html", "markdown", "json-summary")}
    options = [word for kind, path in files.items() for word in (f"--{kind}", str(path))]
    shown = CliRunner().invoke(timeline, [str(DATA / "made" / "k_drop.json.gz"), *options])
    line = "trusted: no (launches-lost); ringscope check says why"
    assert [one for one in shown.stdout.splitlines() if one == line]
    for kind in ("json", "json-summary"):
        assert json.loads(files[kind].read_text())["trust"] == {"verdict": "no", "because": ["launches-lost"]}
    assert all(line.capitalize() in files[kind].read_text() for kind in ("html", "markdown"))
    assert measures_json.load(files["json"]).trust == Trust("no", ["launches-lost"])


def test_measures_of_an_earlier_version_are_checked_and_gated(tmp_path: Path) -> None:
    written = measures_json.to_json(doubted("capture-recording"))
    assert written.pop("trust") is None
    path = tmp_path / "measures.json"
    path.write_text(json.dumps(written))
    assert check(path).exit_code == 2
    judged = judge(Subject("run", measures_json.load(path), None), at_most={"idle_sync_share": 1}, at_least={})
    assert judged.trust == Trust("no", ["capture-recording"])
