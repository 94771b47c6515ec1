"""The notebook of docs/ runs from its first cell to its last, and says what the recordings say."""

from __future__ import annotations

import os

import pytest

from profiles.analysis import analyse
from profiles.readers import read_all
from tests.recordings import ROOT

NOTEBOOK = ROOT / "docs" / "measures.ipynb"


def test_the_notebook_runs_and_its_numbers_are_the_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    said = "\n".join(
        output.get("text", "") or output.get("data", {}).get("text/plain", "")
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )
    timelines, _ = read_all(sorted((ROOT / "tests" / "data").glob("resnet50-2gpu-prefetch.rank*.sqlite.xz")))
    measures = analyse(timelines).measures
    assert f"at most  {measures.findings[0].code}: {measures.findings[0].text}" in said
    assert f"{len(timelines[0].kernels):,} kernels" in said
    period = measures.gpus[0].steps.period_ns
    assert period is not None
    assert f"{period.p50 / 1e6:.3f}" in said
