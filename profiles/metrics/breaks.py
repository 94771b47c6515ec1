"""Measure breaks between steps: GPU work and calls of the host in each (docs/reference/measures.md, "Steps")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ..gpus.operations import D2H, Gpu
from ..ground import intervals
from ..ledger import ownership
from ..ledger.account import Account
from ..model.analysed import Ownership
from ..model.steps import Break
from ..model.timeline import Timeline
from ..steps.found import FoundSteps
from .copies import are_pages
from .host import host_while_idle, launch_idle_by_host

# Calls of the host are looked up in this number of breaks, the longest: each needs a search through all ranges.
_LOOKED_INTO: Final = 10
_NAMED: Final = 3


def measure(
    timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu, steps: FoundSteps, books: Account
) -> list[Break]:
    """The breaks from the first measured step on, in order of time."""
    operations = gpu.operations
    edges = steps.long.start_ns, steps.long.end_ns
    first, after = (np.searchsorted(operations.start_ns, edge) for edge in edges)
    found = []
    for place, (start, end) in enumerate(zip(*(edge.tolist() for edge in edges), strict=True)):
        inside = operations.at(slice(int(first[place]), int(after[place])))
        fetched = inside.chosen((inside.kind == D2H) & ~are_pages(timelines, gpu, inside, D2H))
        found.append(
            Break(
                step=int(steps.long.step_number[place]),
                start_ns=start,
                end_ns=end,
                gap_ns=max(0, end - int(steps.long.last_kernel_end_ns[place])),
                ledger_ns=books.breaks_ns[place],
                kernels=int(inside.is_kernel.sum()),
                fetched=len(fetched),
                fetched_bytes=int(fetched.bytes.sum()),
                compiling_ns=0,
            )
        )
    longest = sorted(found, key=lambda one: one.start_ns - one.end_ns)[:_LOOKED_INTO]
    looked_into = {id(one): _looked_into(one, timelines, shift_ns, gpu, books) for one in longest}
    return [looked_into.get(id(one), one) for one in found]


def _looked_into(one: Break, timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu, books: Account) -> Break:
    alone = _alone(books.owned, one.start_ns, one.end_ns)
    host, _ = host_while_idle(timelines, shift_ns, gpu, alone)
    compiling, _ = launch_idle_by_host(timelines, shift_ns, gpu, alone, steps=True)
    return replace(one, host=host[:_NAMED], compiling_ns=compiling.total)


def _alone(owned: Ownership, start: int, end: int) -> Ownership:
    first, last = int(owned.start_ns[0]), int(owned.end_ns[-1])
    return ownership.without(owned, intervals.subtract(intervals.span(first, last), intervals.span(start, end)))
