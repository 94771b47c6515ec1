"""The doctor's judgements on machines as they are met, and a real examination of this one."""

from __future__ import annotations

import copy
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from harness.doctor import checks as doctor
from harness.doctor import equality, trials
from harness.doctor.allreduce import bus_gb_per_s
from harness.doctor.equality import Equality
from harness.machine import describe
from harness.verbs.doctor import _line, command
from profiles.runs.records import Cell
from tests.harness.running import prepared

GPU = {
    "index": 0,
    "name": "NVIDIA H200",
    "uuid": "GPU-0",
    "bus_id": "00000000:01:00.0",
    "memory_bytes": 150_000_000_000,
    "memory_used_bytes": 0,
    "compute_capability": "9.0",
    "pcie_generation": 5,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "nvlinks": 18,
    "processes": 0,
}
HEALTHY = {
    "host": "node",
    "os": "Debian",
    "python": "3.12.3",
    "cpu": {"model": "x", "physical": 8, "logical": 16, "usable": 16},
    "memory_bytes": 10**11,
    "gpus": [GPU, GPU | {"index": 1, "uuid": "GPU-1"}],
    "gpus_reason": None,
    "topology": [["X", "NV18"], ["NV18", "X"]],
    "driver": "580.159.04",
    "cuda_driver": "13.0",
    "packages": {"keras": "3.15.1", "mpi4py": "4.1.2"},
    "mpi": "mpirun (Open MPI) 5.0.11",
    "profilers": {"nsys": {"path": "/usr/bin/nsys", "version": "2025.3.2"}, "nvprof": None},
    "libraries": {
        "tensorflow": {
            "version": "2.21.0",
            "cuda_build": True,
            "built_for_cuda": "12.5.1",
            "built_for_cudnn": "9",
            "gpus": 2,
        },
        "horovod": {
            "version": "0.28.1",
            "mpi_built": True,
            "gloo_built": True,
            "nccl_built": True,
            "cuda_built": True,
            "mpi_library": "Open MPI v5.0.11",
        },
        "cuda_runtime": "12.5",
        "cudnn": "9.5.1",
        "nccl": "2.26.2",
        "seams": {"names": 100, "missing": [], "outside": []},
        "reasons": {},
    },
}


@pytest.fixture(autouse=True)
def _every_gpu_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("KERAS_BACKEND", raising=False)


def judged(**changes: object) -> dict[str, doctor.Check]:
    """The checks of a healthy machine with `part__of__it=value` changed, by name; this host's own memory aside."""
    machine = copy.deepcopy(HEALTHY)
    for path, value in changes.items():
        *parents, last = path.split("__")
        node = machine
        for parent in parents:
            node = node[int(parent) if parent.isdigit() else parent]
        node[last] = value
    return {check.name: check for check in doctor.judge(machine) if check.name != "shared memory"}


def test_a_healthy_machine_has_nothing_to_remedy():
    checks = judged()
    assert {check.status for check in checks.values()} == {"ok"}
    assert all(check.remedy is None for check in checks.values())
    assert {"gpu 0", "gpu 1", "topology", "cuda", "tensorflow", "keras", "horovod", "mpi", "profilers"} <= set(checks)


LACKING = {
    "kind": "form",
    "line": "keras 3.12.4 has no NAME; ring's form is left out of compiled steps",
    "in_last": False,
}


def test_a_form_that_the_newest_release_for_this_python_lacks_is_told_without_a_remedy():
    told = judged(libraries__seams__missing=[{**LACKING, "in_last": True}])["private names"]
    assert (told.status, told.remedy, told.text) == ("ok", None, LACKING["line"])


