"""examples/: every file runs, and does what its README says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.harness.running import prepared, run_python
from tests.profiles.gate.test_action import environment, shell_of
from tests.recordings import DATA, ROOT

EXAMPLES = ROOT / "examples"
TRAINING = ("keras_fit", "custom_loop", "tfrecords", "elastic")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], str]:
    """What two ranks say of all training scripts, and what they printed."""
    pytest.importorskip("horovod.tensorflow")
    out = tmp_path_factory.mktemp("trained")
    done = run_python("-m", "tests.examples.every_script", str(out), prefix=prepared("gloo"), timeout_s=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(2)], done.stdout


@pytest.mark.exhaustive
@pytest.mark.train
@pytest.mark.beside
@pytest.mark.parametrize("script", [*TRAINING, "api"])
def test_a_script_trains_both_ranks_as_one(script: str, trained: tuple[list[dict[str, Any]], str]) -> None:
    ranks, _ = trained
    assert [rank["size"] for rank in ranks] == [2, 2]
    first, second = (rank["scripts"][script] for rank in ranks)
    assert first["weights"] == second["weights"]
    assert first["seen"] and second["seen"]


@pytest.mark.exhaustive
@pytest.mark.train
@pytest.mark.beside
@pytest.mark.parametrize("script", TRAINING)
def test_a_script_learns_and_rank_0_alone_says_so(script: str, trained: tuple[list[dict[str, Any]], str]) -> None:
    ranks, printed = trained
    losses = ranks[0]["scripts"][script]["losses"]
    assert losses[-1] < 0.8 * losses[0]
    assert len(re.findall(rf"loss {losses[0]:.3f} -> {losses[-1]:.3f} on 2 ranks", printed)) == 1


@pytest.mark.exhaustive
def test_the_notebook_says_what_the_recordings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    import ringscope

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(EXAMPLES / "measures.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    said = "\n".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in outputs)
    measures = ringscope.measure(DATA / "resnet50-2gpu-prefetch.rank*.sqlite.xz")
    kernels = ringscope.read(DATA / "resnet50-2gpu-prefetch.rank0.sqlite.xz").kernels
    assert f"at most  {measures.findings[0].code}: {measures.findings[0].text}" in said
    assert f"{len(kernels):,} kernels" in said
    period = measures.gpus[0].steps.period_ns
    assert period is not None
    assert f"{period.p50 / 1e6:.3f}" in said
    assert any("image/svg+xml" in output.get("data", {}) for output in outputs)


def workflow() -> Any:
    return yaml.safe_load((EXAMPLES / "gate.yml").read_text())


def test_the_workflow_is_valid_by_githubs_schema_and_gives_the_action_only_inputs_that_it_has() -> None:
    pytest.importorskip("check_jsonschema")
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*check, str(EXAMPLES / "gate.yml")], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    (given,) = (step["with"] for step in workflow()["jobs"]["gate"]["steps"] if "ringscope" in step["uses"])
    assert set(given) <= set(yaml.safe_load((ROOT / "action.yml").read_text())["inputs"])


@pytest.mark.parametrize(
    ("recording", "code"), [("dense41m-1gpu-pinned-float32", 1), ("resnet50-2gpu-in-stream", 0)], ids=["worse", "good"]
)
def test_the_workflows_gate_holds_good_recordings_and_breaks_on_worse_ones(
    recording: str, code: int, tmp_path: Path
) -> None:
    (given,) = (step["with"] for step in workflow()["jobs"]["gate"]["steps"] if "ringscope" in step["uses"])
    folder = tmp_path / given["paths"].strip()
    folder.mkdir()
    for path in DATA.glob(f"{recording}.rank*"):
        shutil.copy(path, folder)
    inputs = {"PATHS": given["paths"], "AT_MOST": given["max"], "AT_LEAST": given["min"]}
    done = subprocess.run(
        shell_of("gate"), cwd=tmp_path, env=environment(tmp_path, **inputs), capture_output=True, text=True, timeout=900
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert ("broken" in (tmp_path / "summary.md").read_text()) == bool(code)


def test_the_readme_has_a_row_and_a_command_for_each_example() -> None:
    readme = (EXAMPLES / "README.md").read_text()
    rows = dict(re.findall(r"^\| \[([\w.]+)\]\(\1\) \|.*\| (.+) \|$", readme, re.MULTILINE))
    assert set(rows) == {path.name for path in EXAMPLES.iterdir() if path.is_file()} - {"README.md"}
    for name in TRAINING:
        assert rows[f"{name}.py"] == f"`horovodrun -np 2 python examples/{name}.py`"
        assert rows[f"{name}.py"].strip("`") in (EXAMPLES / f"{name}.py").read_text()
