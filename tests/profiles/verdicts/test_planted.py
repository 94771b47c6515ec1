"""Programs with one planted loss each, of kinds that strangers have and that were told wrongly or not at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from profiles import analyse
from profiles.model.findings import Finding
from profiles.model.measures import GpuMeasures
from profiles.verdicts import find
from tests.made.build import Build
from tests.made.hand import gpu, measures
from tests.profiles.verdicts.test_people import ATEN, MS, NCCL, US, findings

STEPS = 12
BACKWARD, PRODUCT = "layer_norm_backward_kernel", "sm90_xmma_gemm_bf16bf16_bf16f32"
PINNED = {"h2d": {"src_kind": "pinned"}, "d2h": {"dst_kind": "pinned"}}


class Host:
    """A host that launches work on one stream, and what the GPU makes of it: each operation starts when it has been
    called and the one before has ended."""

    def __init__(self) -> None:
        self.made, self.now, self.free = Build(), 10 * MS, 10 * MS

    def kernel(self, ns: int, name: str = ATEN, **more: object) -> None:
        start = max(self.free + US, self.now + 5 * US)
        self.made.kernel(start, start + ns, name, call=(self.now, self.now + 3 * US), **more)
        self.now, self.free = self.now + 3 * US, start + ns

    def copy(self, kind: str, ns: int, size: int) -> None:
        start = max(self.free + US, self.now + 5 * US)
        self.made.copy(kind, start, start + ns, size, call=(self.now, self.now + 3 * US), **PINNED[kind])
        self.now, self.free = self.now + 3 * US, start + ns

    def call(self, name: str, ns: int = 0) -> None:
        """A call of so long, beyond the end of all that was launched if it is 0."""
        end = self.now + ns if ns else max(self.now, self.free) + 2 * US
        self.made.api(name, self.now, end)
        self.now = end

    def steps(self, work: Callable[[int], None], count: int = STEPS, mark: str = "step {}") -> Build:
        for number in range(count):
            began, self.now = self.now, self.now + US
            work(number)
            self.made.mark(mark.format(number), began, self.now, domain="")
        return self.made


def first(made: Build) -> tuple[Finding, GpuMeasures]:
    measured = analyse([made.timeline()]).measures
    return measured.findings[0], measured.gpus[0]


@pytest.mark.parametrize("learns", [True, False])
def test_what_goes_to_the_host_and_comes_back_is_no_batch_in_a_training(learns: bool) -> None:
    """An optimizer on the host: gradients go out, the host computes for 15 ms, and weights of their size come back."""
    host = Host()

    def step(_: int) -> None:
        host.kernel(2 * MS, PRODUCT)
        host.kernel(200 * US, BACKWARD if learns else ATEN)
        for _ in range(4):
            host.copy("d2h", MS, 32 << 20)
        host.call("cudaStreamSynchronize")
        host.now += 15 * MS
        for _ in range(4):
            host.copy("h2d", MS, 32 << 20)

    found, one = first(host.steps(step))
    assert (found.code == "offloaded-to-host") is learns
    back = one.copies["h2d"].returned
    if not learns:
        assert back is None and one.ledger_ns["idle_feed"]
        return
    (begin, end), rows = one.window_ns, host.made.rows["copies"]
    came = [row for row in rows if row["kind"] == "h2d" and begin <= row["start_ns"] < end]
    assert back is not None and back.bytes == len(came) * (32 << 20)
    assert back.exposed_ns == sum(min(row["end_ns"], end) - row["start_ns"] for row in came)
    returns = -(-len(came) // 4)
    assert one.ledger_ns["idle_feed"] == 0 and 15 * MS * returns <= sum(back.idle_ns.values()) < 15.1 * MS * returns
    out = sum(row["kind"] == "d2h" and begin <= row["start_ns"] < end for row in rows)
    assert found.evidence["idle_until_back_ns"] == sum(back.idle_ns.values())
    assert found.evidence["exposed_ns"] == out * MS + back.exposed_ns and found.evidence["returned_bytes"] == back.bytes


def test_activations_that_come_back_in_the_backward_pass_are_one_finding() -> None:
    host = Host()

    def step(_: int) -> None:
        for way, kernel in (("d2h", PRODUCT), ("h2d", BACKWARD)):
            for _ in range(12):  # more of a size than a batch has
                host.copy(way, 600 * US, 16 << 20)
                host.kernel(200 * US, kernel)

    found = findings(host.steps(step))
    assert next(iter(found)) == "offloaded-to-host"
    assert not {"copies-exposed", "copies-to-host-exposed", "loss-fetched-every-step"} & set(found)


def test_short_calls_that_allocate_all_along_are_told_of_allocation() -> None:
    """150 µs each, a dozen a step: no call is long, and together they take half of the time."""
    host = Host()

    def step(_: int) -> None:
        for _ in range(12):
            host.kernel(120 * US, PRODUCT)
            host.call("cudaFree")
            host.call("cudaMalloc", 150 * US)

    found, one = first(host.steps(step))
    assert found.code == "memory-allocated-in-the-loop"
    assert one.allocating_ns and one.allocating_ns >= 0.9 * (one.ledger_ns["idle_launch"] or 0)


def test_calls_to_a_pool_of_memory_are_no_allocation() -> None:
    host = Host()

    def step(_: int) -> None:
        for _ in range(12):
            host.kernel(20 * US, PRODUCT)
            host.call("cudaMallocAsync", 3 * US)
            host.now = max(host.now, host.free) + 60 * US

    assert first(host.steps(step))[0].code == "python-in-the-loop"


@pytest.mark.parametrize(
    ("slow", "told"),
    [
        (range(12, 24), True),
        (range(22, 24), False),  # too few to last
        (range(3, 24), False),  # the first steps are a start
        ([12, 15, 18, 21], False),  # longer samples now and then
    ],
)
def test_a_gpu_alone_that_computes_for_longer_from_some_step_on_is_told_since_when(slow: object, told: bool) -> None:
    host = Host()

    def step(number: int) -> None:
        for _ in range(20):
            host.kernel((160 if number in slow else 100) * US, PRODUCT)  # type: ignore[operator]

    found = findings(host.steps(step, 24))
    assert ("gpu-slows-down" in found) is told
    if told:
        one = found["gpu-slows-down"]
        assert one.evidence["since_step"] == 12 and one.evidence["scope"] == "gpu"
        assert one.evidence["compute_ns_per_step"] == 1.6 * one.evidence["before_ns_per_step"]
        assert one.saved_ns == {"compute": 20 * 60 * US * 11}  # the last step's end is not known


def test_a_gpu_that_has_more_kernels_to_run_does_not_slow_down() -> None:
    host = Host()

    def step(number: int) -> None:
        for _ in range(32 if number >= 12 else 20):
            host.kernel(100 * US, PRODUCT)

    assert "gpu-slows-down" not in findings(host.steps(step, 24))


def stages(waits: list[tuple[int, int]]) -> list[Build]:
    """Two ranks that meet several times in a step: (which of them launches its part late, by how much)."""
    made = []
    for rank in (0, 1):
        one, now = Build(), 10 * MS
        one.device(0, uuid=f"gpu of {rank}")
        for number in range(STEPS):
            one.mark(f"step {number}", now - 30 * US, now + 5 * MS, domain="")
            for late, ns in waits:
                one.kernel(now, now + MS, BACKWARD, call=(now - 10 * US, now - 9 * US))
                start = now + MS + US + (ns if late == rank else 0)
                now += MS + ns + 50 * US
                one.kernel(start, now, NCCL.format("SendRecv"), call=(start - 6 * US, start - 5 * US))
                now += US
        made.append(one)
    return made


@pytest.mark.parametrize(("longest_us", "told"), [(2100, False), (100, True)])
def test_ranks_that_wait_for_each_other_as_long_have_no_straggler(longest_us: int, told: bool) -> None:
    """As stages of a pipeline: rank 0 comes last seven times of eight, and waits as long the eighth."""
    found = findings(*stages([*[(0, 300 * US)] * 7, (1, longest_us * US)]))
    folded = {code for one in found.values() for after in one.consequences for code in after.codes}
    assert ("straggler" in {*found, *folded}) is told


@pytest.mark.parametrize(("kind", "stages"), [("send_recv", True), ("all_to_all", True), ("all_reduce", False)])
def test_a_late_stage_or_expert_is_told_to_have_more_to_do(kind: str, stages: bool) -> None:
    waits = gpu(rank=0, ledger={"collective": 2 * MS}, waiting=MS, arrived_last=0.1)
    late = gpu(rank=1, ledger={"collective": MS}, waiting=0, arrived_last=0.9)
    for one in (waits, late):
        one.collectives.kinds = {kind: {"count": 10, "exposed_ns": MS, "bytes": None, "dtype": None}}
    (found,) = (one for one in find(measures([waits, late])) if one.code == "straggler")
    assert found.change.startswith("give its stage") is stages


@pytest.mark.parametrize(("kernels", "code"), [(2, "loss-not-judged"), (60, "short-kernels")])
def test_a_few_kernels_without_steps_are_no_chain_of_short_ones(kernels: int, code: str) -> None:
    """As an example that adds two vectors: its copies follow each other, and its first launch loads the library."""
    host = Host()
    host.copy("h2d", 10 * US, 50_000)
    host.call("cudaLaunchKernel", 150 * US)
    for _ in range(kernels):
        host.kernel(4 * US, "vectorAdd(float*)", stream=7)
        host.free += 3 * US
    host.copy("d2h", 9 * US, 50_000)
    assert first(host.made)[0].code == code


@pytest.mark.parametrize("mark", ["step {}", "ProfilerStep#{}", "step[DECODE bs={}]"])
def test_a_hosts_own_code_is_not_told_by_the_mark_of_the_step_around_it(mark: str) -> None:
    """Nor is a break: 40 ms in one step of twelve "in ProfilerStep#N" says nothing."""
    host = Host()

    def step(number: int) -> None:
        host.kernel(MS, PRODUCT)
        host.kernel(MS, BACKWARD)
        host.call("cudaStreamSynchronize")
        host.now += 40 * MS if number == 6 else 0

    measured = analyse([host.steps(step, mark=mark).timeline()]).measures
    (pause,) = measured.breaks
    assert not any(one["name"].startswith(mark[:4]) for one in measured.gpus[0].host_while_idle)
    assert mark.split("{")[0].rstrip("#") not in pause.text.partition("waited")[2]
