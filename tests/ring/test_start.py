"""How two real ranks start that do not come to their start at the same time, or end as soon as they have started.

They alone catch a start that another rank's end breaks.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.running import prepared, run_python

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.exhaustive]

SCRIPT = """
import sys, time
from pathlib import Path
from ringscope import ring
from ringscope.ring import start

late, out = int(sys.argv[1]), Path(sys.argv[2])
share_of = start.launcher_share

def launcher_share(rank):  # Horovod has started on both
    time.sleep(3 if rank == late else 0)
    return share_of(rank)

start.launcher_share = launcher_share
ring.init()
(out / str(ring.rank())).write_text(str(ring.size()))
"""


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("launcher", ["gloo", "mpirun"])
def test_a_rank_that_ends_at_once_does_not_end_the_start_of_another(tmp_path: Path, launcher: str, late: int) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = run_python(str(script), str(late), str(tmp_path), prefix=prepared(launcher))
    assert done.returncode == 0, done.stdout + done.stderr
    assert [(tmp_path / str(rank)).read_text() for rank in range(2)] == ["2", "2"]
