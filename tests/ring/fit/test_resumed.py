"""BackupAndRestore: what some ranks have kept, others go on with.

They alone catch a training resumed by another number of ranks that differs from one rank's.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.harness.running import ROOT, prepared, run_python

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.beside, pytest.mark.exhaustive]


def run(out: Path, *jobs: tuple[str, int, list[str]]) -> None:
    out.mkdir(exist_ok=True)
    script = str(ROOT / "tests" / "ring" / "scripts" / "backup_by_others.py")
    told = [{"name": name, "ranks": ranks, "script": script, "words": words} for name, ranks, words in jobs]
    together = ROOT / "tests" / "harness" / "together.py"
    done = run_python(str(together), str(out), json.dumps(told), prefix=prepared())
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(sum(json.loads((out / "codes.json").read_text()).values(), [])) == {0}, sorted(out.iterdir())


def test_a_job_cut_off_within_an_epoch_goes_on_by_any_number_of_ranks(tmp_path: Path) -> None:
    kept, by = tmp_path / "kept", {1: tmp_path / "one", 3: tmp_path / "three"}
    run(tmp_path / "cut", ("cut", 2, [str(kept), "cut"]))
    for folder in by.values():
        shutil.copytree(kept, folder)
    alone = ("alone", 1, [str(tmp_path / "alone"), "cut", "resume"])
    run(tmp_path / "on", alone, *(("on", ranks, [str(folder), "resume"]) for ranks, folder in by.items()))
    wanted = np.load(tmp_path / "on" / "alone.1.0.npz")
    assert any("momentum" in key or "velocity" in key for key in wanted.files)
    for ranks in by:
        found = np.load(tmp_path / "on" / f"on.{ranks}.0.npz")
        # Who was cut off and went on in one process has made another model before, so that names differ.
        for mine, theirs in zip(found.files, wanted.files, strict=True):
            np.testing.assert_allclose(found[mine], wanted[theirs], rtol=1e-5, atol=1e-6, err_msg=f"{ranks}: {theirs}")
