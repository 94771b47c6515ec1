"""The idle time of a GPU that its host causes: waits for the GPU (entries of `gpu.host_waits`), memory calls, late
launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..model.measures import GpuMeasures
from .case import OTHER_LADDER, REPORT_SHARE, Case

# PyTorch's operators that wait for the GPU, as a script writes them.
OPERATORS = {
    "aten::item": ".item()",
    "aten::_local_scalar_dense": ".item()",
    "aten::is_nonzero": "an if on a tensor",
    "aten::nonzero": "nonzero() or boolean indexing",
    "aten::to": ".to() or .cpu()",
}


def lost_by(waits: Sequence[Mapping[str, Any]]) -> int:
    """ns of idle time that these waits cause, less idle time in which the next work was already launched."""
    return sum(one["ns"] - one.get("held_ns", 0) + one.get("launch_ns", 0) for one in waits)


def waits_for(case: Case, *moves: str | None) -> list[dict[str, Any]]:
    """The waits of the host (entries of `gpu.host_waits`) for copies in these directions, the costliest first.
    Direction None means waits that are not for a copy."""
    found = [one for one in _less_remaining(case) if one["moves"] in moves and lost_by([one])]
    return sorted(found, key=lambda one: -lost_by([one]))


def idle_ns(case: Case, waits: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """owner -> ns of idle time that these waits cause, less idle time in which the next work was already
    launched."""
    after = min(sum(one.get("launch_ns", 0) for one in waits), case.ns("idle_launch"))
    after = after if after >= REPORT_SHARE * case.gpu.span_ns else 0
    return {"idle_sync": sum(one["ns"] - one.get("held_ns", 0) for one in waits), "idle_launch": after}


def held_after_wait_ns(case: Case) -> int:
    """ns of sync idle in which the next kernel was already launched but had not started."""
    return sum(one.get("held_ns", 0) for one in case.gpu.host_waits)


def caught_up_ns(case: Case) -> int:
    """ns of launch idle from the end of a host's wait until the host launches ahead of the GPU again; 0 if the
    waits are too short for a finding."""
    waits = _less_remaining(case) if case.gpu.host_waits else []
    told = waits and lost_by(waits) >= OTHER_LADDER[1] * case.gpu.span_ns
    return idle_ns(case, waits)["idle_launch"] if told else 0


def synchronous_copies_ns(case: Case, owner: str) -> int:
    """ns of this owner's idle time during synchronous copies to the GPU; 0 if the finding `copies-synchronous` does
    not report these copies."""
    ns = case.gpu.copies["h2d"].called_idle_ns
    told = case.copies_wait and case.trains and sum(ns.values()) >= REPORT_SHARE * case.gpu.span_ns
    return ns.get(owner, 0) if told else 0


def allocating_ns(case: Case) -> dict[str, int]:
    """owner -> ns of idle time in which the host allocates and frees memory all along; empty if that is too short
    for a finding."""
    spent = {"idle_launch": case.gpu.allocating_ns or 0}
    spent["idle_sync"] = sum(one.get("allocating_ns", 0) for one in case.gpu.host_waits)
    return spent if case.trains and sum(spent.values()) >= OTHER_LADDER[1] * case.gpu.span_ns else {}


def waits_told(case: Case) -> set[str]:
    """Copy directions whose waits another finding than `host-synchronises` reports."""
    return ({"d2h"} if case.fetches or case.offloaded else set()) | (
        {"h2d"} if case.copies_wait and case.trains else set()
    )


def after_waits_ns(case: Case) -> tuple[int, ...]:
    """For each entry of `gpu.host_waits`, ns of sync idle that would remain if the host did not wait. Without the
    wait the host would launch earlier by the length of the wait, but by no more than the time for which the GPU has
    work while the host does other work."""
    waits = _less_allocation(case)
    late = [0 if copies_seldom(case, one) else one["ns"] - one.get("held_ns", 0) for one in waits]
    longer = tuple(max(0, ns - one.get("waited_ns", ns)) for ns, one in zip(late, waits, strict=True))
    own = [min(ns, one.get("own_ns", 0)) for ns, one in zip(late, waits, strict=True)]
    all_idle_ns = sum(ns or 0 for owner, ns in case.gpu.ledger_ns.items() if owner.startswith("idle_"))
    beyond = sum(own) - (case.gpu.span_ns - all_idle_ns)
    return longer if sum(longer) >= beyond else tuple(ns * beyond // sum(own) for ns in own)


def own_after_waits_ns(case: Case) -> int:
    """ns of `after_waits_ns` in which the host is in no CUDA call. The end of the waiting call itself does not
    count."""
    each = zip(after_waits_ns(case), case.gpu.host_waits, strict=True)
    return sum(min(ns, one.get("own_ns", 0)) for ns, one in each)


def copies_seldom(case: Case, wait: Mapping[str, Any]) -> bool:
    """True if the wait is for copies to the host that most steps do not make (a checkpoint, get_weights in a
    callback). Rarer copies then save the wait and the host's work on the copied data."""
    in_steps = case.gpu.window == "steps" and not case.infers
    return in_steps and wait["moves"] == "d2h" and not case.fetches and "d2h" not in case.managed


