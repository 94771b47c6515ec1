"""A process that nothing has launched starts as one rank without MPI; what a launcher has started asks MPI."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.harness.running import ROOT, prepared

pytest.importorskip("tensorflow")
pytest.importorskip("horovod", reason="Horovod is not built")

from ringscope.ring.ranks.alone import ONE_RANK, launched

SAY = """
import json, os, sys
from ringscope import ring
before = dict(os.environ)
ring.init(seed=1)
left = sorted(name for name in os.environ if os.environ[name] != before.get(name))
print(json.dumps({"mpi": ring.by_mpi(), "size": ring.size(), "left": left}))
"""
LAUNCH = """
import subprocess
two = ["mpirun", "--oversubscribe", "-np", "2", sys.executable, "-c", sys.argv[1]]
launched = subprocess.run(two, capture_output=True)
sys.stdout.write(launched.stdout.decode())
sys.exit(launched.stderr.decode() if launched.returncode else 0)
"""


def _said(words: Sequence[str], **environ: str) -> list[dict[str, object]]:
    own = {name: value for name, value in os.environ.items() if not launched({name: value})}
    path = f"{Path(sys.executable).parent}:{own['PATH']}"
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    made = subprocess.run(
        words,
        env=own | root | {"PATH": path, "PYTHONPATH": str(ROOT)} | environ,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert made.returncode == 0, made.stderr
    # mpirun may put what two ranks say into one line.
    return [json.loads(one) for one in re.findall(r"\{[^{}]*\}", made.stdout)]


@pytest.mark.train
def test_alone_there_is_no_mpi_and_nothing_is_left_in_the_environment(tmp_path: Path) -> None:
    (tmp_path / "say.py").write_text(SAY)
    (said,) = _said([*prepared(), sys.executable, str(tmp_path / "say.py")])
    assert not said["mpi"] and said["size"] == 1
    assert isinstance(said["left"], list) and not set(ONE_RANK) & set(said["left"])


@pytest.mark.ci
@pytest.mark.train
def test_what_it_launches_are_ranks_of_their_own() -> None:
    said = _said([sys.executable, "-c", SAY + LAUNCH, SAY])
    assert [(one["mpi"], one["size"]) for one in said] == [(False, 1), (True, 2), (True, 2)]


# Which names tell of a launcher is compared below.
@pytest.mark.ci
@pytest.mark.parametrize("name", ["HOROVOD_CONTROLLER", pytest.param("SLURM_PROCID", marks=pytest.mark.exhaustive)])
def test_where_something_else_is_said_horovod_starts_as_it_would(name: str) -> None:
    (said,) = _said([sys.executable, "-c", SAY], **{name: "mpi" if name.startswith("HOROVOD") else "0"})
    assert said["mpi"] and said["size"] == 1


@pytest.mark.parametrize(
    "name",
    [
        "HOROVOD_RANK",
        "HOROVOD_ELASTIC",
        "OMPI_COMM_WORLD_SIZE",
        "PMI_RANK",
        "PMIX_NAMESPACE",
        "MV2_COMM_WORLD_RANK",
        "PALS_RANKID",
        "SLURM_PROCID",
        "SLURM_STEP_ID",
    ],
)
def test_what_launchers_set_is_known(name: str) -> None:
    assert launched({"PATH": "/bin", name: "0"})


@pytest.mark.parametrize("name", ["OMPI_ALLOW_RUN_AS_ROOT", "HOROVOD_FUSION_THRESHOLD", "SLURM_JOB_ID", "MPI_HOME"])
def test_what_others_set_is_not_a_launch(name: str) -> None:
    assert not launched({"PATH": "/bin", name: "1"})
