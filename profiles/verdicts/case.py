"""A case: one GPU's measures with the record of its run. Rules read cases, and cases price the rules' findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..ground import numbers
from ..metrics.doubts import shows_training
from ..model.findings import Finding
from ..model.measures import GpuMeasures
from ..model.steps import StepRow
from ..runs.records import Cell
from . import whatif

# Losses below this share of the window are not reported.
REPORT_SHARE = 0.01
# Shares of the window from which a loss is called `highly` and `moderately`. The shares for input are XProf's;
# launches, collectives and all other losses have lower shares.
INPUT_LADDER = (0.20, 0.05)
OTHER_LADDER = (0.15, 0.03)


# A training step of even a few compiled dense layers takes some 40 kernels (forward, backward and update). A run with
# fewer kernels is an example or a single operator, which says nothing about batch size or device. Two steps are too few
# to measure a step period.
LEAST_KERNELS, LEAST_STEPS = 20, 5
# Fewer kernels that take less time in all say nothing about a program, either: ten launches take as long.
LEAST_COMPUTE_NS = 100_000


@dataclass(frozen=True, slots=True)
class Context:
    """Optional facts from the run record that a recording does not hold."""

    cell: Cell | None = None
    machine: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    """One GPU and its losses per step. Without steps, the losses in its window, less gaps that occur only once."""

    index: int
    gpu: GpuMeasures
    context: Context
    recorded: str = ""  # format of the GPU's recording, such as `nsys`
    whole: GpuMeasures | None = None  # The measures with the gaps that occur only once, if `gpu` leaves these gaps out.

    @classmethod
    def of(cls, index: int, gpu: GpuMeasures, context: Context, recorded: str) -> Case:
        """Make the case of a GPU; gaps that occur only once are left out if the window shows a training."""
        if gpu.rest is None or not shows_training(gpu):
            return cls(index, gpu, context, recorded)
        return cls(index, gpu.steadily, context, recorded, whole=gpu)

    @property
    def cell(self) -> Cell | None:
        return self.context.cell

    @property
    def steps(self) -> int:
        """The number of steps to divide the window's totals by; 1 if the window has no steps."""
        return self.gpu.steps.count if self.gpu.window == "steps" and self.gpu.steps.count else 1

    def ns(self, *owners: str) -> int:
        """ns of the window that the ledger assigns to these owners. Owners whose time is unknown count 0."""
        return sum(self.gpu.ledger_ns.get(owner) or 0 for owner in owners)

    def share(self, *owners: str) -> float:
        return self.ns(*owners) / self.gpu.span_ns if self.gpu.span_ns else 0.0

    @property
    def input_share(self) -> float:
        """The share of the window in which the GPU waits for input: feed idle, and launch idle while the host waits for
        its batch."""
        waiting_ns = self.ns("idle_feed") + (self.gpu.waited_ns or 0)
        return waiting_ns / self.gpu.span_ns if self.gpu.span_ns else 0.0

    @property
    def fetches(self) -> int:
        """Copies to the host in each step of a training. 0 if there are no steps, if most steps have no such copy, or
        if the copies are gradients for a parameter server, pages of managed memory, or offloaded tensors that return to
        the GPU."""
        d2h = self.gpu.copies.get("d2h")
        if self.exchange == "parameter server" or self.infers or not d2h or d2h.pages or self.gpu.window != "steps":
            return 0
        if "d2h" in self.offloaded:
            return 0
        return (d2h.count or 0) // self.steps if d2h.per_step is None else d2h.per_step

    @property
    def copies_wait(self) -> bool:
        """True if most copies to the GPU are synchronous calls. Small copies alone count only if the GPU idles until
        they start."""
        h2d = self.gpu.copies["h2d"]
        if not h2d.synchronous or not h2d.count or 2 * h2d.synchronous < h2d.count:
            return False
        waited = sum(h2d.called_idle_ns.values()) >= OTHER_LADDER[1] * self.gpu.span_ns
        return waited or h2d.under_64kib != h2d.count

    @property
    def computes(self) -> bool:
        """True if the GPU ran any kernel: copies before the first kernel say nothing about later waits."""
        return self.gpu.kernels.count + self.gpu.kernels.graph_launches > 0

    @property
    def trains(self) -> bool:
        """True if the window shows a training, rather than a single operator or example. Only then is idle time worth a
        finding."""
        return shows_training(self.gpu) and not self.example

    @property
    def example(self) -> bool:
        """True if a framework ran fewer kernels in all than one step of its smallest model takes, or a plain CUDA
        program ran so few for less than `LEAST_COMPUTE_NS`: it may consist of a few long kernels. False for several
        measured steps."""
        kernels, measured = self.gpu.kernels, self.gpu.window == "steps" and self.gpu.steps.count >= LEAST_STEPS
        few = not measured and not kernels.graph_launches and kernels.count < LEAST_KERNELS
        return few and (self.hardly_computes or self.gpu.framework in ("pytorch", "jax", "tensorflow"))

    @property
    def hardly_computes(self) -> bool:
        """True if the kernels of the window, collectives left out, take less than `LEAST_COMPUTE_NS` in all."""
        return 0 < self.ns("compute") < LEAST_COMPUTE_NS

    @property
    def trains_a_model(self) -> bool:
        """True if there are enough steps, each with as many kernels as the smallest model needs."""
        measured = self.gpu.window == "steps" and self.gpu.steps.count >= LEAST_STEPS
        return self.trains and measured and (self.gpu.kernels.per_step or 0) >= LEAST_KERNELS

    @property
    def compiled(self) -> bool:
        """True if XLA made the kernels."""
        kernels = self.gpu.kernels
        fused = self.group("fused")[0] or kernels.graph_launches or kernels.graph_nodes
        return bool(fused) or (self.cell is not None and self.cell.step == "compiled")

    @property
    def managed(self) -> list[str]:
        """Copy directions of managed memory's pages, which the driver moves to where the program touches them."""
        return [name for name in ("h2d", "d2h") if self.gpu.copies[name].pages]

    @property
    def offloaded(self) -> list[str]:
        """Copy directions if most bytes are tensors that a training keeps on the host (offloads) and copies back; empty
        if they may be gradients that the host or parameter servers sum."""
        ways = [self.gpu.copies[name] for name in ("h2d", "d2h")]
        most = all(one.returned and 2 * one.returned.bytes >= (one.bytes or 0) for one in ways)
        by_host = self.exchange is not None and not self.gpu.collectives.count
        return ["h2d", "d2h"] if most and not by_host and not self.managed else []

    def told(self, *, bench: str, script: str) -> str:
        """The advice `bench` if `ringscope bench` ran the program, else the advice `script` (a user's own script)."""
        return bench if self.cell is not None else script

    @property
    def horovod(self) -> bool:
        """True if Horovod exchanges the gradients, by the cell or the recorded ranges. If neither names a library, True
        for TensorFlow and for an unknown framework."""
        if self.exchange is not None or self.cell is not None:
            return self.exchange == "horovod"
        return self.gpu.framework in (None, "tensorflow")

    @property
    def exchange(self) -> str | None:
        """The library that exchanges gradients or activations, by the cell, else by the ranges; None: unknown."""
        return self.cell.spread.exchange if self.cell is not None else self.gpu.exchange

    @property
    def infers(self) -> bool:
        return self.gpu.steps.unit == "batch"

    @property
    def each(self) -> str:
        """The unit of the numbers in this case's texts: `per step`, `per batch` or `in all`."""
        return f"per {self.gpu.steps.unit}" if self.gpu.window == "steps" and self.gpu.steps.count else "in all"

    def group(self, *names: str) -> tuple[int, int]:
        """(number of kernels, their ns) of these kernel groups in the window."""
        groups = [self.gpu.kernels.groups.get(name, {}) for name in names]
        return sum(g.get("count", 0) for g in groups), sum(g.get("total_ns", 0) for g in groups)

    def finding(
        self,
        code: str,
        saved_ns: Mapping[str, int],
        *,
        text: str,
        change: str,
        evidence: Mapping[str, Any],
        refuted_by: str,
        busy_saved_ns: Mapping[str, int] | None = None,
        least_share: float = REPORT_SHARE,
    ) -> Finding | None:
        """Make a finding and price it by what-if; None if its change would save less than `least_share` of the
        window."""
        span = whatif.span_without(self.gpu, saved_ns, busy_saved_ns=busy_saved_ns)
        saved = self.gpu.span_ns - span
        if saved < least_share * self.gpu.span_ns:
            return None
        return Finding(
            code=code,
            gpu=self.index,
            cost_ns_per_step=saved // self.steps if self.gpu.window == "steps" else None,
            at_most_gain=self.gpu.span_ns / span - 1,
            text=text + self._beside,
            change=change,
            evidence={**evidence, **self.where(saved_ns)} | self._of_whole(saved),
            refuted_by=refuted_by,
            saved_ns={owner: ns for owner, ns in saved_ns.items() if ns},
        )

    def _of_whole(self, saved_ns: int) -> dict[str, float]:
        """Evidence of a finding on a part of the window: its gain over the whole window, which sorts the findings."""
        return {"gain_of_whole": self.whole.span_ns / (self.whole.span_ns - saved_ns) - 1} if self.whole else {}

    @property
    def _beside(self) -> str:
        """A clause for the text of a finding if its shares leave out a notable part of the window; else ""."""
        once_ns = self.whole.span_ns - self.gpu.span_ns if self.whole else 0
        if self.whole is None or once_ns < INPUT_LADDER[1] * self.whole.span_ns:
            return ""
        return f"; the shares leave out {numbers.duration(once_ns)} of work that occurs only once"

    def unpriced(self, code: str, *, text: str, change: str, evidence: Mapping[str, Any], refuted_by: str) -> Finding:
        """Make a finding whose gain is unknown."""
        return Finding(code, self.index, None, None, text, change, dict(evidence), refuted_by)

    def where(self, saved_ns: Mapping[str, int]) -> dict[str, int]:
        """Evidence that names the step which would save most; empty if no measured step saves any time."""
        if not self.gpu.steps.rows:
            return {}

        def saved(row: StepRow) -> int:
            return sum(row.ledger_ns.get(owner) or 0 for owner in saved_ns)

        worst = max(self.gpu.steps.rows, key=saved)
        return {"worst_step": worst.step, "worst_step_start_ns": worst.start_ns} if saved(worst) else {}


def degree(share: float, ladder: tuple[float, float]) -> str:
    """XProf's word for a share: `highly`, `moderately`, `slightly`."""
    highly, moderately = ladder
    return "highly" if share >= highly else "moderately" if share >= moderately else "slightly"