def _less_allocation(case: Case) -> list[dict[str, Any]]:
    """The entries of `gpu.host_waits`, with `ns` reduced by what `memory-allocated-in-the-loop` counts."""
    told = bool(allocating_ns(case))
    return [one | {"ns": one["ns"] - told * one.get("allocating_ns", 0)} for one in case.gpu.host_waits]


def _less_remaining(case: Case) -> list[dict[str, Any]]:
    """The entries of `gpu.host_waits`, with `ns` reduced by the idle time that would remain without the wait."""
    if case.gpu.host_waits:
        each = zip(_less_allocation(case), after_waits_ns(case), strict=True)
        return [one | {"ns": one["ns"] - stays} for one, stays in each]
    # Measures of an earlier version have one total for all waits.
    moves = "h2d" if case.copies_wait else "d2h" if case.fetches else None
    return [{"call": None, "within": None, "moves": moves, "ns": case.ns("idle_sync"), "count": 0}]


def held_launch_ns(case: Case) -> int:
    """ns of launch idle in batch gaps that a small copy before the step's first launch explains; 0 unless at least
    3 gaps, and 9 of 10, have one."""
    held = case.gpu.held_launches or {}
    once_a_step = held.get("count", 0) >= max(3, 0.9 * held.get("gaps", 0))
    return held["idle_launch_ns"] if once_a_step else 0


def negotiation_ns(case: Case) -> int:
    """ns of launch idle in Horovod's negotiation, less the wait for other ranks: the cost of negotiation itself."""
    return max(0, (case.gpu.collectives.negotiation_ns or 0) - case.ns("idle_peers"))


def late_launch_ns(case: Case) -> int:
    """ns of launch idle that none of these explains: a small copy before the step, negotiation, a wait for a batch
    or for the GPU, a synchronous copy, the process's start, allocation."""
    explained = (
        held_launch_ns(case) + negotiation_ns(case) + caught_up_ns(case) + synchronous_copies_ns(case, "idle_launch")
    )
    explained += (case.gpu.startup_ns or 0) + (case.gpu.allocating_ns or 0) + (case.gpu.waited_ns or 0)
    return max(0, case.ns("idle_launch") - explained)


def mostly_after_waits(gpu: GpuMeasures) -> bool:
    """True if the host launches late mostly because of code that it runs right after a wait for the GPU."""
    own_ns: int = sum(one.get("own_ns", 0) for one in gpu.host_waits)
    return own_ns > (gpu.outside_calls_ns or 0)


def called(wait: Mapping[str, Any]) -> str:
    """A wait as text: the waiting call, the direction of the copy that it waits for, and the framework's operator
    around it."""
    moves = {"h2d": " to the GPU", "d2h": " to the host"}.get(wait["moves"], "") if "Memcpy" in wait["call"] else ""
    within = OPERATORS.get(wait["within"], wait["within"])
    return f"{wait['call']}{moves}" + (f" in {within}" if within else "")
