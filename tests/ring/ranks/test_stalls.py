"""Two real ranks, one of which waits for what the other does not do (scripts/stalled.py): they say so, end or go on.

They alone catch a wait without an end.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.running import ROOT, prepared, run_python
from tests.ring import SCRIPTS

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.beside, pytest.mark.ci]

# Case -> how the places of ranks 0 and 1 are told.
STUCK = {
    "leaves a step early": (
        "(self.optimizer.apply(tape.gradient(loss, self.trainable_v...), step 2, in the exchange of gradients",
        ", step 3, in the exchange 'weights'",
    ),
    "skips a batch": ("in the exchange of gradients", "(ring.average_statistics(model)), in the exchange 'weights'"),
    "fits alone": (
        "in the exchange 'stop'",
        "(self.model.fit(x, y, batch_size=2, verbose=0)), step 4, in the meeting 'fit'",
    ),
    "trains on a batch alone": ("in the exchange 'weights'", "(model.train_on_batch(x, y)), in a step of the model"),
    "averages alone": ("in the exchange 'stop'", "(ring.average_statistics(self.model)), step 4, in the exchange "),
}
FIRST, ASLEEP = "ends first", "sleeps"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, script = tmp_path_factory.mktemp("stalled"), str(SCRIPTS / "stalled.py")
    jobs = [
        {"name": case, "ranks": 2, "busy": 1, "script": script, "words": [case], "limit_s": 600.0}
        for case in (*STUCK, FIRST, ASLEEP)
    ]
    together = ROOT / "tests" / "harness" / "together.py"
    done = run_python(str(together), str(folder), json.dumps(jobs), prefix=prepared())
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def ended(out: Path, case: str) -> tuple[list[int], list[str]]:
    """The ranks' exit codes, and ring's lines on rank 0."""
    codes = json.loads((out / "codes.json").read_text())[f"{case}.2"]
    lines = (out / f"{case}.2.0.log").read_text().splitlines()
    return codes, [line for line in lines if "ring: " in line]


@pytest.mark.parametrize("case", STUCK)
def test_ranks_that_wait_for_each_other_say_where_and_end(out: Path, case: str) -> None:
    codes, lines = ended(out, case)
    assert codes == [1, 1], lines
    told = next(line for line in lines if "all ranks have waited for each other for 4 s, and end after 9 s" in line)
    first, second = told.split("; rank 1 is at ")
    here, there = STUCK[case]
    assert "rank 0 is at " in first and "stalled.py:" in first and here in first, told
    assert there in second.partition(". All ranks must")[0], told


def test_a_rank_that_waits_for_one_whose_script_has_ended_says_so(out: Path) -> None:
    codes, lines = ended(out, FIRST)
    assert codes == [1, 0], lines
    assert "rank 1 left the training: its script has ended" in lines[-1]


def test_ranks_that_wait_for_one_which_does_something_else_say_so_and_go_on(out: Path) -> None:
    codes, lines = ended(out, ASLEEP)
    assert codes == [0, 0], lines
    asleep = "(time.sleep(3 * stalls.SAY_S)), step 4. It goes on once the others come"
    assert any("a rank has waited for 4 s" in line and asleep in line for line in lines), lines
    assert not any("all ranks have waited" in line for line in lines)
