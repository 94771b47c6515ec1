"""Kubeflow's MPI Operator: a manifest of an MPIJob (kubeflow.org/v2beta1) that runs the sweep in pods.

The fields are those in the operator's `pkg/apis/kubeflow/v2beta1/types.go`. A ConfigMap holds the sweep, so the cluster
needs no access to this machine's disk. The operator lists the workers in /etc/mpi/hostfile and lets the launcher in by
ssh.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import PurePosixPath
from typing import Any

from . import batch
from .environment import FAMILIES, passes

RUNS = "/runs"  # where the launcher's pod mounts the volume
SWEEP = "/etc/ringscope"
HOSTFILE = "/etc/mpi/hostfile"
# The pod or the operator itself sets variables with these prefixes.
_NOT_PASSED = ("LC_", "OMPI_", "OPAL_", "PMIX_", "PRTE_", "RINGSCOPE_")


def manifest(request: batch.Request, *, name: str, image: str, volume: str | None, sweep: str) -> str:
    """A List for `kubectl create -f`, as JSON: the MPIJob, and a ConfigMap that holds sweep.json. volume: the volume
    claim that keeps the run directory; None: the directory is lost with the pod, and the report is only in its log."""
    name = _name(name)
    out = str(PurePosixPath(RUNS, name))
    words = ["ringscope", "bench", "--resume", "--out", out, "--launcher", "mpirun", "--hostfile", HOSTFILE]
    begin = f"mkdir -p {out} && cp -n {SWEEP}/sweep.json {out}/"
    script = "\n".join(filter(None, ("set -eu", request.prologue.rstrip("\n"), begin, f"exec {shlex.join(words)}")))
    slots = max(request.nodes())
    kept = {"persistentVolumeClaim": {"claimName": volume}} if volume else {"emptyDir": {}}
    launcher = {
        "name": "launcher",
        "image": image,
        "command": ["bash", "-c", script],
        "env": _environment(request),
        "volumeMounts": [{"name": "runs", "mountPath": RUNS}, {"name": "sweep", "mountPath": SWEEP}],
    }
    worker = {
        "name": "worker",
        "image": image,
        "command": ["/usr/sbin/sshd", "-De"],
        "readinessProbe": {"tcpSocket": {"port": 22}, "initialDelaySeconds": 2},
        "resources": {"limits": _resources(request, slots)},
    }
    volumes = [{"name": "runs", **kept}, {"name": "sweep", "configMap": {"name": name}}]
    job = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {
            "slotsPerWorker": slots,
            "launcherCreationPolicy": "WaitForWorkersReady",  # earlier, the launcher's ssh would reach no worker
            "runPolicy": {
                "cleanPodPolicy": "Running",
                "activeDeadlineSeconds": 60 * request.minutes,
                "backoffLimit": 0,
            },
            "mpiReplicaSpecs": {
                "Launcher": _replicas(1, launcher, volumes),
                "Worker": _replicas(len(request.nodes()), worker, []),
            },
        },
    }
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"sweep.json": sweep}}
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [config, job]}, indent=1) + "\n"


def _replicas(count: int, container: dict[str, Any], volumes: list[dict[str, Any]]) -> dict[str, Any]:
    pod = {"containers": [container]} | ({"volumes": volumes} if volumes else {})
    return {"replicas": count, "restartPolicy": "Never", "template": {"spec": pod}}


def _resources(request: batch.Request, slots: int) -> dict[str, int]:
    cpus = {"cpu": request.cpus_per_rank * slots} if request.cpus_per_rank else {}
    return cpus | ({"nvidia.com/gpu": slots} if request.gpus else {})


def _environment(request: batch.Request) -> list[dict[str, str]]:
    """The environment of the launcher's pod: settings of libraries, and the variables that the request names; paths
    come from the image."""
    ours = {name for name in request.environ if name.startswith(FAMILIES) and passes(name)}
    names = {name for name in ours if not name.startswith(_NOT_PASSED)} | {*request.variables} & {*request.environ}
    return [{"name": name, "value": request.environ[name]} for name in sorted(names)]


def _name(text: str) -> str:
    """A name that Kubernetes accepts (RFC 1123), short enough for the suffix `-worker-511` of its pods."""
    name = re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")[:45].strip("-")
    if not name or not name[0].isalpha():
        name = f"ringscope-{name}".strip("-")
    return name
