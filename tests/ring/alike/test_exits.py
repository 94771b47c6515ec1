"""What two real ranks say and compare when their scripts end, and of the batch they train on (scripts/exits.py).

They alone catch weights that part after the last step, and words that are said twice.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.running import ROOT, prepared, run_python
from tests.ring import SCRIPTS

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.exhaustive]

CASES = ("after a fit", "after Horovod's end", "by an error", "well")
APART = "differs between rank 0 and rank 1"
Ended = dict[str, tuple[list[int], list[str]]]
"""By case the ranks' exit codes and what each printed."""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    out = tmp_path_factory.mktemp("exits")
    jobs = [
        {"name": case, "ranks": 2, "script": str(SCRIPTS / "exits.py"), "words": [case, str(out)]} for case in CASES
    ]
    done = run_python(str(ROOT / "tests" / "harness" / "together.py"), str(out), json.dumps(jobs), prefix=prepared())
    assert done.returncode == 0, done.stdout + done.stderr
    codes = json.loads(Path(out / "codes.json").read_text())
    return {case: (codes[f"{case}.2"], [(out / f"{case}.2.{k}.log").read_text() for k in range(2)]) for case in CASES}


@pytest.mark.parametrize("case", ["after a fit", "after Horovod's end"])
def test_weights_that_are_assigned_apart_after_a_fit_end_the_script_with_an_error(ended: Ended, case: str) -> None:
    codes, said = ended[case]
    assert codes == [1, 1]
    assert all(f"kernel {APART} at the end" in text for text in said)


def test_weights_that_one_rank_changes_or_ranks_train_alone_are_not_compared(ended: Ended) -> None:
    codes, said = ended["well"]
    assert codes == [0, 0], said
    assert not any(APART in text for text in said)


def test_after_an_error_of_the_script_nothing_is_compared_and_the_error_is_the_last_word(ended: Ended) -> None:
    codes, said = ended["by an error"]
    assert codes == [1, 1]
    for text in said:
        assert text.strip().endswith("ValueError: a mistake of the script")
        assert APART not in text


def test_the_batch_of_all_ranks_is_said_once_and_by_rank_0(ended: Ended) -> None:
    _, (first, second) = ended["well"]
    lines = [line.partition(";")[0] for line in first.splitlines() if line.startswith("ring: a step takes")]
    assert lines == [
        "ring: a step takes 2 ranks x 8 = 16 samples",
        "ring: a step takes 2 ranks x 4 = 8 samples",
        "ring: a step takes 2 ranks x a batch of the data",
    ]
    assert "a step takes" not in second


def test_a_model_that_was_not_distributed_is_named_and_no_other(ended: Ended) -> None:
    _, (first, second) = ended["well"]
    lines = [line for line in first.splitlines() if "ring.distribute" in line and "a step takes" not in line]
    assert len(lines) == 1 and lines[0].startswith("ring: model 'forgotten' was not given to ring.distribute")
    assert "forgotten" not in second


def test_ranks_hear_of_a_meeting_though_rank_0_lets_no_thread_run_after_it(ended: Ended) -> None:
    codes, said = ended["well"]
    assert codes == [0, 0], said  # else ended by its alarm
