"""The examples of docs/reference/measures.md, computed by the functions that it names."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from profiles.comparing.loss_ledger import losses
from profiles.gpus.gather import gather
from profiles.ground.stats import Spread, nearest_rank, ratio, spread
from profiles.ledger.account import account
from profiles.ledger.window import Window
from profiles.measuring.analysis import measure
from profiles.metrics import collectives
from profiles.metrics.message_sizes import Moved
from profiles.model.collectives import Bucket, OneStep
from profiles.model.measures import GpuMeasures, Measures
from profiles.predicting import curve, network, step_time
from profiles.readers import read_all
from profiles.runs.rank_records import RankRecord
from profiles.scaling.rows import samples_per_s
from profiles.steps import find
from profiles.steps.found import FoundSteps
from profiles.verdicts import whatif
from tests.made import hand
from tests.made.build import Build
from tests.recordings import ROOT

PAGE = (ROOT / "docs/reference/measures.md").read_text()
US = 1_000


def says(*words: str) -> None:
    """The page says so, however its lines are broken."""
    page = " ".join(PAGE.split())
    missing = [text for text in words if " ".join(text.split()) not in page]
    assert not missing


def grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")


@cache
def of(pattern: str) -> Measures:
    timelines, _ = read_all(sorted((ROOT / "tests/data").glob(pattern)))
    return measure(timelines)


def the_recording() -> GpuMeasures:
    return of("resnet50-2gpu-device.rank*").gpus[0]


def drawn() -> GpuMeasures:
    """The window of 100 µs that the page draws."""
    made = Build()
    for start, end in ((0, 30), (40, 70), (95, 100)):
        made.kernel(start * US, end * US, call=(min(start, 80) * US, 92 * US))
    made.kernel(60 * US, 85 * US, name="ncclDevKernel_AllReduce", stream=9, call=(0, 1))
    made.copy("h2d", 20 * US, 50 * US, stream=8, call=(0, 50 * US))
    return measure(made.timeline()).gpus[0]


def test_the_window_that_is_drawn_has_the_owners_of_the_table() -> None:
    gpu = drawn()
    assert {owner: ns / US for owner, ns in gpu.ledger_ns.items() if ns} == {
        "compute": 65,
        "collective": 15,
        "h2d": 10,
        "idle_launch": 10,
    }
    assert {name: ns / US for name, ns in gpu.busy_ns.items() if ns} == {"compute": 65, "collective": 25, "h2d": 30}
    assert gpu.collectives.overlap == pytest.approx(0.4)
    assert f"{gpu.copies['h2d'].overlap:.1%}" == "66.7%"
    says("65 + 15 + 10 + 10 = 100 µs", "1 - 15/25 = 40 %", "1 - 10/30 = 66.7 %")


def test_the_ledger_of_the_recording_is_the_one_that_is_written_out() -> None:
    gpu = the_recording()
    for owner, ns in gpu.ledger_ns.items():
        if ns:
            says(f"`{owner}` {grouped(ns)}")
    says(f"= {grouped(gpu.span_ns)} ns, exactly the span of its five steps")
    h2d = gpu.copies["h2d"]
    says(f"busy for {grouped(h2d.busy_ns)} ns, exposed for {grouped(h2d.exposed_ns)}: {100 * h2d.overlap:.1f} % hidden")
    says(f"{grouped(h2d.bytes)} bytes take {grouped(h2d.busy_ns)} ns: {h2d.gb_per_s:.2f} GB/s")
    pinned = of("resnet50-2gpu-pinned.rank*").gpus[0].copies["h2d"]
    says(f"{grouped(pinned.bytes)} bytes in {grouped(pinned.busy_ns)} ns: {pinned.gb_per_s:.1f} GB/s")


def test_which_of_six_steps_are_measured() -> None:
    lasted = np.array([900, 101, 100, 99, 100, 350], np.int64) * 1_000_000
    start = np.concatenate(([0], np.cumsum(lasted)[:-1]))
    ends, count = start + lasted, len(lasted)
    before = np.concatenate(([-1], ends[:-1]))
    steps = find._Steps(start, ends, ends, before, np.arange(count), np.ones(count, np.bool_), quiet=True)
    found = find._measured("marks", steps)
    assert (found.count, found.warm_up, found.breaks) == (4, 1, 1)
    says("so the MAD is 1 ms and the limit is 100.5 + max(7.4, 10.05) = 110.55 ms", "Four are measured.")


def test_percentiles_of_the_five_steps() -> None:
    period = the_recording().steps.period_ns
    assert period is not None
    shown = [182.98, 183.50, 183.79, 184.40, 187.29]
    assert [round(ns / 1e6, 2) for ns in (period.p50, period.p95)] == [shown[2], shown[4]]
    assert nearest_rank([1, 2, 3, 4, 5], 95) == 5
    says("p50 is the third, 183.79 ms, and p95 the fifth, 187.29 ms")


@pytest.mark.parametrize(
    ("start", "call", "waits", "cause"),
    [
        (130, (95, 128), None, "launch"),
        (102, (50, 55), None, "turnaround"),
        (130, (50, 55), None, "wait"),
        (130, (125, 128), (60, 120), "sync"),
        (130, None, None, "unknown"),
    ],
)
def test_each_cause_of_the_table(
    start: int, call: tuple[int, int] | None, waits: tuple[int, int] | None, cause: str
) -> None:
    made = Build()
    made.kernel(0, 100 * US, call=(0, 1))
    scaled = None if call is None else (call[0] * US, call[1] * US)
    made.kernel(start * US, 140 * US, call=scaled)
    if waits is not None:
        made.api("cudaStreamSynchronize", waits[0] * US, waits[1] * US)
        says("| 130 µs | 125–128 µs | `cudaStreamSynchronize` 60–120 µs | `sync`")
    elif call is not None:
        says(f"| {start} µs | {call[0]}–{call[1]} µs | | `{cause}`")
    timeline = made.timeline()
    (gpu,) = gather([timeline])
    books = account([timeline], [0], gpu, FoundSteps(refused="none"), Window(0, 140 * US))
    idle = {owner: ns for owner, ns in books.ledger_ns.items() if owner.startswith("idle_") and ns}
    assert idle == {f"idle_{cause}": (start - 100) * US}


def test_the_feed_gaps_and_the_input_stall_of_a_gpu_that_waits() -> None:
    gpu = of("dense41m-2gpu-pinned.rank*").gpus[1]
    assert gpu.batch_gaps and gpu.feed_gaps and gpu.input_copies and gpu.input_stall_share
    batch, feed = gpu.batch_gaps.total_ns, gpu.feed_gaps.total_ns
    assert (gpu.steps.count, gpu.batch_gaps.count, gpu.feed_gaps.count) == (6, 5, 5)
    says(f"the batch gaps take {grouped(batch)} ns, of which {grouped(feed)} ns are feed gaps")
    says(f"for the batch for {feed / 5e6:.1f} ms, and for something else for {(batch - feed) / 5e6:.1f} ms")
    this, later = (int(gpu.input_copies[f"exposed_{which}_step_ns"] or 0) for which in ("this", "later"))
    says(
        f"({grouped(feed)} + {grouped(this)} + {grouped(later)}) / {grouped(gpu.span_ns)} = "
        f"{100 * gpu.input_stall_share:.1f} %"
    )


def test_waiting_and_transfer_of_two_ranks() -> None:
    timelines = []
    for begins in (10, 13):
        made = Build(path=f"rank{begins}.sqlite", device=0, pid=begins, origin_utc_ns=0)
        made.kernel(begins * 1_000_000, 15_000_000, name="ncclDevKernel_AllReduce")
        made.device(0, uuid=f"gpu-{begins}")
        timelines.append(made.timeline())
    gpus = gather(timelines, (0, 0))
    moved = [Moved(np.array([100]), np.array([0], np.int8), *(np.array([""], object),) * 2)] * 2
    first, second = collectives.Matched(list(map(collectives.own, gpus, moved)), (0, 0), 0).calls()
    assert [int(call.waiting_ns[0]) for call in (first, second)] == [3_000_000, 0]
    assert [int(call.transfer_ns[0]) for call in (first, second)] == [2_000_000, 2_000_000]
    says("| rank 0 | 5 ms | 3 ms | 3 ms | 2 ms |", "| rank 1 | 2 ms | 0 | 0 | 2 ms |")


def test_the_bus_bandwidth_of_the_recording() -> None:
    found = the_recording().collectives
    assert found.bytes_per_step and found.transfer_ns and found.waiting_ns and found.bus_gb_per_s
    by_hand = 5 * found.bytes_per_step * 2 * (2 - 1) / 2 / found.transfer_ns
    assert found.bus_gb_per_s == pytest.approx(by_hand, rel=1e-12)
    says(f"5 x {grouped(found.bytes_per_step)} x 2 x (2 - 1) / 2 / {grouped(found.transfer_ns)} = {by_hand:.1f} GB/s")
    says(f"waiting {grouped(found.waiting_ns)} + transfer {grouped(found.transfer_ns)} = {grouped(found.busy_ns)} ns")


def test_what_bounds_the_compute_of_a_sample() -> None:
    made = Build()
    made.kernel(0, 60 * US)
    made.memset(100 * US, 101 * US)
    made.counters(0, 100 * US, tensor_active=45, dram_read=10, dram_write=5)
    (gpu,) = measure([made.timeline()], window="capture").gpus
    assert gpu.gpu_metrics is not None and gpu.gpu_metrics.bound_ns is not None
    assert gpu.gpu_metrics.bound_ns["tensor"] == 60 * US == gpu.ledger_ns["compute"]
    says(f"45 x 100 / 60 = {45 * 100 // 60} %", f"15 x 100 / 60 = {15 * 100 // 60} %", "The 60 µs are tensor-bound")


def test_what_is_left_without_a_loss() -> None:
    gpu = drawn()
    assert whatif.span_without(gpu, {"collective": 15 * US}) == 85 * US
    losses_ns = {owner: ns for owner, ns in gpu.ledger_ns.items() if owner != "compute" and ns}
    assert whatif.span_without(gpu, losses_ns) == 65 * US
    says("100 / 85 - 1 = +17.6 %", "= 65 µs | +53.8 %")
    real = the_recording()
    launch = real.ledger_ns["idle_launch"] or 0
    left = whatif.span_without(real, {"idle_launch": launch})
    gain = 100 * (real.span_ns / left - 1)
    says(f"{grouped(real.span_ns)} - {grouped(launch)} = {grouped(left)} ns, at most +{gain:.1f} %")


def test_the_loss_ledger_of_two_recordings() -> None:
    found = losses(of("resnet50-2gpu-device.rank*"), of("resnet50-2gpu-pinned.rank*"))
    ms = {owner: float(loss) / 1e6 for owner, loss in found.loss_ns.items() if loss is not None}
    before, after = float(found.step_before_ns) / 1e6, float(found.step_after_ns) / 1e6
    says(f"{before:.2f} ms become {after:.2f} ms", f"The difference of {after - before:.2f} ms")
    for name, owner in (
        ("compute", "compute"),
        ("launch idle", "idle_launch"),
        ("turnaround idle", "idle_turnaround"),
        ("copies to the GPU", "h2d"),
        ("sync idle", "idle_sync"),
        ("collective", "collective"),
        ("memset", "memset"),
    ):
        says(f"{name} {ms.pop(owner):.2f}")
    says(f"copies within the GPU {ms.pop('d2d'):+.2f} ms")
    assert sum(loss != 0 for loss in ms.values()) == 2 and all(abs(loss) < 0.01 for loss in ms.values())


def test_the_throughput_of_two_ranks() -> None:
    def rank(number: int, start: float, end: float) -> RankRecord:
        return RankRecord(number, 2, number, "a", None, int(start * 1e9), int(end * 1e9), 1000, [], [])

    assert round(samples_per_s([rank(0, 0.0, 2.0), rank(1, 0.1, 2.1)])) == 952
    says("2 000 / 2.1 = 952 samples/s")


def test_the_coverage_of_few_launches() -> None:
    assert [spread(range(count)).coverage for count in (3, 6)] == [0.75, 0.96875]
    assert [spread(range(1, count + 1)).interval for count in (5, 6)] == ["min..max", "order statistics"]
    says("75 % for 3 launches, 96.9 % for 6")


def test_the_efficiency_of_four_gpus() -> None:
    rows = (ROOT / "docs/results/2026-11-21-4xh200/headline-summary.csv").read_text().splitlines()
    columns = rows[0].split(",")
    one, four = (dict(zip(columns, row.split(","), strict=True)) for row in rows[1:])

    def of_row(row: dict[str, str]) -> Spread:
        values = [float(row[f"samples_per_s_{name}"]) for name in ("global", "low", "high", "sigma")]
        return Spread(3, *values[:3], float(row["coverage"]), values[3])

    found = ratio(of_row(four), of_row(one), scale=1 / 4)
    assert found.error is not None
    assert found.value == pytest.approx(float(four["efficiency"]), rel=1e-12)
    says(
        f"= {100 * found.value:.2f} % |",
        f"= {100 * found.error:.2f} % |",
        f"= {100 * found.low:.2f} % to",
        f"= {100 * found.high:.2f} % |",
        f"at least 0.75 + 0.75 - 1 = {100 * found.coverage:.0f} %",
    )


def test_the_prediction_of_four_ranks() -> None:
    ms = 1_000_000
    one = hand.gpu(step_ns=100 * ms)
    two = hand.gpu(step_ns=105_500_000, ledger={"collective": 5 * ms}, waiting=3 * ms, transfer=4 * ms)
    two.collectives.one_step = OneStep(4, 101 * ms, 2 * ms, [Bucket(None, 88 * ms, 90 * ms, 4 * ms)])
    two.collectives.varies_ns = 3_544_908
    (found,), basis = step_time.predict(hand.measures([one]), hand.measures([two, two]), [4])
    assert (basis.overlap, basis.varying_ns, basis.straggling_ns) == ("replayed", 2 * ms, 1 * ms)
    assert [round(ns / ms, 2) for ns in (found.step_ns, found.high_ns)] == [109.15, 115.15]
    assert [f"{100 * value:.1f}" for value in (found.efficiency, found.efficiency_low)] == ["91.6", "86.8"]
    assert [round(step_time.expected_largest(n), 3) for n in (2, 4)] == [0.564, 1.029]
    says("| 109.15, efficiency 91.6 % |", "| 115.15, efficiency 86.8 % |", "E(2) = 0.564 and E(4) = 1.029")


def test_the_prediction_from_throughput_on_one_and_two_hosts() -> None:
    points = [curve.Point(8, 3936.0), curve.Point(16, 6752.0)]
    (found,) = curve.predict(points, [128], 8)
    s = 16 * 3936 / 6752 / 8 - 1
    ends = [1 / (1 + s * 8**g) for g in (0.3, 0, 1)]
    says(
        f"= {s:.4f}",
        f"1 / (1 + {s:.4f} x 8^0.3) = {100 * ends[0]:.1f} %",
        f"{100 * ends[1]:.1f} % with g = 0, {100 * ends[2]:.1f} % with g = 1",
        f"{100 * found.efficiency:.1f} % ({100 * found.low:.1f} to {100 * found.high:.1f} %)",
    )


def test_what_four_hosts_add_to_a_step() -> None:
    links = network.network("8x200Gb/s,2us")
    assert links.host_bytes_per_s == 200e9
    assert network.between_hosts_ns(4, 100_000_000, links) == pytest.approx(762_000)
    found = network.added(4, 100_000_000, links, 10e6)
    assert (found.expected_ns, found.least_ns, found.most_ns) == pytest.approx((381_000, 0, 762_000))
    says("2 x 3/4 x 0.5 = 0.762 ms, the tree 1.008 ms", "0.381 ms longer (0 to 0.762)")
