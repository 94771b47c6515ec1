"""Scripts that fork, close what they print to, or end without a word, on two real ranks (scripts/odd.py).

They alone catch a fork, a closed stream or a silent end of one rank that leaves the others waiting.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.harness.running import ROOT, prepared, run_python
from tests.ring import SCRIPTS

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.beside, pytest.mark.exhaustive]

WELL = ("forks", "forks, which fails", "closes stdout", "closes stderr", "closes descriptors")
ENDS = (
    "ends by os._exit 0",
    "ends by os._exit 3",
    "before another fit ends by os._exit 0",
    "in its own loop ends by os._exit 0",
    "in a joint evaluation ends by os._exit 0",
)
WELL_ALONE = "saved at the end by os._exit 0"
LIMIT_S = 600.0  # only ends what hangs


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    script = str(SCRIPTS / "odd.py")
    jobs = [
        {"name": case, "ranks": 2, "script": script, "words": [case], "limit_s": LIMIT_S}
        for case in (*WELL, *ENDS, WELL_ALONE)
    ]
    together = ROOT / "tests" / "harness" / "together.py"
    done = run_python(str(together), str(folder), json.dumps(jobs), prefix=prepared())
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def codes(out: Path, case: str) -> list[int]:
    found: list[int] = json.loads((out / "codes.json").read_text())[f"{case}.2"]
    return found


@pytest.mark.parametrize("case", WELL)
def test_a_training_goes_on_whatever_its_script_does_to_its_process(out: Path, case: str) -> None:
    said = [(out / f"{case}.2.{rank}.log").read_text() for rank in range(2)]
    assert codes(out, case) == [0, 0], said
    one, other = (np.load(out / f"{case}.2.{rank}.npz") for rank in range(2))
    assert one.files
    for key in one.files:
        np.testing.assert_array_equal(one[key], other[key], err_msg=key)


@pytest.mark.parametrize("case", ENDS)
def test_a_rank_that_ends_without_a_word_ends_the_others_with_an_error(out: Path, case: str) -> None:
    first, second = codes(out, case)
    said = (out / f"{case}.2.0.log").read_text()
    assert second == int(case.split()[-1]) and first > 0, said
    own = [line for line in said.splitlines() if "/horovod/common/" not in line]  # its threads log meanwhile
    assert "rank 1 left the training" in own[-1], said


def test_a_rank_that_is_done_before_the_others_may_end_by_os_exit(out: Path) -> None:
    assert codes(out, WELL_ALONE) == [0, 0], (out / f"{WELL_ALONE}.2.0.log").read_text()