@pytest.mark.parametrize(
    ("changes", "name", "status", "remedy"),
    [
        ({"libraries__tensorflow__cuda_build": False}, "tensorflow", "failure", "tensorflow[and-cuda]"),
        ({"libraries__tensorflow__gpus": 0}, "tensorflow", "failure", "train on the CPU"),
        ({"libraries__tensorflow": None}, "tensorflow", "failure", "pip install '.[train]'"),
        ({"libraries__horovod": None}, "horovod", "failure", "scripts/build_horovod.py"),
        ({"libraries__horovod__nccl_built": False}, "horovod", "failure", "pass through the host"),
        ({"libraries__horovod__gloo_built": False}, "horovod", "warning", "--launcher mpirun"),
        ({"libraries__horovod__mpi_built": False}, "mpi", "warning", "--launcher horovodrun"),
        ({"mpi": None}, "mpi", "warning", "openmpi"),
        ({"mpi": "HYDRA build details:"}, "mpi", "warning", "not Open MPI;"),
        ({"mpi": "mpirun (Open MPI) 3.1.3"}, "mpi", "warning", "put Open MPI 4 or 5 first"),
        ({"libraries__horovod__mpi_library": "Open MPI v4.1.4"}, "mpi", "warning", "do not find each other"),
        ({"libraries__horovod__mpi_library": "MPICH Version: 4.0.2"}, "mpi", "warning", "do not find each other"),
        ({"cuda_driver": "11.8"}, "cuda", "failure", "update the driver"),
        ({"libraries__seams": None}, "private names", "failure", "pip install '.[train]'"),
        ({"libraries__tensorflow": None}, "tensorflow", "failure", "reading recordings does not need it"),
        ({"packages": {}}, "keras", "failure", "pip install '.[train]'"),
        ({"libraries__seams__outside": ["keras 3.17.0 ..."]}, "private names", "warning", "pip install '.[train]'"),
        ({"libraries__seams__missing": [{**LACKING, "kind": "form"}]}, "private names", "warning", "pip install"),
        ({"libraries__seams__missing": [{**LACKING, "kind": "needed"}]}, "private names", "failure", "pip install"),
        ({"packages__keras": "2.15.0"}, "keras", "failure", "Keras 3"),
        ({"gpus__0__processes": 1}, "gpu 0", "warning", "already use this GPU"),
        ({"gpus__1__pcie_width": 4}, "gpu 1", "warning", "x4 of the card's x16"),
        ({"topology": [["X", "SYS"], ["SYS", "X"]]}, "topology", "warning", "sockets"),
        ({"profilers__nsys": None}, "profilers", "warning", "Nsight Systems"),
        # nvprof knows no GPU of compute capability 8.0 or later.
        (
            {"profilers__nsys": None, "profilers__nvprof": {"path": "/n", "version": "11.8"}},
            "profilers",
            "warning",
            "nsight",
        ),
    ],
)
def test_each_fault_is_told_with_its_remedy_and_touches_no_other_line(changes, name, status, remedy):
    checks = judged(**changes)
    assert checks[name].status == status
    assert remedy in checks[name].remedy
    others = {other: check.status for other, check in checks.items() if other != name}
    assert set(others.values()) == {"ok"}


def test_tensorflows_profiler_is_not_promised_where_tensorflow_is_not() -> None:
    no_tools = {"gpus": [], "profilers__nsys": None, "profilers__nvprof": None}
    assert "TensorFlow's own" in judged(**no_tools)["profilers"].text
    assert judged(**no_tools, libraries__tensorflow=None)["profilers"].status == "n/a"


def test_ranks_of_a_newer_open_mpi_run_under_an_older_mpirun():
    check = judged(mpi="mpirun (Open MPI) 4.1.6")["mpi"]
    assert (check.status, check.text) == ("ok", "mpirun (Open MPI) 4.1.6; Horovod uses Open MPI v5.0.11")


