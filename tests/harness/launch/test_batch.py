"""Files for batch systems: whatever a person gives is quoted, and the systems' own parsers take them."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness import launch
from harness.jobs import bench as jobs_bench
from harness.launch import hosts, kubeflow, lsf, pbs, slurm
from harness.launch.batch import Request
from harness.launch.hosts import Host
from harness.verbs import bench
from profiles.ground.errors import RingscopeError

ECHO = (sys.executable, "-c", "import os, sys, json; print(json.dumps([sys.argv[1:], dict(os.environ)]))")
NASTY = ["a b", "a'b", 'a"b', "$(touch pwned)", "`touch pwned`", "; touch pwned", "a\nb", "\\", "#x", "*", "-x", "é"]
ENVIRON = {"PATH": "/usr/bin:/bin", "NCCL_DEBUG": "IN FO$(touch pwned)", "HF_TOKEN": "hush", "SLURM_JOB_ID": "1"}
REQUEST = Request(argv=(*ECHO, *NASTY), ranks=8, minutes=90, log=Path("/logs/job.log"), environ=ENVIRON)
NODES = {"PBS_NODEFILE": "/n", "LSB_DJOB_HOSTFILE": "/n"}
SCRIPTS: dict[str, Callable[[Request], str]] = {
    "slurm": slurm.script,
    "srun": lambda request: slurm.script(request, by_srun=True),
    "pbs": pbs.script,
    "lsf": lsf.script,
}


def directives(text: str) -> list[str]:
    return [line.partition(" ")[2] for line in text.splitlines() if re.match(r"#(SBATCH|PBS|BSUB) ", line)]


@pytest.fixture(params=SCRIPTS)
def make(request: pytest.FixtureRequest) -> Callable[[Request], str]:
    return SCRIPTS[request.param]


def test_a_script_runs_the_command_with_its_arguments_as_they_were_given(
    make: Callable[[Request], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "a b\n$(touch pwned)'c"
    here.mkdir()
    monkeypatch.chdir(here)
    log = tmp_path / "it's a log"
    text = make(replace(REQUEST, log=log))
    done = subprocess.run(["bash"], input=text, capture_output=True, text=True, env=NODES)
    assert done.returncode == 0, done.stderr
    told, environ = json.loads(log.read_text() if log.exists() else done.stdout)
    assert told[: len(NASTY)] == NASTY
    assert told[len(NASTY) :] in ([], ["--launcher", "mpirun", "--hostfile", "/n"])
    assert environ["NCCL_DEBUG"] == ENVIRON["NCCL_DEBUG"] and environ["PWD"] == str(here)
    assert "hush" not in text and "SLURM_JOB_ID" not in text
    assert not list(tmp_path.rglob("pwned"))


def test_a_prologue_comes_first_and_its_paths_stay_before_ours(make: Callable[[Request], str], tmp_path: Path) -> None:
    prologue = "load() { export PATH=/of/the/module:$PATH MODULE=loaded; }\nload"
    text = make(replace(REQUEST, prologue=prologue, log=tmp_path / "log"))
    done = subprocess.run(["bash"], input=text, capture_output=True, text=True, env=NODES | {"PATH": "/bin"})
    _, environ = json.loads((tmp_path / "log").read_text() if (tmp_path / "log").exists() else done.stdout)
    assert environ["MODULE"] == "loaded" and environ["PATH"].split(":")[0] == "/of/the/module"
    assert "/usr/bin" in environ["PATH"].split(":")


@pytest.mark.parametrize("where", ["log", "args"])
def test_a_line_break_in_a_directive_is_refused_and_no_command(where: str, make: Callable[[Request], str]) -> None:
    broken = "/logs/a\n#SBATCH --x\ntouch pwned"
    if where == "log":
        if make in (pbs.script, lsf.script):
            pytest.skip("its log is named by the shell, which quotes it")
        request = replace(REQUEST, log=Path(broken))
    else:
        request = replace(REQUEST, args=(broken,))
    with pytest.raises(RingscopeError, match="has a line break"):
        make(request)


def test_a_variable_travels_if_it_is_named(make: Callable[[Request], str]) -> None:
    assert "export HF_TOKEN=hush" in make(replace(REQUEST, variables=("HF_TOKEN",))).splitlines()


def test_slurm_is_asked_for_nodes_cores_and_gpus() -> None:
    request = replace(REQUEST, ranks_per_node=4, cpus_per_rank=12, gpus=True, args=("--partition=a b",))
    asked = directives(slurm.script(request))
    assert asked[:4] == ["--job-name=ringscope", "--ntasks=8", "--time=90", "--output=/logs/job.log"]
    assert {"--ntasks-per-node=4", "--cpus-per-task=12", "--gpus-per-node=4", "--export=NONE"} <= set(asked)
    assert asked[-1] == '"--partition=a b"'  # a person's own come last and win
    assert "--gpus-per-task=1" in directives(slurm.script(request, by_srun=True))
    assert "--gpus=8" in directives(slurm.script(replace(request, ranks_per_node=None)))


@pytest.mark.parametrize(
    ("per_node", "select"),
    [
        (None, "select=1:ncpus=96:mpiprocs=8:ngpus=8"),
        (4, "select=2:ncpus=48:mpiprocs=4:ngpus=4"),
        (3, "select=2:ncpus=36:mpiprocs=3:ngpus=3+1:ncpus=24:mpiprocs=2:ngpus=2"),
    ],
)
def test_pbs_is_asked_for_nodes_cores_and_gpus(per_node: int | None, select: str) -> None:
    asked = directives(
        pbs.script(replace(REQUEST, ranks_per_node=per_node, cpus_per_rank=12, gpus=True, args=("-q", "a b")))
    )
    assert f"-l {select}" in asked and "-l walltime=01:30:00" in asked and asked[-1] == "-q 'a b'"


def test_lsf_is_asked_for_nodes_cores_and_gpus() -> None:
    asked = directives(lsf.script(replace(REQUEST, ranks_per_node=4, cpus_per_rank=12, gpus=True, args=("-q", "gpu"))))
    assert {"-n 8", '-R "span[ptile=4]"', '-R "affinity[core(12)]"', '-gpu "num=4"', "-W 01:30", "-q gpu"} <= set(asked)


def test_the_nodes_of_a_batch_system_are_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("n1\nn1\nn2\nn2\n")
    assert hosts.read(tmp_path / "nodes") == (Host("n1", 2), Host("n2", 2))


# Containers and srun


def test_srun_starts_the_ranks_by_pmix_on_the_nodes_that_are_needed() -> None:
    environ = {"SLURM_CPUS_PER_TASK": "12", "SLURM_JWT": "x"}
    job = launch.command(["python"], ranks=3, launcher="srun", environ=environ, hosts=hosts.parse("a:2,b:2"))
    assert job.argv[:6] == ["srun", "--mpi=pmix", "--ntasks=3", "--nodes=2", "--nodelist=a,b", "--cpus-per-task=12"]
    assert "SLURM_JWT" not in job.env


def test_a_container_has_its_own_python_and_sees_the_run_directory() -> None:
    given: dict[str, Any] = {"ranks": 1, "environ": {}, "log_dir": "/runs/x", "container": "image.sif"}
    rank = [sys.executable, "-m", "worker"]
    argv = launch.command(rank, launcher="mpirun", **given).argv
    inside = argv[argv.index("apptainer") :]
    assert inside[:3] == ["apptainer", "exec", "--nv"] and inside[-4:] == ["image.sif", "python3", "-m", "worker"]
    assert inside[inside.index("/runs/x") - 1] == "--bind"
    srun = launch.command(rank, launcher="srun", **given).argv
    assert "--container-image=image.sif" in srun and sys.executable not in srun
    (mounts,) = (word for word in srun if word.startswith("--container-mounts="))
    assert mounts.endswith(",/runs/x:/runs/x")


# Kubeflow's MPI Operator


def made(**more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    request = replace(REQUEST, ranks_per_node=4, cpus_per_rank=2, gpus=True, prologue="export A='1 2'")
    options = {"name": "20261122-Node_1", "image": "site/ringscope:1", "volume": None, "sweep": '{"cells": []}'} | more
    listed = json.loads(kubeflow.manifest(request, **options))
    config, job = listed["items"]
    return config, job


def test_the_manifest_is_an_mpijob_as_the_operator_defines_it() -> None:
    config, job = made()
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    spec = job["spec"]
    # The operator's API: pkg/apis/kubeflow/v2beta1/types.go, sdk's V2beta1MPIJobSpec.
    fields = "launcherCreationPolicy mpiImplementation mpiReplicaSpecs runLauncherAsWorker runPolicy slotsPerWorker"
    assert set(spec) <= {*fields.split(), "sshAuthMountPath"}
    assert spec["launcherCreationPolicy"] in ("AtStartup", "WaitForWorkersReady")
    assert spec["slotsPerWorker"] == 4 and set(spec["mpiReplicaSpecs"]) == {"Launcher", "Worker"}
    assert set(spec["runPolicy"]) <= {
        "cleanPodPolicy",
        "ttlSecondsAfterFinished",
        "activeDeadlineSeconds",
        "backoffLimit",
    }
    assert spec["runPolicy"]["cleanPodPolicy"] in ("None", "Running", "All")
    worker = spec["mpiReplicaSpecs"]["Worker"]
    assert worker["replicas"] == 2
    assert worker["template"]["spec"]["containers"][0]["resources"] == {"limits": {"cpu": 8, "nvidia.com/gpu": 4}}
    assert config["data"]["sweep.json"] == '{"cells": []}'
    name = job["metadata"]["name"]
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name) and name == config["metadata"]["name"]


def test_its_launcher_resumes_the_sweep_on_the_operators_hosts(tmp_path: Path) -> None:
    _, job = made(volume="claim")
    pod = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
    container = pod["containers"][0]
    assert container["command"][:2] == ["bash", "-c"]
    assert subprocess.run(["bash", "-n", "-c", container["command"][2]]).returncode == 0
    words = shlex.split(container["command"][2].splitlines()[-1])
    assert words[:4] == ["exec", "ringscope", "bench", "--resume"] and words[-1] == "/etc/mpi/hostfile"
    assert {"name": "NCCL_DEBUG", "value": ENVIRON["NCCL_DEBUG"]} in container["env"]
    assert {one["name"] for one in container["env"]}.isdisjoint({"PATH", "HF_TOKEN", "SLURM_JOB_ID"})
    assert pod["volumes"][0] == {"name": "runs", "persistentVolumeClaim": {"claimName": "claim"}}
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl to read the manifest with")
def test_kubectl_reads_the_manifest(tmp_path: Path) -> None:
    config, job = made()
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [config, job]}))
    (tmp_path / "kustomization.yaml").write_text("resources: [job.json]\n")
    done = subprocess.run(["kubectl", "kustomize", str(tmp_path)], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert "kind: MPIJob" in done.stdout and "kind: ConfigMap" in done.stdout


# The verb


@pytest.mark.parametrize(
    ("launcher", "name", "submits"),
    [
        ("slurm", "job.sbatch", "sbatch"),
        ("srun", "job.sbatch", "sbatch"),
        ("pbs", "job.pbs", "qsub"),
        ("lsf", "job.lsf", "bsub <"),
    ],
)
def test_bench_writes_the_file_and_says_how_it_is_submitted(
    launcher: str, name: str, submits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm.shutil, "which", lambda program: None)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    out = tmp_path / "a b"
    words = ["--models", "mlp", "--ranks", "4", "--launcher", launcher, "--out", str(out), "--ranks-per-node", "2"]
    result = CliRunner().invoke(bench.command, words)
    assert result.exit_code == 0, result.output
    text = (out / name).read_text()
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
    assert f"submit it with: {submits} '{out / name}'" in result.output
    assert shlex.quote(str(out)) in text and "--resume" in text


def test_a_job_that_begins_before_sbatch_has_ended_finds_the_run_directory_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.write_text('#!/bin/sh\ncd "$(dirname "$2")" && flock -n .lock true && echo 7\n')
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", str(sbatch.parent), prepend=":")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    words = ["--models", "mlp", "--ranks", "4", "--launcher", "slurm", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(bench.command, [*words, "--ranks-per-node", "2"])
    assert result.exit_code == 0 and "job 7 submitted" in result.output, result.output


def test_bench_writes_a_manifest_with_the_sweep_in_it(tmp_path: Path) -> None:
    words = ["--models", "mlp", "--ranks", "4", "--launcher", "kubeflow", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(bench.command, [*words, "--container", "site/image", "--ranks-per-node", "2"])
    assert result.exit_code == 0, result.output
    config, job = json.loads((tmp_path / "out" / "job.json").read_text())["items"]
    sweep = json.loads(config["data"]["sweep.json"])
    assert [cell["ranks"] for cell in sweep["cells"]] == [4, 4]
    assert job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["image"] == "site/image"


def test_a_dry_run_shows_the_script_and_writes_nothing(tmp_path: Path) -> None:
    words = ["--models", "mlp", "--ranks", "2", "--launcher", "pbs", "--out", str(tmp_path / "out"), "--dry-run"]
    result = CliRunner().invoke(bench.command, words)
    assert result.exit_code == 0 and "#PBS -l select=1:ncpus=2:mpiprocs=2" in result.output
    assert not (tmp_path / "out").exists()


ASKS = {"slurm": "#SBATCH --gpus=4", "srun": "#SBATCH --gpus-per-task=1", "pbs": ":ngpus=4", "lsf": '-gpu "num=4"'}
ASKS |= {"kubeflow": '"nvidia.com/gpu": 4'}


@pytest.mark.parametrize("launcher", ASKS)
def test_a_host_without_gpus_may_submit_to_nodes_that_have_them(launcher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_bench.nvml, "visible_gpus", list)
    words = ["--models", "resnet50", "--ranks", "4", "--launcher", launcher, "--dry-run"]
    words += ["--container", "site/image"] if launcher == "kubeflow" else []
    without = CliRunner().invoke(bench.command, words)
    assert without.exit_code == 0 and ASKS[launcher] not in without.output
    assert "this host has no GPU" in without.output and "--gpu-nodes" in without.output
    given = CliRunner().invoke(bench.command, [*words, "--gpu-nodes"])
    assert given.exit_code == 0 and ASKS[launcher] in given.output and "--gpu-nodes" not in given.output
    assert "resnet50 x4, 256 per rank, feed pinned" in given.output and "256 per rank" not in without.output


def test_gpu_nodes_are_for_a_batch_system() -> None:
    result = CliRunner().invoke(bench.command, ["--gpu-nodes", "--dry-run"])
    assert "--gpu-nodes is for a batch system; name it by --launcher slurm" in str(result.exception)
