"""A training run of any size. Its answers are known by construction.

Each step of each GPU is idle until the batch is there (feed). Then come a pageable host-to-device copy with nothing
beside it, kernels one after the other with a short turnaround between them, and an all-reduce whose first part runs
beside the last kernels. A device-to-host, a device-to-device, a peer copy and a memset lie inside kernels and cost
nothing. All times follow from the shape without interval arithmetic, so the answers are independent of what they test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

HIDDEN_NS = 5_000  # a copy or memset inside a kernel, 2 us after its start
CALL_NS = 10_000  # the input copy's call begins before it
AHEAD_NS = 60_000  # the host begins a step before the GPU has ended the one before


@dataclass(frozen=True, slots=True)
class Shape:
    """How large the run is, and how long each part takes."""

    steps: int = 20
    kernels: int = 50  # a step and GPU, beside the all-reduce
    gpus: int = 4
    processes: int = 4
    feed_ns: int = 2_000_000  # varies by step between this and 101 us more
    h2d_ns: int = 600_000
    turnaround_ns: int = 1_000
    kernel_ns: int = 18_000  # varies by kernel between this and 4 us more
    collective_ns: int = 500_000
    hidden_ns: int = 300_000  # of the all-reduce on GPU 0, at most
    skew_ns: int = 10_000  # later start of the all-reduce from one GPU to the next; all end together
    slow_gpus: tuple[int, ...] = ()  # compute for late_ns longer in every step, and the others wait for them
    slow_links: tuple[int, ...] = ()  # get their batch so much later, as its copy takes longer
    late_ns: int = 0
    late_from: int = 0  # the first step in which they are slow

    def __post_init__(self) -> None:
        if self.gpus % self.processes:
            raise ValueError("as many GPUs in each process: gpus must be a multiple of processes")
        if self.kernels < 8 or self.hidden_ns > min(self.kernels * self.kernel_ns, self.collective_ns):
            raise ValueError("the hidden part of the all-reduce must fit beside the kernels, of which 8 are the fewest")
        if self.collective_ns - self.hidden_ns < 2 * AHEAD_NS or self.feed_ns < 2 * CALL_NS:
            raise ValueError("the exposed part of the all-reduce must last 120 us, the feed 20 us")
        if self.skew_ns * (self.gpus - 1) >= self.hidden_ns or self.kernel_ns < 10_000 or self.h2d_ns < 50_000:
            raise ValueError("too short: the skews must fit into hidden_ns, 10 us a kernel, 50 us a copy")
        slow = {*self.slow_gpus, *self.slow_links}
        if bool(slow) != bool(self.late_ns) or len(slow) == self.gpus or set(self.slow_gpus) & set(self.slow_links):
            raise ValueError(
                "slow_gpus and slow_links are some of the GPUs, and late_ns is by how much they are slower"
            )

    def pid(self, gpu: int) -> int:
        return 4000 + gpu * self.processes // self.gpus

    def feeds_ns(self) -> np.ndarray:
        """The idle time before the copy of each step."""
        return self.feed_ns + (np.arange(self.steps, dtype=np.int64) * 104_729 % 1_009) * 100

    def late_steps(self) -> np.ndarray:
        """Which steps are slow where any is."""
        return np.arange(self.steps) >= self.late_from

    def slower_ns(self, gpu: int) -> int:
        """By how much the kernels of a slow step last longer on this GPU."""
        return self.late_ns if gpu in self.slow_gpus else 0

    def copy_ns(self, gpu: int) -> np.ndarray:
        """How long the input copy of each step takes."""
        return self.h2d_ns + self.late_steps() * (self.late_ns if gpu in self.slow_links else 0)

    def waiting_ns(self, gpu: int) -> np.ndarray:
        """How long the all-reduce of each step waits on this GPU for the slow ones."""
        return self.late_steps() * (0 if gpu in (*self.slow_gpus, *self.slow_links) else self.late_ns)

    def durations_ns(self, gpu: int, late: bool = True) -> np.ndarray:
        """Durations of the kernels of a step; a slow GPU's first kernels last longer in `late` steps."""
        usual = self.kernel_ns + np.arange(self.kernels, dtype=np.int64) * 7_919 % 4_001
        slower = np.zeros(self.kernels, np.int64)
        if late:
            # The all-reduce may begin beside the last kernels: none of these may change.
            slower[: self.kernels // 2] = self.slower_ns(gpu) // (self.kernels // 2)
            slower[0] += self.slower_ns(gpu) - slower.sum()
        return usual + slower

    def kernel_starts_ns(self, gpu: int, late: bool = True) -> np.ndarray:
        """Starts of the kernels, from the end of the copy."""
        before = np.concatenate(([0], np.cumsum(self.durations_ns(gpu, late))[:-1]))
        return before + np.arange(self.kernels, dtype=np.int64) * self.turnaround_ns

    def body_ns(self, gpu: int) -> int:
        """From the end of the copy to the end of the last kernel of a step that is late."""
        return int(self.kernel_starts_ns(gpu)[-1] + self.durations_ns(gpu)[-1])

    def step_starts_ns(self) -> np.ndarray:
        """When each step starts, which is when the one before ends; and the end of the last."""
        usual = self.body_ns(min(set(range(self.gpus)) - set(self.slow_gpus)))
        rest = self.h2d_ns + usual - self.hidden_ns + self.collective_ns
        return np.concatenate(([0], np.cumsum(self.feeds_ns() + rest + self.late_steps() * self.late_ns)))


@dataclass(frozen=True, slots=True)
class Answers:
    """What is true of one GPU, from its first operation's start to its last one's end."""

    span_ns: int
    ledger_ns: Mapping[str, int]
    busy_ns: Mapping[str, int]
    count: Mapping[str, int]
    feed_gaps: tuple[int, int]  # count, total ns
    period_ns: np.ndarray  # from each step's first kernel to the next one's


def answers(shape: Shape, gpu: int) -> Answers:
    """Sums over one step times the number of steps: kernels never overlap, all else hides in them or stands alone."""
    steps, hidden = shape.steps, shape.hidden_ns - gpu * shape.skew_ns
    compute = beside = waits = 0
    for late in (False, True):
        starts, durations = shape.kernel_starts_ns(gpu, late), shape.durations_ns(gpu, late)
        from_ns = int(starts[-1] + durations[-1]) - hidden
        count = int((shape.late_steps() == late).sum())
        compute += count * int(durations.sum())
        beside += count * int(np.maximum(starts + durations - np.maximum(starts, from_ns), 0).sum())
        waits += count * int(np.maximum(np.minimum(starts[1:], from_ns) - (starts + durations)[:-1], 0).sum())
    collective = steps * (shape.collective_ns - gpu * shape.skew_ns) + int(shape.waiting_ns(gpu).sum())
    feeds = shape.feeds_ns()
    others = {"d2h": 1, "d2d": 1, "p2p": int(shape.gpus > 1), "memset": 1}
    ledger = {
        "compute": compute,
        "collective": collective - beside,
        "h2d": int(shape.copy_ns(gpu).sum()),
        **dict.fromkeys(others, 0),
        "idle_feed": int(feeds[1:].sum()),
        "idle_turnaround": waits,
    }
    starts_ns = shape.step_starts_ns()
    span = int(starts_ns[-1] - feeds[0])
    if sum(ledger.values()) != span:
        raise AssertionError("the construction does not add up")
    return Answers(
        span_ns=span,
        ledger_ns=ledger,
        busy_ns={
            "compute": ledger["compute"],
            "collective": collective,
            "h2d": ledger["h2d"],
            **{kind: steps * HIDDEN_NS * count for kind, count in others.items()},
        },
        count={
            "kernels": steps * (shape.kernels + 1),
            "h2d": steps,
            **{kind: steps * count for kind, count in others.items()},
        },
        feed_gaps=(steps - 1, ledger["idle_feed"]),
        period_ns=np.diff(starts_ns[:-1] + feeds),
    )


def one_process(shape: Shape, gpus: range) -> None:
    """Raises ValueError if these GPUs belong to several processes, for formats whose files hold one."""
    if len({shape.pid(gpu) for gpu in gpus}) > 1:
        raise ValueError("a file of this format holds one process: say which, or make the run with processes=1")