def test_gpus_hidden_on_purpose_are_no_fault(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert judged(libraries__tensorflow__gpus=1)["tensorflow"].status == "ok"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert judged(libraries__tensorflow__gpus=0)["tensorflow"].status == "ok"


def test_small_shared_memory_is_a_warning(monkeypatch):
    monkeypatch.setattr(doctor, "SHM_WANTED_BYTES", 1 << 62)
    check = next(check for check in doctor.judge(HEALTHY) if check.name == "shared memory")
    assert check.status == "warning"
    assert "--shm-size" in check.remedy


def test_bus_bandwidth_is_what_a_ring_carries_over_each_link():
    # 1 GB in 10 ms over 4 ranks: in a ring every link carries 2 x 3/4 of the data.
    assert bus_gb_per_s(10**9, 10**7, 4) == pytest.approx(150.0)
    assert bus_gb_per_s(10**9, 10**7, 1) == 0


def test_slow_pageable_copies_point_to_pinned_memory():
    found = {
        "device": 0,
        "pageable": {"h2d_gb_per_s": 8.0, "d2h_gb_per_s": 9.0},
        "pinned": {"h2d_gb_per_s": 55.0, "d2h_gb_per_s": 54.0},
    }
    check = trials.judge_copies(found)
    assert check.status == "warning"
    assert "6.9 times" in check.remedy
    even = found | {"pageable": found["pinned"]}
    assert trials.judge_copies(even).status == "ok"


SUM = {"bus_gb_per_s": 320.0, "ranks": 2, "device": "gpu", "bytes": 1 << 29, "time_ns": 10**6, "right": True}


@pytest.mark.parametrize(
    ("found", "status", "remedy"),
    [
        ({}, "ok", ""),
        ({"right": False}, "failure", "the sum over ranks is wrong"),
        ({"device": "cpu", "bus_gb_per_s": 1.8}, "warning", "host memory"),
        ({"bus_gb_per_s": 12.0}, "warning", "slower than one NVLink"),
    ],
)
def test_an_all_reduce_is_held_against_what_joins_the_gpus(found, status, remedy):
    check = trials.judge_allreduce(SUM | found, "horovodrun", HEALTHY)
    assert (check.status, remedy in (check.remedy or "")) == (status, True)


def test_an_all_reduce_over_pcie_or_without_gpus_may_be_slow():
    pcie = HEALTHY | {"topology": [["X", "PHB"], ["PHB", "X"]]}
    assert trials.judge_allreduce(SUM | {"bus_gb_per_s": 12.0}, "horovodrun", pcie).status == "ok"
    found = SUM | {"device": "cpu", "bus_gb_per_s": 1.8}
    assert trials.judge_allreduce(found, "mpirun", HEALTHY | {"gpus": [], "topology": None}).status == "ok"


def test_nothing_is_launched_that_cannot_run():
    no_horovod = copy.deepcopy(HEALTHY)
    no_horovod["libraries"]["horovod"] = None
    assert trials.allreduce(no_horovod, ranks=2, launcher="horovodrun").status == "n/a"
    assert trials.allreduce(HEALTHY, ranks=3, launcher="horovodrun").status == "n/a"
    assert trials.allreduce(HEALTHY, ranks=1, launcher="horovodrun").status == "n/a"


def test_a_launch_that_fails_says_why_in_one_line():
    done = trials._run([sys.executable, "-c", "raise ValueError('no such fabric')"], {})
    assert done == "ValueError: no such fabric"
    shown = "Traceback:\n    raise ValueError\n[1]<stderr>:    raise RuntimeError\n[1]<stderr>:RuntimeError: no memory"
    assert trials.why(shown) == "RuntimeError: no memory"
    assert trials._run(["no-such-launcher"], {}) == "no-such-launcher is not on the PATH"


@pytest.mark.parametrize(
    ("changed", "rank", "by", "holds"),
    [
        ("trainable0", 0, 0.0, True),
        ("trainable0", 1, 1e-7, False),  # ranks are equal to the bit, or wrong
        ("other0", 1, 1e-7, False),
        ("trainable1", 2, 1e-3, False),  # of one rank alone
        ("trainable1", 2, 1e-7, True),
        ("trainable1", 2, float("nan"), False),
    ],
)
def test_weights_that_ranks_left_are_compared_to_the_bit_with_each_other_and_nearly_with_one_ranks(
    changed: str, rank: int, by: float, holds: bool, tmp_path: Path
) -> None:
    weights = {name: np.ones(3, np.float32) for name in ("trainable0", "trainable1", "other0")}
    for number, path in enumerate(("together/rank0", "together/rank1", "alone/rank0")):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        more = np.array([0, 0, by if number == rank else 0], np.float32)
        np.savez(tmp_path / path, **weights | {changed: weights[changed] + more})
    found = equality.compare(Cell("mlp", ranks=2, per_rank_batch=1), tmp_path / "together", tmp_path / "alone")
    assert found.holds is holds


def test_ranks_that_drift_apart_are_a_failure_and_those_that_agree_are_not():
    cell = Cell("mlp", ranks=2, per_rank_batch=16, steps=10)
    together = Equality(cell, max_difference=1e-7, trainable_bit_equal=True, statistics_bit_equal=True)
    apart = Equality(cell, max_difference=1e-7, trainable_bit_equal=False, statistics_bit_equal=True)
    wrong = Equality(cell, max_difference=1e-3, trainable_bit_equal=True, statistics_bit_equal=True)
    assert trials.judge_training([together, together], "here").status == "ok"
    assert trials.judge_training([together, apart], "here").status == "failure"
    assert trials.judge_training([wrong, together], "here").status == "failure"


@pytest.mark.ci
@pytest.mark.train
def test_two_real_ranks_train_to_the_weights_of_one(monkeypatch):
    monkeypatch.setattr(trials, "RUN_LIMIT_S", 900)
    pytest.importorskip("horovod", reason="Horovod is not installed")
    machine = HEALTHY | {"gpus": []}
    check = trials.training(machine, ranks=2, launcher="horovodrun")
    assert check.status == "ok", check
    assert set(check.data) == {"fit", "compiled"}
    assert all(found["max_difference"] <= 1e-5 and found["ranks_bit_equal"] for found in check.data.values())


@pytest.mark.ci
@pytest.mark.train
# The training above starts its ranks by horovodrun in every run, which takes 4 s of CPU more.
@pytest.mark.parametrize("launcher", ["mpirun", pytest.param("horovodrun", marks=pytest.mark.exhaustive)])
def test_the_all_reduce_of_two_real_ranks_is_right_and_timed(launcher, monkeypatch):
    monkeypatch.setattr(trials, "RUN_LIMIT_S", 900)
    pytest.importorskip("horovod", reason="Horovod is not installed")
    machine = HEALTHY | {"gpus": []}
    check = trials.allreduce(machine, ranks=2, launcher=launcher)
    assert check.status == "ok", check
    assert check.data["ranks"] == 2
    assert check.data["right"]
    assert check.data["hosts"] == 1
    small, large = check.data["sweep"]
    assert small["bytes"] == 1 << 16 and small["time_ns"] > 0
    assert large["bytes"] == check.data["bytes"] and large["time_ns"] == check.data["time_ns"] > 0
    expected = check.data["bytes"] / check.data["time_ns"]  # 2 (n - 1) / n is 1 for two ranks
    assert check.data["bus_gb_per_s"] == pytest.approx(expected, rel=1e-3)


@pytest.mark.train
def test_the_json_is_whole_and_the_exit_code_says_whether_anything_fails(monkeypatch):
    monkeypatch.setattr(describe, "PROBE", [*prepared(), *describe.PROBE])
    done = CliRunner().invoke(command, ["--quick", "--json"])
    found = json.loads(done.stdout)
    assert found["machine"]["libraries"]["tensorflow"]["version"], found["machine"]["libraries"]
    assert found["schema"] == "ringscope.doctor/1"
    assert all(check["status"] in ("ok", "warning", "failure", "n/a") for check in found["checks"])
    assert all(check["remedy"] for check in found["checks"] if check["status"] in ("warning", "failure"))
    assert done.exit_code == (1 if any(check["status"] == "failure" for check in found["checks"]) else 0)
    assert found["status"] == ("failure" if done.exit_code else "ok")


def test_help_has_examples():
    assert "ringscope doctor --quick" in CliRunner().invoke(command, ["--help"]).output


def test_a_call_that_is_longer_than_the_line_is_printed_whole():
    call = "keras.distribution.set_distribution(keras.distribution.DataParallel())"
    console = Console(width=60, file=io.StringIO())
    console.print(_line(doctor.Check("weights", doctor.FAILURE, "text", f"call {call} first", {})))
    assert call in "".join(console.file.getvalue().split())
