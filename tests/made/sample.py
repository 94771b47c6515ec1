"""A training run with known answers: every nanosecond's owner is chosen first, then the operations that make it so.

Input for views and verdicts. The ledger is the sum of what was chosen, not what the code under test finds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profiles.gpus.gather import gather
from profiles.gpus.operations import for_pictures
from profiles.model.analysed import Analysis, GpuAnalysis, Ownership
from profiles.model.collectives import Collectives
from profiles.model.findings import Finding
from profiles.model.measures import CLASSES, OWNERS, GpuMeasures, Measures
from profiles.model.operations import Copies, Kernels, NamedKernel
from profiles.model.steps import Gaps, Percentiles, StepRow, Steps
from profiles.model.timeline import Doubt, Timeline
from tests.made.build import Build

NAMES = (
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(float const*, float*)",
    "void tensorflow::functor::ColumnReduceKernel<float const*, float*, cub::Sum>(float const*, float*, int, int)",
    "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64",
    "Mul_GPU_DT_BFLOAT16_DT_BFLOAT16_kernel",
    "AddV2_GPU_DT_BFLOAT16_DT_BFLOAT16_kernel",
    "Relu_GPU_DT_BFLOAT16_DT_BFLOAT16_kernel",
    "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<a<b> & c>>(int) <script>alert('x')</script>",
    "sgemm_128x64_nn",
)
COLLECTIVE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
INDEX = {owner: place for place, owner in enumerate(OWNERS)}
BATCH_BYTES = 77_070_336
LAUNCH_GAP_EVERY = 97  # one kernel in so many was launched late


def sample(
    *, steps: int = 12, gpus: int = 4, kernels_per_step: int = 3800, seed: int = 0
) -> tuple[Analysis, list[Timeline]]:
    """`gpus` ranks of one GPU each, `steps` measured steps; the slowest step is the one before the last."""
    rng = np.random.default_rng(seed)
    built = [_gpu(rng, gpu, steps, kernels_per_step) for gpu in range(gpus)]
    timelines = [timeline for timeline, _, _ in built]
    measures = Measures(
        recordings=[timeline.recording for timeline in timelines],
        gpus=[measures for _, measures, _ in built],
        findings=_findings(built[0][1]),
        doubts=[
            Doubt(
                "feed-or-host",
                "The recording has no iterator marks: feed gaps include the host's dispatch of the step.",
                "record with `ringscope record`, whose marks tell the two apart",
                ("/gpus/0/feed_gaps", "/gpus/1/feed_gaps"),
            )
        ],
        clock={"method": "utc", "shifts": [0] * gpus, "residual_ns": 1500},
    )
    analysis = Analysis(measures, tuple(picture for _, _, picture in built), (0,) * gpus)
    return with_operations(analysis, timelines), timelines


def with_operations(analysis: Analysis, timelines: list[Timeline]) -> Analysis:
    """The analysis with every operation of these timelines, one GPU each."""
    drawn = zip(analysis.gpus, gather(timelines), strict=True)
    return replace(analysis, gpus=tuple(replace(gpu, operations=for_pictures(did)) for gpu, did in drawn))


def _gpu(
    rng: np.random.Generator, gpu: int, steps: int, kernels_per_step: int
) -> tuple[Timeline, GpuMeasures, GpuAnalysis]:
    lengths, owners, bounds = [], [], [0]
    for step in range(steps):
        length, owner = _step(rng, kernels_per_step, slow=step == steps - 2, straggler=gpu == 0)
        lengths.append(length)
        owners.append(owner)
        bounds.append(bounds[-1] + len(length))
    length, owner = np.concatenate(lengths), np.concatenate(owners)
    end = 1_000_000 + np.cumsum(length)
    start = end - length
    step_start = start[[b for b in bounds[:-1]]]
    step_end = end[[b - 1 for b in bounds[1:]]]
    ownership = Ownership(start, end, owner.astype(np.int8))
    timeline = _timeline(rng, gpu, start, end, owner, step_start, step_end)
    measures = _measures(gpu, timeline, start, end, owner, bounds)
    return timeline, measures, GpuAnalysis(gpu, ownership, step_start, step_end)


def _step(rng: np.random.Generator, kernels: int, *, slow: bool, straggler: bool) -> tuple[np.ndarray, np.ndarray]:
    """Lengths and owners of one step's segments, from its first kernel through its batch gap."""
    compute = rng.gamma(1.2, 15_000, kernels).astype(np.int64) + 1500
    pause = rng.integers(900, 2600, kernels)
    pause_owner = np.full(kernels, INDEX["idle_turnaround"])
    late = slice(None, None, LAUNCH_GAP_EVERY)
    pause[late] = rng.integers(20_000, 90_000, len(pause[late]))
    pause_owner[late] = INDEX["idle_launch"]
    length = np.column_stack([compute, pause]).ravel()
    owner = np.column_stack([np.full(kernels, INDEX["compute"]), pause_owner]).ravel()
    reduce = int(rng.integers(2_000_000, 4_000_000)) // (2 if straggler else 1)
    feed = int(rng.integers(3_000_000, 6_000_000)) * (6 if slow else 1)
    tail = [
        ("collective", reduce),
        ("idle_wait", 150_000),
        ("d2h", 2_400),
        ("idle_sync", int(rng.integers(400_000, 900_000))),
        ("idle_feed", feed),
        ("h2d", 7_900_000),
        ("idle_launch", int(rng.integers(100_000, 300_000))),
        ("memset", 1_700),
    ]
    return (
        np.concatenate([length, [ns for _, ns in tail]]).astype(np.int64),
        np.concatenate([owner, [INDEX[name] for name, _ in tail]]).astype(np.int64),
    )


