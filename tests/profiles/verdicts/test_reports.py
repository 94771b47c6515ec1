"""What public reports ask of a recording (keras#20998): an LSTM of JAX on two GPUs that is no faster than on one."""

from __future__ import annotations

from profiles import analyse
from profiles.model.timeline import Timeline
from tests.made.build import Build

CELL = {"loop_multiply_fusion_3": 4_000, "gemm_fusion_dot_12": 6_000, "loop_add_tanh_fusion": 5_000}
STEPS, CELLS, BETWEEN_NS, EXCHANGE_NS = 30, 50, 3_500, 40_000


def lstm() -> Timeline:
    """Two GPUs in one recording without marks: cell after cell in kernels of 5 us, and one exchange a step."""
    made = Build(format="xplane", path="host.xplane.pb")
    begins = 1_000_000
    for _ in range(STEPS):
        for device in range(2):
            at = begins
            for name, ns in [*CELL.items()] * CELLS:
                made.kernel(at, at + ns, name, device=device, call=(at - 9_000, at - 6_000), tid=device + 1)
                at += ns + BETWEEN_NS
            exchange = {"device": device, "stream": 9, "call": (at - 3_000, at - 1_000), "tid": device + 1}
            made.kernel(at, at + EXCHANGE_NS, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", **exchange)
            at += EXCHANGE_NS
        begins = at + 30_000
    return made.timeline()


def test_an_lstm_of_many_short_kernels_is_told_so_before_its_exchange() -> None:
    measures = analyse([lstm()]).measures
    assert measures.findings[0].code == "short-kernels"
    step_ns = CELLS * (sum(CELL.values()) + len(CELL) * BETWEEN_NS)
    for gpu in measures.gpus:
        handed_over = gpu.ledger_ns["idle_turnaround"] / gpu.ledger_ns["compute"]
        assert abs(handed_over - len(CELL) * BETWEEN_NS / sum(CELL.values())) < 0.02
        assert gpu.ledger_ns["collective"] < 0.1 * STEPS * step_ns
