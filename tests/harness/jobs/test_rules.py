"""`ringscope rules`: what its processes write becomes rows; every rule trains both ways."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from harness.jobs import rules
from harness.training.rules import worker
from harness.training.rules.ways import Subject, Ways
from harness.verbs import rules as verb
from profiles.ground.errors import RingscopeError
from profiles.rules import RULES, judge
from profiles.runs.rank_records import read_rank
from tests.harness.running import prepared, run_python

WAYS = Path(__file__).parents[1] / "training" / "scripts" / "rule_ways.py"
# A worker whose advised way is twice as fast; the rule `prefetch` fails.
PLANTED = """
import json, sys, time
from pathlib import Path
from harness.training.rules.worker import record
from profiles.runs.rank_records import write_rank
rule, out = sys.argv[1], Path(sys.argv[2])
if rule == "prefetch":
    raise MemoryError("no room")
turns = [{"advised": k % 4 in (1, 2), "samples": 200 if k % 4 in (1, 2) else 100, "ns": 10**8} for k in range(12)]
write_rank(out / "rank0.jsonl", record(turns, time.time_ns(), "planted", gpu=False))
"""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("horovod.tensorflow")
    (tmp_path / "planted.py").write_text(PLANTED)

    def argv(rule: str, options: Any, gpus: int, folder: Path) -> list[str]:
        return [*prepared(), sys.executable, str(tmp_path / "planted.py"), rule, str(folder)]

    monkeypatch.setattr(rules, "worker", argv)
    monkeypatch.setattr("harness.jobs.sweep.check_training", lambda: None)
    monkeypatch.setattr("harness.machine.nvml.visible_gpus", list)
    monkeypatch.setenv("COLUMNS", "120")


def measure(out: Path, *words: str) -> tuple[int, dict[str, Any]]:
    code = verb.command.main([*words, "--out", str(out)], standalone_mode=False)
    return code, {one["rule"]: one for one in json.loads((out / "rules.json").read_text())["rules"]}


def test_a_rule_is_a_row_a_fault_is_one_and_what_needs_a_gpu_says_so(
    planted: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "rules.html"
    code, rows = measure(tmp_path / "out", "cache", "tf32", "prefetch", "--html", str(page))
    assert code == 1
    assert "ringscope rules cache tf32 prefetch --resume --out" in page.read_text()
    assert {name: one["verdict"] for name, one in rows.items()} == {
        "cache": "holds",
        "tf32": "needs-gpu",
        "prefetch": "failed",
    }
    assert rows["cache"]["ratio"]["median"] == 2.0
    assert rows["prefetch"]["reason"].startswith("oom: rank 0: MemoryError: no room")
    said = capsys.readouterr().out
    assert "1/3 cache" in said and "2.00 x" in said and "2/3 tf32: not measured: this rule is about GPUs" in said

    # What is measured stays; what failed is tried again.
    before = (tmp_path / "out" / "cache" / "0" / "rank0.jsonl").stat().st_mtime_ns
    assert measure(tmp_path / "out", "cache", "prefetch", "--resume")[0] == 1
    assert (tmp_path / "out" / "cache" / "0" / "rank0.jsonl").stat().st_mtime_ns == before
    assert sorted(path.name for path in (tmp_path / "out" / "prefetch").iterdir()) == ["0", "1"]
    with pytest.raises(RingscopeError, match="go on with --resume"):
        measure(tmp_path / "out", "cache")


def test_unknown_names_are_refused_and_the_known_ones_listed(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["cash"], ["--model", "resnet51"]):
        with pytest.raises(RingscopeError, match="choose from"):
            verb.command.main(words, standalone_mode=False)
    verb.command.main(["help"], standalone_mode=False)
    assert capsys.readouterr().out.split() == list(RULES)


class Clock:
    """Time that passes only in the ways, and for all slower and slower."""

    def __init__(self) -> None:
        self.now_ns, self.slow = 0, 1.0

    def way(self, sample_ns: int) -> Callable[[int], int]:
        def take(steps: int) -> int:
            self.slow *= 1.001
            self.now_ns += round(steps * 8 * sample_ns * self.slow)
            return steps * 8

        return take


def test_both_ways_take_turns_of_one_length_in_changing_order() -> None:
    clock = Clock()
    pair = Ways(clock.way(3_000_000), clock.way(1_000_000), "x")
    steps = worker.settle(pair, lambda: clock.now_ns)
    turns = worker.take_turns(pair, steps, 8, lambda: clock.now_ns, lambda done: None)
    assert [turn["advised"] for turn in turns] == [False, True, True, False] * 4
    assert all(turn["ns"] == pytest.approx(worker.TURN_NS, rel=0.15) for turn in turns)
    found = judge(RULES["cache"], turns).ratio
    assert found is not None and found.median == pytest.approx(3.0, rel=0.001)


@pytest.mark.train
@pytest.mark.exhaustive
def test_a_rule_is_measured_on_this_machine(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    done = run_python("-m", "harness", "rules", "cache", "tf32", "--pairs", "6", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stdout + done.stderr
    cached, tf32 = json.loads((tmp_path / "out" / "rules.json").read_text())["rules"]
    turns = read_rank(tmp_path / "out" / "cache" / "0" / "rank0.jsonl").extra["turns"]
    assert [turn["advised"] for turn in turns] == [False, True, True, False] * 3
    assert all(turn["ns"] > 0 and turn["samples"] > 0 for turn in turns)
    found = judge(RULES["cache"], turns)
    assert found.ratio is not None and (cached["verdict"], cached["ratio"]) == (found.verdict, asdict(found.ratio))
    assert cached["ratio"]["count"] == 6
    assert tf32["verdict"] == "needs-gpu"


@pytest.mark.train
@pytest.mark.ci
def test_the_ways_of_every_rule_train_what_they_say(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    done = run_python(str(WAYS), prefix=prepared(), timeout_s=900)
    assert done.returncode == 0, done.stdout + done.stderr
    told, decoded, compiled = json.loads(done.stdout.splitlines()[-1])
    assert set(told) == set(RULES)
    # Samples of three steps of each way; `model.fit` makes whole executions of 16 steps.
    own = {"batch-multiple-of-8": [51, 48], "steps-per-execution": [512, 512], "quiet": [512, 512]}
    model = dict.fromkeys(("bfloat16", "float16", "tf32", "resident-data"), [48, 48])
    assert told == {name: (own | model).get(name, [192, 192]) for name in RULES}
    # Of 512 pictures: cached ones once in 9 batches of 64, others in every epoch, here of 16 batches.
    assert decoded["cached"] == 512 and decoded["again"] >= 1024
    wide = {"features-multiple-of-8": [64 * 16 * 3] * 2}  # a GPU's batch of it is larger
    assert compiled == {name: ({**own, **wide}).get(name, [48, 48]) for name in compiled}
    assert set(compiled) == {"batch-multiple-of-8", "features-multiple-of-8", "bfloat16", "float16", "tf32"}


def test_every_rule_has_its_two_ways() -> None:
    from harness.training.rules import ways

    assert set(ways._MODULES) == set(RULES)
    assert Subject("mlp", 8, gpu=False).device == "/CPU:0"
