"""A case: one GPU's measures with the record of its run. Rules read cases, and cases price the rules' findings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..ground import numbers
from ..metrics.doubts import shows_training
from ..model.findings import Finding
from ..model.measures import GpuMeasures
from ..model.steps import StepRow
from ..runs.records import Cell
from . import whatif
from .host_waits import lost_by

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
CONVOLUTIONS = re.compile(r"(?i)conv(?!er(?:sion|t))|[wd]grad|fprop|winograd")


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
    def waits_told(self) -> set[str]:
        """Copy directions whose waits another finding than `host-synchronises` reports."""
        return ({"d2h"} if self.fetches or self.offloaded else set()) | (
            {"h2d"} if self.copies_wait and self.trains else set()
        )

    def waits(self, *moves: str | None) -> list[dict[str, Any]]:
        """The waits of the host (entries of `gpu.host_waits`) for copies in these directions, the costliest first.
        Direction None means waits that are not for a copy."""
        found = [one for one in self._waits if one["moves"] in moves and lost_by([one])]
        return sorted(found, key=lambda one: -lost_by([one]))

    def waited(self, waits: Sequence[Mapping[str, Any]]) -> dict[str, int]:
        """owner -> ns of idle time that these waits cause, less idle time in which the next work was already
        launched."""
        after = min(sum(one.get("launch_ns", 0) for one in waits), self.ns("idle_launch"))
        after = after if after >= REPORT_SHARE * self.gpu.span_ns else 0
        return {"idle_sync": sum(one["ns"] - one.get("held_ns", 0) for one in waits), "idle_launch": after}

    @property
    def caught_up_ns(self) -> int:
        """ns of launch idle from the end of a host's wait until the host launches ahead of the GPU again; 0 if the
        waits are too short for a finding."""
        waits = self._waits if self.gpu.host_waits else []
        told = waits and lost_by(waits) >= OTHER_LADDER[1] * self.gpu.span_ns
        return self.waited(waits)["idle_launch"] if told else 0

    def called_ns(self, owner: str) -> int:
        """ns of this owner's idle time during synchronous copies to the GPU; 0 if the finding `copies-synchronous` does
        not report these copies."""
        ns = self.gpu.copies["h2d"].called_idle_ns
        told = self.copies_wait and self.trains and sum(ns.values()) >= REPORT_SHARE * self.gpu.span_ns
        return ns.get(owner, 0) if told else 0

    @property
    def held_after_wait_ns(self) -> int:
        """ns of sync idle in which the next kernel was already launched but had not started."""
        return sum(one.get("held_ns", 0) for one in self.gpu.host_waits)

    @property
    def allocating_ns(self) -> dict[str, int]:
        """owner -> ns of idle time in which the host allocates and frees memory all along; empty if that is too short
        for a finding."""
        spent = {"idle_launch": self.gpu.allocating_ns or 0}
        spent["idle_sync"] = sum(one.get("allocating_ns", 0) for one in self.gpu.host_waits)
        return spent if self.trains and sum(spent.values()) >= OTHER_LADDER[1] * self.gpu.span_ns else {}

    @property
    def _host_waits(self) -> list[dict[str, Any]]:
        """The entries of `gpu.host_waits`, with `ns` reduced by what `memory-allocated-in-the-loop` counts."""
        told = bool(self.allocating_ns)
        return [one | {"ns": one["ns"] - told * one.get("allocating_ns", 0)} for one in self.gpu.host_waits]

    @property
    def after_waits_ns(self) -> tuple[int, ...]:
        """For each entry of `gpu.host_waits`, ns of sync idle that would remain if the host did not wait. Without the
        wait the host would launch earlier by the length of the wait, but by no more than the time for which the GPU has
        work while the host does other work."""
        waits = self._host_waits
        late = [0 if self.copies_seldom(one) else one["ns"] - one.get("held_ns", 0) for one in waits]
        longer = tuple(max(0, ns - one.get("waited_ns", ns)) for ns, one in zip(late, waits, strict=True))
        own = [min(ns, one.get("own_ns", 0)) for ns, one in zip(late, waits, strict=True)]
        idle_ns = sum(ns or 0 for owner, ns in self.gpu.ledger_ns.items() if owner.startswith("idle_"))
        beyond = sum(own) - (self.gpu.span_ns - idle_ns)
        return longer if sum(longer) >= beyond else tuple(ns * beyond // sum(own) for ns in own)

    @property
    def own_after_waits_ns(self) -> int:
        """ns of `after_waits_ns` in which the host is in no CUDA call. The end of the waiting call itself does not
        count."""
        each = zip(self.after_waits_ns, self.gpu.host_waits, strict=True)
        return sum(min(ns, one.get("own_ns", 0)) for ns, one in each)

    def copies_seldom(self, wait: Mapping[str, Any]) -> bool:
        """True if the wait is for copies to the host that most steps do not make (a checkpoint, get_weights in a
        callback). Rarer copies then save the wait and the host's work on the copied data."""
        in_steps = self.gpu.window == "steps" and not self.infers
        return in_steps and wait["moves"] == "d2h" and not self.fetches and "d2h" not in self.managed

    @property
    def _waits(self) -> list[dict[str, Any]]:
        """The entries of `gpu.host_waits`, with `ns` reduced by the idle time that would remain without the wait."""
        if self.gpu.host_waits:
            each = zip(self._host_waits, self.after_waits_ns, strict=True)
            return [one | {"ns": one["ns"] - stays} for one, stays in each]
        # Measures of an earlier version have one total for all waits.
        moves = "h2d" if self.copies_wait else "d2h" if self.fetches else None
        return [{"call": None, "within": None, "moves": moves, "ns": self.ns("idle_sync"), "count": 0}]

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
    def convolves(self) -> bool:
        """True if convolutions run, as in an image model."""
        return any(CONVOLUTIONS.search(kernel.name) for kernel in self.gpu.kernels.top)

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

    @property
    def recurrent(self) -> bool:
        """True if cuDNN runs recurrent cells."""
        return self.group("rnn_cell")[0] > 0

    def told(self, *, bench: str, script: str) -> str:
        """The advice `bench` if `ringscope bench` ran the program, else the advice `script` (a user's own script)."""
        return bench if self.cell is not None else script

    @property
    def held_launch_ns(self) -> int:
        """ns of launch idle in batch gaps that a small copy before the step's first launch explains; 0 unless at least
        3 gaps, and 9 of 10, have one."""
        held = self.gpu.held_launches or {}
        once_a_step = held.get("count", 0) >= max(3, 0.9 * held.get("gaps", 0))
        return held["idle_launch_ns"] if once_a_step else 0

    @property
    def negotiation_ns(self) -> int:
        """ns of launch idle in Horovod's negotiation, less the wait for other ranks: the cost of negotiation itself."""
        return max(0, (self.gpu.collectives.negotiation_ns or 0) - self.ns("idle_peers"))

    @property
    def late_launch_ns(self) -> int:
        """ns of launch idle that none of these explains: a small copy before the step, negotiation, a wait for a batch
        or for the GPU, a synchronous copy, the process's start, allocation."""
        explained = self.held_launch_ns + self.negotiation_ns + self.caught_up_ns + self.called_ns("idle_launch")
        explained += (self.gpu.startup_ns or 0) + (self.gpu.allocating_ns or 0) + (self.gpu.waited_ns or 0)
        return max(0, self.ns("idle_launch") - explained)

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