def _timeline(
    rng: np.random.Generator,
    gpu: int,
    start: np.ndarray,
    end: np.ndarray,
    owner: np.ndarray,
    step_start: np.ndarray,
    step_end: np.ndarray,
) -> Timeline:
    made = Build(
        device=gpu,
        pid=4000 + gpu,
        path=f"sample.rank{gpu}.sqlite",
        tool="nsys",
        tool_version="2025.3.1",
        schema_version="3.20.3",
        rank=gpu,
        rank_source="marks",
        origin_ns=0,
        origin_utc_ns=1_790_000_000_000_000_000,
    )

    def own(table: str, by: str, stream: int, **more: object) -> None:
        """The segments of this owner, as operations."""
        at = np.flatnonzero(owner == INDEX[by])
        made.many(table, start_ns=start[at], end_ns=end[at], stream=stream, correlation=at, **more)

    from_host = {"src_kind": "pageable", "dst_kind": "device", "dst_device": gpu}
    own("kernels", "compute", 17, name=rng.choice(NAMES, int((owner == INDEX["compute"]).sum())))
    own("kernels", "collective", 23, name=COLLECTIVE)
    own("copies", "h2d", 21, kind="h2d", bytes=BATCH_BYTES, **from_host)
    own("copies", "d2h", 22, kind="d2h", bytes=4, **from_host)
    # A second copy, wholly under kernels: it costs nothing and must show on a stream of its own.
    hidden = {"start_ns": step_start + 2_000_000, "end_ns": step_start + 2_600_000}
    made.many("copies", **hidden, stream=21, kind="h2d", bytes=512, **from_host)
    own("memsets", "memset", 17, bytes=64)
    names = [f"step {step}" for step in range(len(step_start))]
    made.many("marks", start_ns=step_start - 5000, end_ns=step_end - 9000, name=names)
    made.device(gpu, uuid=f"GPU-{gpu:08x}", bus_id=f"0000:{gpu + 1:02x}:00.0", name="NVIDIA H200")
    return made.timeline(known=frozenset({"kernels", "copies", "memsets", "marks", "devices"}))


