"""Tables of sampled GPU metrics (hardware counters), and of compute time by what bounds it."""

from __future__ import annotations

from typing import Final

from ...ground import numbers
from ...model.gpu_metrics import BOUNDS, KINDS_OF_TIME, METRICS
from .table import Cell, Document, Field, Table, each_gpu, titles, words

TITLES: Final = {
    "gr_active": "engine active",
    "sm_active": "SMs active",
    "sm_issue": "SM issue",
    "tensor_active": "tensor active",
    "dram_read": "DRAM read",
    "dram_write": "DRAM write",
    "nvlink_rx": "NVLink in",
    "nvlink_tx": "NVLink out",
    "pcie_rx": "PCIe in",
    "pcie_tx": "PCIe out",
}
BOUND_TITLES: Final = {
    "tensor": "tensor-bound",
    "memory": "memory-bound",
    "latency": "latency, other",
    "unsampled": "not sampled",
}
OF_KIND: Final[tuple[Field, ...]] = tuple((TITLES[key], key, numbers.share) for key in METRICS)
ENERGY: Final[tuple[Field, ...]] = (
    ("energy", "energy/joules", numbers.energy),
    ("per step", "energy/joules_per_step", numbers.energy),
    ("mean power", "energy/watts", numbers.watts),
)


def means(document: Document) -> Table:
    """The mean of each metric while the GPU did each kind of work, and over the window."""
    rows = []
    for at, gpu, name in each_gpu(document):
        found = gpu["gpu_metrics"]
        for kind in (*KINDS_OF_TIME, "window") if found and found["samples"] else ():
            here = f"{at}/gpu_metrics/means/{kind}"
            sampled = "sampled_ns" if kind == "window" else f"owner_ns/{kind}"
            took = document.number(f"{at}/gpu_metrics/{sampled}", numbers.duration)
            rows.append((name, words(kind), took, *document.numbers(here, OF_KIND)))
    return Table(
        "gpu-metrics",
        "GPU metrics",
        "Means of the sampled counters during each kind of work, as shares of the GPU's peak. A sample that spans "
        "several kinds of work counts for each kind by its time in the sample.",
        ("GPU", "while", "sampled", *titles(OF_KIND)),
        tuple(rows),
        keys=2,
    )


def bound(document: Document) -> Table:
    """A row per GPU: its compute time by what bounds it, and the energy of the window."""
    rows = []
    for at, gpu, name in each_gpu(document):
        found = gpu["gpu_metrics"]
        if not found:
            continue
        cells: list[Cell] = []
        for what in BOUNDS:
            here = f"{at}/gpu_metrics/bound_ns/{what}"
            cells.append(document.number(here, numbers.duration))
            cells.append(document.number(here, numbers.share, of=f"{at}/ledger_ns/compute"))
        said = "; ".join(dict.fromkeys(filter(None, (found["bound_unknown"], found["energy_unknown"]))))
        rows.append((name, *cells, *document.numbers(f"{at}/gpu_metrics", ENERGY), Cell(said, said)))
    columns = [column for what in BOUNDS for column in (BOUND_TITLES[what], "of compute")]
    return Table(
        "bound-by",
        "What bounds compute",
        "Compute time by the GPU metrics at that time: tensor-bound where tensor cores are active for 60 % of the "
        "time or more, memory-bound where memory (DRAM) is; where both are, the more active one counts. Other compute "
        "is bound by latency or other units.",
        ("GPU", *columns, *titles(ENERGY), "not known"),
        tuple(rows),
    )