def _measures(
    gpu: int, timeline: Timeline, start: np.ndarray, end: np.ndarray, owner: np.ndarray, bounds: list[int]
) -> GpuMeasures:
    length = end - start
    ledger = _ledger(length, owner)
    busy = {name: ledger[name] for name in CLASSES}
    hidden_ns = 600_000 * (len(bounds) - 1)
    busy["h2d"] = (busy["h2d"] or 0) + hidden_ns
    rows = []
    for step, (a, b) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
        part = _ledger(length[a:b], owner[a:b])
        gap = sum(part[name] or 0 for name in OWNERS if name not in ("compute", "idle_turnaround", "collective"))
        rows.append(
            StepRow(step, int(start[a]), int(end[b - 1]), part, gap, part["idle_feed"], int((owner[a:b] == 0).sum()))
        )
    period = _percentiles([row.end_ns - row.start_ns for row in rows])
    kernels = timeline.kernels.assign(ns=timeline.kernels.end_ns - timeline.kernels.start_ns)
    top = kernels.groupby("name", observed=True).ns.agg(["count", "sum"]).sort_values("sum", ascending=False)
    span = int(end[-1] - start[0])
    return GpuMeasures(
        recordings=[gpu],
        rank=gpu,
        device=gpu,
        uuid=f"GPU-{gpu:08x}",
        bus_id=f"0000:{gpu + 1:02x}:00.0",
        name="NVIDIA H200",
        window="steps",
        window_ns=[int(start[0]), int(end[-1])],
        span_ns=span,
        ledger_ns=ledger,
        busy_ns=busy,
        kernels=Kernels(
            count=len(kernels),
            graph_launches=0,
            graph_nodes=0,
            per_step=len(kernels) // len(rows),
            distinct=kernels.name.nunique(),
            median_ns=int(np.sort(kernels.ns)[len(kernels) // 2]),
            share_under_5us=float((kernels.ns < 5000).mean()),
            launch_latency_ns={"p50": 5120, "p95": 88_032},
            top=[NamedKernel(str(n), int(c), int(t)) for n, c, t in top.itertuples()],
            groups={
                "convolution/matmul": {"count": 900, "total_ns": ledger["compute"] // 3},  # type: ignore[operator]
                "element-wise": {"count": 1900, "total_ns": ledger["compute"] // 2},  # type: ignore[operator]
            },
            short_elementwise_runs={"runs": 12, "kernels": 240, "total_ns": 1_900_000},
        ),
        copies={
            "h2d": Copies(
                count=2 * len(rows),
                bytes=(BATCH_BYTES + 512) * len(rows),
                busy_ns=busy["h2d"],
                exposed_ns=ledger["h2d"] or 0,
                overlap=hidden_ns / busy["h2d"],
                gb_per_s=(BATCH_BYTES + 512) * len(rows) / busy["h2d"],
                pageable_share=1.0,
                under_64kib=len(rows),
                synchronous=None,
            ),
            "d2h": Copies(len(rows), 4 * len(rows), ledger["d2h"] or 0, ledger["d2h"] or 0, 0.0, 0.0016, 1.0, 12, 0),
            "p2p": Copies(0, 0, 0, 0, None, None, None, 0, 0),
            "d2d": Copies(0, 0, 0, 0, None, None, None, 0, 0),
        },
        collectives=Collectives(
            count=len(rows),
            per_step=1,
            busy_ns=ledger["collective"] or 0,
            exposed_ns=ledger["collective"] or 0,
            overlap=0.0,
            bytes_per_step=102_228_128,
            bus_gb_per_s=171.3,
            skew_ns={"p50": 61_234, "max": 1_934_221},
            waiting_ns=(ledger["collective"] or 0) * 7 // 8,
            transfer_ns=(ledger["collective"] or 0) // 8,
            arrived_last_share=0.75 if gpu == 0 else 0.25 / 3,
        ),
        steps=Steps("marks", None, len(rows), 1, 1, 0, period, rows),
        feed_gaps=_gaps([row.feed_gap_ns or 0 for row in rows]),
        batch_gaps=_gaps([row.batch_gap_ns or 0 for row in rows]),
        batch_gap_ledger_ns={"idle_feed": ledger["idle_feed"] or 0, "idle_sync": ledger["idle_sync"] or 0},
        input_copies={
            "count": len(rows),
            "bytes": BATCH_BYTES * len(rows),
            "busy_ns": ledger["h2d"],
            "exposed_ns": ledger["h2d"],
            "exposed_this_step_ns": ledger["h2d"],
            "exposed_later_step_ns": 0,
            "overlap": 0.0,
        },
        input_stall_share=((ledger["idle_feed"] or 0) + (ledger["h2d"] or 0)) / span,
    )


def _ledger(length: np.ndarray, owner: np.ndarray) -> dict[str, int | None]:
    return {name: int(length[owner == place].sum()) for name, place in INDEX.items()}


def _percentiles(values: list[int]) -> Percentiles:
    """Nearest rank."""
    ordered = sorted(values)
    return Percentiles(ordered[(len(ordered) + 1) // 2 - 1], ordered[-(-95 * len(ordered) // 100) - 1], ordered[-1])


def _gaps(values: list[int]) -> Gaps:
    at = _percentiles(values)
    return Gaps(sum(v > 0 for v in values), sum(values), at.p50, at.p95, at.max)


def _findings(first: GpuMeasures) -> list[Finding]:
    steps = first.steps.count
    launch = ((first.ledger_ns["idle_turnaround"] or 0) + (first.ledger_ns["idle_launch"] or 0)) // steps
    copy = (first.ledger_ns["h2d"] or 0) // steps
    return [
        Finding(
            "not-compiled",
            None,
            launch,
            0.31,
            f"A step launches {first.kernels.per_step:,} kernels, most of them a few microseconds long.",
            "model.compile(..., jit_compile=True), or `--step compiled` in ringscope bench",
            {"kernels_per_step": first.kernels.per_step, "share_under_5us": first.kernels.share_under_5us},
            "the compiled step launches as many kernels",
        ),
        Finding(
            "copies-pageable",
            0,
            copy,
            0.052,
            "Every input copy is from pageable memory, at a fifth of what the bus gives.",
            "stage batches in pinned memory: `--feed staging`",
            {"pageable_share": 1.0, "gb_per_s": first.copies["h2d"].gb_per_s},
            "`ringscope doctor` measures pinned copies no faster than pageable ones",
        ),
    ]
