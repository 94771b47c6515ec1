"""From timelines to measures: numbers of small recordings counted by hand, and every doubt on what deserves it."""

from __future__ import annotations

import gc
import json
import shutil
import weakref
from dataclasses import replace

import pytest

from profiles import analyse, measure, readers
from profiles.gpus import gather
from profiles.gpus.clock import Clock
from profiles.ground.errors import RingscopeError, UnreadableRecording
from profiles.measuring import one_recording as unit
from profiles.metrics import doubts
from profiles.model import measures_json
from profiles.model.measures import CLASSES, OWNERS
from profiles.model.timeline import Doubt
from profiles.runs.records import Cell, RunRecord
from profiles.verdicts import Context
from tests.made.bruteforce import BruteForce
from tests.made.build import RECORDED, Build
from tests.made.random_timelines import MARKS
from tests.recordings import DATA

MS = 1_000_000


def training(*, steps: int = 8, marked: bool = True, long: tuple[int, int] = (-1, 1), **more) -> Build:
    """Steps of 10 ms: a fetch, a copy of the next batch, two kernels. `long`: this step takes so many times longer."""
    made = Build(**more)
    at = 0
    for step in range(steps):
        length = 10 * MS * (long[1] if step == long[0] else 1)
        if marked:
            made.mark(f"step {step}", at - 2 * MS, at + length - 2 * MS)
        made.copy("h2d", at - 2 * MS, at - MS, 1 << 20, stream=2, call=(at - 2 * MS - 500, at - MS))
        made.kernel(at, at + 3 * MS, "sgemm", call=(at - 900_000, at - 800_000))
        made.kernel(at + 3 * MS + 1000, at + length - 3 * MS, "softmax", call=(at - 700_000, at - 600_000))
        made.copy("d2h", at + length - 3 * MS + 1000, at + length - 3 * MS + 2000, 4, call=(at - 500_000, at - 400_000))
        at += length
    return made


def codes(made: Build, **options) -> set[str]:
    known = options.pop("known", RECORDED)
    found = measure([made.timeline(known=known)], **options).doubts
    assert not [doubt for doubt in found if "{" in doubt.text + doubt.next]  # a template that nothing filled in
    return {doubt.code for doubt in found}


def test_a_graph_recorded_as_a_whole_is_compute_as_long_as_its_nodes_together():
    """One program recorded both ways: three kernels in a row in a graph, launched by one call."""
    whole, nodes = Build(), Build()
    for at in range(0, 1000, 100):
        call = (at - 20, at - 10)
        whole.graph(at, at + 60, call=call)
        nodes.api("cudaGraphLaunch_v10000", *call, correlation=5000 + at)
        for offset in (0, 20, 40):
            node = {"graph_node": 1 + offset, "correlation": 5000 + at}
            nodes.kernel(at + offset, at + offset + 20, f"node_{offset}", **node)
    of_whole, of_nodes = (measure([made.timeline()], window="capture").gpus[0] for made in (whole, nodes))
    assert of_whole.ledger_ns == of_nodes.ledger_ns and of_whole.ledger_ns["compute"] == 600
    assert (of_whole.kernels.graph_launches, of_whole.kernels.count) == (10, 0)
    assert (of_nodes.kernels.graph_nodes, of_nodes.kernels.count, of_nodes.kernels.distinct) == (30, 30, 3)
    assert "graph-level-recording" in codes(whole) and "graph-level-recording" not in codes(nodes)
    for made, gpu in ((whole, of_whole), (nodes, of_nodes)):
        timeline = made.timeline()
        brute = BruteForce([timeline], [(0, 0)], _no_steps(), tuple(gpu.window_ns)).ledger()
        assert {name: ns for name, ns in gpu.ledger_ns.items() if ns} == {name: ns for name, ns in brute.items() if ns}


def _no_steps():
    from profiles.steps.found import FoundSteps

    return FoundSteps()


def test_gaps_between_the_nodes_of_a_graph_are_told_when_nodes_are_recorded():
    made = Build()
    made.api("cudaGraphLaunch_v10000", 0, 10, correlation=9)
    for at in (100, 200):
        made.kernel(at, at + 50, graph_node=at, correlation=9)
    assert measure([made.timeline()]).gpus[0].ledger_ns["idle_turnaround"] == 50


def test_a_peer_copy_counts_on_the_gpu_whose_stream_ran_it():
    made = Build()
    made.kernel(0, 100, call=(-10, -5), device=0)
    made.kernel(0, 50, call=(-10, -5), device=1)
    made.copy("p2p", 80, 140, 6000, src_device=0, dst_device=1, device=0, stream=3, call=(70, 75))
    first, second = measure([made.timeline()]).gpus
    assert (first.ledger_ns["p2p"], first.busy_ns["p2p"], first.copies["p2p"].bytes) == (40, 60, 6000)
    assert first.copies["p2p"].overlap == pytest.approx(1 / 3) and first.copies["p2p"].gb_per_s == 100
    assert (second.ledger_ns["p2p"], second.copies["p2p"].count) == (0, 0)


def test_two_processes_on_one_gpu_have_one_ledger_and_a_doubt():
    made = Build()
    made.kernel(0, 100, pid=1, call=(-10, -5))
    made.kernel(50, 200, pid=2, call=(-10, -5))
    (gpu,) = measure([made.timeline()]).gpus
    assert gpu.ledger_ns["compute"] == gpu.span_ns == 200
    (doubt,) = (doubt for doubt in measure([made.timeline()]).doubts if doubt.code == "several-processes-on-gpu")
    assert doubt.next.endswith("record each rank by itself")


@pytest.mark.parametrize(
    ("later_ns", "remedy"),
    [
        (
            0,
            "give every rank its own GPU; if each has one (hosts or MIG instances may name theirs alike), give one "
            "recording at a time",
        ),
        (10**9, "give the recordings of one run"),
    ],
)
def test_recordings_of_a_gpu_that_follow_each_other_are_doubted_as_different_runs(later_ns, remedy):
    builds = [Build(pid=1, origin_utc_ns=10**18), Build(pid=2, origin_utc_ns=10**18 + later_ns)]
    for made in builds:
        made.device(0, uuid="GPU-1")
        made.kernel(0, 100, call=(-10, -5))
    found = measure([made.timeline() for made in builds])
    (doubt,) = (doubt for doubt in found.doubts if doubt.code == "several-processes-on-gpu")
    assert len(found.gpus) == 1
    assert doubt.next == remedy


def test_the_rows_of_the_steps_sum_to_the_ledger_of_the_window():
    (gpu,) = measure([training().timeline()]).gpus
    assert gpu.window == "steps" and gpu.steps.count == 8
    for owner in OWNERS:
        assert (gpu.ledger_ns[owner] or 0) == sum(row.ledger_ns[owner] or 0 for row in gpu.steps.rows)
    assert all(sum(ns or 0 for ns in row.ledger_ns.values()) == row.end_ns - row.start_ns for row in gpu.steps.rows)
    assert [row.kernels for row in gpu.steps.rows] == [2] * 8


def test_an_idle_gpu_in_some_steps_shows_in_their_rows():
    """`idle 0.04 %` must not hide steps without work: each step has its own ledger."""
    made = training(steps=12, long=(6, 2))
    made.rows["kernels"] = [row for row in made.rows["kernels"] if not 63 * MS < row["start_ns"] < 79 * MS]
    (gpu,) = measure([made.timeline()]).gpus
    (row,) = (row for row in gpu.steps.rows if row.step == 6)
    assert row.kernels == 1 and row.ledger_ns["compute"] == 3 * MS


def test_kernels_are_counted_timed_and_grouped():
    made = Build()
    for at, end, name in [
        (0, 1000, "Mul_GPU_DT_FLOAT_DT_FLOAT_kernel"),
        (1000, 3000, "AddV2_GPU_DT_FLOAT_DT_FLOAT_kernel"),
        (3000, 9000, "Mul_GPU_DT_FLOAT_DT_FLOAT_kernel"),
        (9000, 9500, "sm90_xmma_fprop_implicit_gemm"),
        (9500, 9700, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        (9700, 9800, "Mul_GPU_DT_FLOAT_DT_FLOAT_kernel"),
    ]:
        made.kernel(at, end, name, call=(at - 300, at - 200))
    kernels = measure([made.timeline()]).gpus[0].kernels
    assert (kernels.count, kernels.distinct, kernels.median_ns) == (6, 4, 500)
    assert kernels.share_under_5us == pytest.approx(5 / 6)
    assert kernels.under_5us_ns == 1000 + 2000 + 500 + 200 + 100
    assert kernels.launch_latency_ns == {"p50": 200, "p95": 200}
    assert [(one.name[:3], one.count, one.total_ns) for one in kernels.top[:2]] == [("Mul", 3, 7100), ("Add", 1, 2000)]
    assert kernels.groups["elementwise"] == {"count": 4, "total_ns": 9100}
    assert kernels.groups["convolution_matmul"]["total_ns"] == 500
    assert kernels.groups["collective"]["total_ns"] == 200
    assert kernels.short_elementwise_runs == {"runs": 1, "kernels": 2, "total_ns": 3000}


def test_runs_of_short_kernels_are_those_of_one_stream():
    made = Build()
    for at in range(0, 600, 100):
        made.kernel(at, at + 10, "Mul_GPU_DT_FLOAT_DT_FLOAT_kernel", stream=at // 100 % 2)
    assert measure([made.timeline()]).gpus[0].kernels.short_elementwise_runs["runs"] == 2


def test_copies_are_counted_by_direction():
    made = Build()
    made.copy("h2d", 0, 100, 100_000, call=(-5, 100))
    made.copy("h2d", 200, 300, 300_000, src_kind="pinned", call=(150, 300))
    made.copy("h2d", 400, 401, 8, api="cudaMemcpy_v3020", call=(350, 401))
    made.kernel(250, 300, call=(240, 245))
    h2d = measure([made.timeline()]).gpus[0].copies["h2d"]
    assert (h2d.count, h2d.bytes, h2d.busy_ns, h2d.exposed_ns) == (3, 400_008, 201, 151)
    assert h2d.gb_per_s == pytest.approx(400_008 / 201)
    assert h2d.pageable_share == pytest.approx(100_008 / 400_008)
    assert (h2d.under_64kib, h2d.synchronous) == (1, 1)


def test_small_copies_are_those_below_64_kib():
    made = Build()
    for place, size in enumerate((65_535, 65_536, 65_537)):
        made.copy("h2d", 1_000 * place, 1_000 * place + 900, size)
    assert measure([made.timeline()]).gpus[0].copies["h2d"].under_64kib == 1


def test_without_a_table_of_copies_they_are_unknown_and_so_is_why_the_gpu_was_idle():
    made = Build()
    made.kernel(0, 100, call=(-10, -5))
    made.kernel(150, 200, call=(-4, -3))
    (gpu,) = measure([made.timeline(known=RECORDED - {"copies"})]).gpus
    assert gpu.ledger_ns["h2d"] is None and gpu.busy_ns["h2d"] is None and gpu.copies["h2d"].count is None
    assert gpu.ledger_ns["idle_unknown"] == 50 and gpu.ledger_ns["idle_turnaround"] is None
    assert sum(ns for ns in gpu.ledger_ns.values() if ns is not None) == gpu.span_ns


@pytest.mark.parametrize(
    ("missing", "unknown"),
    [
        ({"memsets"}, {"memset"}),
        ({"copies"}, {"h2d", "d2h", "p2p", "d2d"}),
        ({"copies", "memsets"}, {"h2d", "d2h", "p2p", "d2d", "memset"}),
        ({"kernels", "graphs"}, {"compute", "collective"}),
        (set(), set()),
    ],
)
def test_time_of_what_is_not_recorded_is_unknown_and_never_0(missing, unknown):
    made = training()
    for table in missing:
        made.rows.pop(table, None)
    (gpu,) = measure([made.timeline(known=RECORDED - missing)], window="capture").gpus
    for told in (gpu.ledger_ns, gpu.busy_ns):
        assert {name for name in CLASSES if told[name] is None} == unknown


def test_copies_that_take_time_and_tell_no_bytes_moved_an_unknown_number():
    made = Build()
    made.copy("h2d", 0, 100, size=0)
    made.copy("d2h", 100, 200, size=8)
    copies = measure([made.timeline()]).gpus[0].copies
    assert (copies["h2d"].count, copies["h2d"].bytes, copies["h2d"].under_64kib) == (1, None, None)
    assert (copies["d2h"].bytes, copies["d2d"].bytes) == (8, 0)


@pytest.mark.parametrize(
    ("mark", "word"), [("step 3", "several steps in a row"), ("step[DECODE bs=32]", "several batches in a row")]
)
def test_of_one_marked_step_more_are_to_be_recorded_and_no_marks_to_be_made(mark, word):
    made = Build()
    made.mark(mark, 0, 362, domain="")  # its last kernel ends after it
    for at in range(10, 400, 50):
        made.kernel(at, at + 5, call=(at - 5, at - 4))
    (doubt,) = [one for one in measure([made.timeline()]).doubts if one.code == "steps-refused"]
    assert word in doubt.next
    if "batches" in word:
        assert "no batches" in doubt.text
        assert not [one for one in measure([made.timeline()]).doubts if "training" in one.text]


@pytest.mark.parametrize(
    "code, made, options",
    [
        ("class-not-recorded", training(), {"known": RECORDED - {"memsets"}}),
        ("no-api-rows", training(), {"known": RECORDED - {"api"}}),
        ("no-marks", training(marked=False), {"known": RECORDED - {"marks"}}),
        ("steps-refused", training(steps=2, marked=False), {}),
        ("warm-up-inside-window", training(long=(0, 3)), {"window": "capture"}),
        ("breaks-inside-window", training(steps=12, long=(6, 5)), {"window": "capture"}),
        ("copy-order-unknown", training(), {}),
    ],
)
def test_a_doubt_is_raised_where_it_is_deserved_and_nowhere_else(code, made, options):
    timeline_options = {"known": options.pop("known")} if "known" in options else {}
    if code == "no-api-rows":
        made.rows.pop("api", None)
    assert code in codes(made, **timeline_options, **options)
    faultless = training()
    faultless.mark(MARKS[1], 0, 1)
    faultless.mark("wait input", 0, 1)
    assert code not in codes(faultless)


@pytest.mark.parametrize(
    ("fetched", "called", "in_gaps_ns", "ns"),
    [
        ("between steps", "late", 5 * 100_000, 6 * 100_000),  # no gap follows the last step
        ("between steps", "early", 0, 0),
        ("within steps", "late", 0, 6 * 100_000),
    ],
)
def test_synchronisation_told_by_fetches_between_steps_is_doubted_and_by_others_not(fetched, called, in_gaps_ns, ns):
    """The GPU is idle for 100 µs before a fetch; what is early was called before the step began."""
    made = Build()
    for at in range(0, 6 * MS, MS):
        made.mark(f"step {at // MS}", at - 50_000, at + 940_000)
        made.kernel(at, at + 300_000, call=(at - 10_000, at - 9_000))
        call = at + 350_000 if called == "late" else at - 8_000
        made.copy("d2h", at + 400_000, at + 401_000, 4, call=(call, call + 10))
        if fetched == "within steps":
            made.kernel(at + 402_000, at + 500_000, call=(at - 7_000, at - 6_000))
    (gpu,) = measure([made.timeline()]).gpus
    assert (gpu.window, gpu.steps.count, gpu.ledger_ns["idle_sync"]) == ("steps", 6, ns)
    assert gpu.batch_gap_ledger_ns["idle_sync"] == in_gaps_ns
    assert ("sync-upper-bound" in codes(made)) == (in_gaps_ns > 0)


@pytest.mark.parametrize(
    "behind_s, without_calls, code", [(414, 0, "host-clock"), (0, 1, "calls-missing"), (0, 0, None)]
)
def test_calls_of_another_clock_and_calls_that_are_not_there_are_doubted(behind_s, without_calls, code):
    made = Build()
    for at in range(0, 5_000, 100):
        call = (at - behind_s * 1_000_000_000 - 20, at - behind_s * 1_000_000_000 - 10)
        made.kernel(at, at + 60, **({} if at < 100 * without_calls else {"call": call}))
    assert codes(made) & {"host-clock", "calls-missing", "no-api-rows"} == ({code} if code else set())


@pytest.mark.parametrize(("calls", "said"), [(0, "has no CUDA API calls"), (7, "has 7 CUDA API calls, and none tells")])
def test_calls_that_tell_no_operation_are_not_said_to_be_absent(calls: int, said: str) -> None:
    made = Build()
    for at in range(0, 5_000, 100):
        made.kernel(at, at + 60)
    for at in range(calls):
        made.api("cudaLaunchKernel", 10 * at, 10 * at + 5)
    (doubt,) = (one for one in measure([made.timeline()]).doubts if one.code == "no-api-rows")
    assert said in doubt.text


def test_one_of_a_gpus_recordings_without_ranges_is_enough_to_doubt():
    made = [training(pid=pid, path=f"{pid}.sqlite") for pid in (1, 2)]
    for one in made:
        one.device(0, uuid="GPU-0")
    first, second = made
    known = [RECORDED, RECORDED - {"marks"}]
    second.rows.pop("marks")
    both = measure([one.timeline(known=tables) for one, tables in zip(made, known, strict=True)])
    assert [gpu.recordings for gpu in both.gpus] == [[0, 1]]
    assert "no-marks" in {doubt.code for doubt in both.doubts} and "no-marks" not in codes(first)


def test_copies_whose_order_is_known_are_not_doubted_where_why_the_gpu_waited_is_not():
    made = training()
    made.mark(MARKS[1], 0, 1)
    made.rows.pop("api")
    (gpu,) = measure([made.timeline()]).gpus
    assert gpu.input_copies is not None and gpu.ledger_ns["idle_feed"] is None
    assert "copy-order-unknown" not in codes(made)


@pytest.mark.parametrize(
    ("residual_ns", "method", "doubted"),
    [
        (None, "none", True),
        (100_000, "utc", False),
        (100_001, "utc", True),
        (99, "collectives", True),  # the recordings' own starts do not tell it
    ],
)
def test_clocks_are_doubted_above_a_tenth_of_a_millisecond_and_where_ends_alone_tell_them(residual_ns, method, doubted):
    found = list(doubts.of_clock(Clock((0, 5), ("reference", method), residual_ns), []))
    assert [doubt.code for doubt in found] == ["clock-residual"] * doubted


@pytest.mark.parametrize("apart", [1, 8])
def test_marks_whose_numbers_rise_by_several_hold_several_steps_each(apart):
    timeline = training(steps=12).timeline()
    names = timeline.marks["name"].astype(str)
    names = names.str.replace(r"^step (\d+)$", lambda name: f"step {int(name[1]) * apart}", regex=True)
    measures = measure([replace(timeline, marks=timeline.marks.assign(name=names.astype("category")))])
    (gpu,) = measures.gpus
    assert (gpu.steps.source, gpu.steps.count) == ("marks", measure([timeline]).gpus[0].steps.count)
    told = [doubt.text for doubt in measures.doubts if doubt.code == "several-steps-each"]
    assert len(told) == (apart > 1) and all("holds 8 steps" in text for text in told)


@pytest.mark.parametrize("marked", [True, False])
def test_steps_that_only_the_kernels_period_tells_are_doubted(marked):
    made = training(steps=12, marked=marked)
    (gpu,) = measure([made.timeline()]).gpus
    assert gpu.steps.source == ("marks" if marked else "period")
    assert ("steps-by-period" in codes(made)) == (not marked)


@pytest.mark.parametrize("besides_ns, doubted", [(-2, False), (2, True)])
def test_steps_in_less_than_half_of_the_recording_are_doubted(besides_ns, doubted):
    """Six steps of 1 ms, and kernels before them that take as long but for `besides_ns`."""
    made = Build()
    made.kernel(-6 * MS - besides_ns, -MS, call=(-7 * MS, -7 * MS + 10))
    for at in range(0, 6 * MS, MS):
        made.mark(f"step {at // MS}", at - 10, at + MS - 10)
        made.kernel(at, at + MS - 20, call=(at - 9, at - 8))
    made.kernel(6 * MS - 10, 6 * MS, call=(6 * MS - 15, 6 * MS - 14))  # ends with the last step, and none of it
    made.rows["marks"][-1]["end_ns"] = 6 * MS
    (gpu,) = measure([made.timeline()]).gpus
    assert (gpu.window, gpu.span_ns) == ("steps", 6 * MS)
    assert ("steps-cover-little" in codes(made)) == doubted


def test_feed_without_input_ranges_is_doubted_and_with_them_not():
    made = training()
    made.mark(MARKS[1], 0, 1)
    assert "feed-or-host" in codes(made)
    made.mark("wait input", 0, 1)
    assert "feed-or-host" not in codes(made)


@pytest.mark.parametrize(
    ("mark", "calls", "told"),
    [
        ("aten::add", "cuda", "torch.profiler.record_function"),
        ("PjitFunction(step)", "cuda", "jax.profiler.TraceAnnotation"),
        ("work", "hip", "roctxRangePush"),
        ("work", "cuda", "nvtxRangePush"),
    ],
)
def test_programs_that_are_no_keras_are_told_by_which_ranges_waiting_shows(mark, calls, told):
    made = training()
    made.mark(mark, 100 * MS, 101 * MS)
    made.copy("h2d", 78 * MS, 79 * MS, 1 << 20, stream=2, call=(78 * MS - 500, 79 * MS))  # of a step that is not there
    timeline = made.timeline(known=RECORDED)
    timeline.api["name"] = timeline.api["name"].cat.rename_categories(lambda name: name.replace("cuda", calls))
    timeline.marks["domain"] = timeline.marks["domain"].cat.rename_categories(lambda _: "mine")  # not the harness's
    doubts = [doubt for doubt in measure([timeline]).doubts if doubt.code == "feed-or-host"]
    assert [(told in doubt.next, "Keras" in doubt.text + doubt.next) for doubt in doubts] == [(True, False)]


@pytest.mark.parametrize(
    "kind, size, took, doubted",
    [
        ("h2d", 1 << 20, 1048, True),
        ("h2d", 1 << 20, 1049, False),
        ("d2d", 1 << 24, 1677, True),
        ("d2d", 1 << 24, 1678, False),
        ("d2h", 1 << 19, 1, False),  # small: the clock's resolution, perhaps
        ("p2p", 1 << 30, 1, True),
        ("p2p", 1 << 30, 0, True),
    ],
)
def test_a_copy_faster_than_any_link_or_memory_is_doubted(kind, size, took, doubted):
    made = training()
    made.copy(kind, 900_000, 900_000 + took, size, call=(899_000, 899_500), stream=5)
    assert ("copy-too-fast" in codes(made)) == doubted


@pytest.mark.parametrize(
    "recorded, remedy",
    [
        ("nsys-sqlite", "record again, with the newest Nsight Systems; "),
        ("nvprof-sqlite", "record again, with nsys rather than nvprof"),
        ("rocprofv3", "record again, with a newer ROCm"),
        ("kineto", "record again, with a newer version of the profiler"),
    ],
)
def test_nobody_is_told_to_record_wrong_times_with_the_profiler_that_wrote_them(recorded, remedy):
    made = training(format=recorded)
    made.copy("h2d", 900_000, 901_000, 1 << 30, call=(899_000, 899_500), stream=5)
    late = Build(format=recorded)
    for at in range(0, 5_000, 100):
        late.kernel(at, at + 60, call=(at - 414_000_000_020, at - 414_000_000_010))
    for build, code in ((made, "copy-too-fast"), (late, "host-clock")):
        (doubt,) = (one for one in measure([build.timeline()]).doubts if one.code == code)
        assert doubt.next.startswith(remedy)


@pytest.mark.parametrize("others, which", [(0, ""), (1, "1 copy (4.00 kB)"), (2, "2 copies (8.00 kB)")])
def test_copies_whose_direction_is_not_recorded_are_doubted(others, which):
    made = training()
    for number, kind in enumerate(("d2d", *others * ["other"])):
        made.copy(kind, 900_000 + number * 100, 900_050 + number * 100, 4_000, stream=5)
    doubts = [one for one in measure([made.timeline(known=RECORDED)]).doubts if one.code == "copy-direction-unknown"]
    told = f"the recording does not tell the direction of {which}, counted as copying on the GPU"
    assert [one.text for one in doubts] == [told] * bool(others)


@pytest.mark.parametrize(
    "every, lasts, doubted", [(100, 5, False), (10, 5, True), (100, 91, False), (10, 9, True)]
)  # of 10 kernels, then nothing to the end
def test_a_capture_whose_kernels_lie_in_a_part_of_it_is_doubted(every, lasts, doubted):
    made = Build()
    for start in range(0, 10 * every, every):
        made.kernel(start, start + lasts, f"kernel {start}", call=(start - 10, start - 5))
    made.memset(999, 1000, call=(900, 990))
    assert ("mostly-no-training" in codes(made)) == doubted


def test_a_doubt_of_several_gpus_stands_once_with_all_places():
    first, second = Build(rank=0), Build(rank=1)
    for made in (first, second):
        made.kernel(0, 10)
    doubts = [doubt for doubt in measure([first.timeline(), second.timeline()]).doubts if doubt.code == "no-api-rows"]
    assert len(doubts) == 1 and {where.split("/")[2] for where in doubts[0].where} == {"0", "1"}


def test_the_doubts_of_the_reader_stay():
    from dataclasses import replace

    made = Build()
    made.kernel(0, 10)
    said = Doubt("dropped-events", "3 events were dropped", "record less")
    assert said in measure([replace(made.timeline(), doubts=(said,))]).doubts


def test_the_picture_is_what_the_ledger_was_summed_from():
    found = analyse([training().timeline()])
    (picture,), (gpu,) = found.gpus, found.measures.gpus
    own = picture.ownership
    assert [int(own.start_ns[0]), int(own.end_ns[-1])] == gpu.window_ns
    for number, owner in enumerate(OWNERS):
        mine = own.owner == number
        assert int((own.end_ns - own.start_ns)[mine].sum()) == (gpu.ledger_ns[owner] or 0)


def test_nothing_to_measure_is_said_in_one_line():
    with pytest.raises(RingscopeError, match="no GPU did anything"):
        measure([Build().timeline()])
    with pytest.raises(RingscopeError, match="no recording"):
        measure([])


def test_the_host_meanwhile_is_what_was_under_way_in_the_idle_time():
    made = Build()
    made.kernel(0, 100, call=(-10, -5))
    made.kernel(100_000, 100_100, call=(50_000, 60_000))
    made.api("cudaFree_v3020", 20_100, 40_100, tid=2)
    made.api("cudaFree_v3020", 30_100, 50_100, tid=3)
    made.mark("HorovodAllreduce 17", -50, 10_100, domain="HorovodOps")
    (gpu,) = measure([made.timeline()]).gpus
    found = {(entry["kind"], entry["name"]): entry["ns"] for entry in gpu.host_while_idle}
    assert found[("api", "cudaFree_v3020")] == 30_000
    assert found[("api", "cudaLaunchKernel_v7000")] == 10_000
    assert found[("range", "HorovodAllreduce N")] == 10_000


@pytest.mark.parametrize(
    "known, window",
    [(RECORDED, None), (RECORDED, "capture"), (RECORDED - {"api"}, None), (RECORDED - {"copies", "marks"}, "capture")],
)
def test_every_doubt_points_to_a_place_that_is_there(known, window):
    from profiles.model.measures_json import to_json

    made = training(long=(0, 3))
    made.graph(1, 5, call=(-9, -8))
    if "api" not in known:
        made.rows.pop("api")
    data = to_json(measure([made.timeline(known=known)], window=window))
    pointers = [where for doubt in data["doubts"] for where in doubt["where"]]
    assert pointers
    for pointer in pointers:
        place = data
        for key in pointer.split("/")[1:]:
            place = place[int(key)] if isinstance(place, list) else place[key]


def test_the_callers_recordings_stay_whole_while_they_are_measured():
    made = [training(rank=rank, pid=rank + 1, path=f"rank{rank}.sqlite") for rank in (0, 1)]
    for rank, one in enumerate(made):
        one.graph(200 * MS, 201 * MS, graph=7)
        one.memset(202 * MS, 203 * MS)
        one.device(0, uuid=f"gpu {rank}")
    timelines = [one.timeline() for one in made]
    given = list(timelines)
    first, again = analyse(given), analyse(timelines)
    assert measures_json.dumps(first.measures, per_step=True) == measures_json.dumps(again.measures, per_step=True)
    assert all(one is other for one, other in zip(given, timelines, strict=True))
    for one, after in zip(made, timelines, strict=True):
        assert after.kernels.equals(one.timeline().kernels), "the caller's own tables stay whole"
        assert after.api.equals(one.timeline().api)
    without = [gather.without_kernels(one) for one in timelines]
    assert [len(one.kernels) for one in without] == [0, 0]
    for before, after in zip(timelines, without, strict=True):
        assert after.api.drop(columns="correlation").equals(before.api.drop(columns="correlation"))


def test_kernels_that_analyse_reads_itself_are_let_go_before_they_are_measured(monkeypatch):
    paths = sorted(DATA.glob("dense41m-2gpu-pinned.rank*.sqlite.xz"))
    held = []

    def reading(*given, **options):
        timeline = real(*given, **options)
        held.append(weakref.ref(timeline.kernels))
        return timeline

    def account(*given):
        gc.collect()
        assert held and not any(kernels() is not None for kernels in held)
        return measured(*given)

    real, measured = readers.read_file, unit.account
    monkeypatch.setattr(readers, "read_file", reading)
    monkeypatch.setattr(unit, "account", account)
    assert len(analyse(paths).measures.gpus) == len(paths) == 2


def test_files_directories_patterns_and_recordings_measure_the_same(tmp_path):
    paths = sorted(DATA.glob("dense41m-2gpu-pinned.rank*.sqlite.xz"))
    for path in paths:
        shutil.copy(path, tmp_path)
    given = {
        "a list": [tmp_path / path.name for path in paths],
        "a directory": tmp_path,
        "a pattern": f"{tmp_path}/dense41m*.rank?.sqlite.xz",
        "recordings": [readers.read(tmp_path / path.name) for path in paths],
        "a path and a recording": [str(tmp_path / paths[0].name), readers.read(tmp_path / paths[1].name)],
    }
    found = {name: measures_json.dumps(analyse(one).measures, per_step=True) for name, one in given.items()}
    assert len(found) == 5 and len(set(found.values())) == 1
    assert len(analyse(tmp_path / paths[0].name).measures.gpus) == 1


def test_what_cannot_be_read_is_the_first_doubt_and_with_strict_an_error(tmp_path):
    shutil.copy(DATA / "dense41m-1gpu-pinned-float32.rank0.sqlite.xz", tmp_path)
    (tmp_path / "empty.sqlite").touch()
    assert [doubt.code for doubt in analyse(tmp_path).measures.doubts][0] == "unreadable"
    with pytest.raises(UnreadableRecording, match="empty.sqlite"):
        analyse(tmp_path, strict=True)


def test_the_run_record_beside_the_recordings_tells_the_findings_of_the_run(tmp_path):
    path = shutil.copy(DATA / "dense41m-1gpu-pinned-float32.rank0.sqlite.xz", tmp_path)
    cell = Cell(model="dense", ranks=1, per_rank_batch=4, feed="pinned")
    record = RunRecord(cell, 0, "ok", "", 0, 1, [], "single", {"cpu": {"usable": 2}})
    (tmp_path / "record.json").write_text(json.dumps(record.to_json()))
    told = analyse(path).measures
    assert told.findings == analyse(readers.read(path), context=Context(cell, record.machine)).measures.findings
    assert told.findings != analyse(readers.read(path)).measures.findings


def test_a_gpu_on_which_only_the_host_copied_to_itself_did_nothing():
    made = training()
    made.copy("h2h", 5 * MS, 6 * MS, device=1)
    measures = measure([made.timeline()])
    assert [gpu.device for gpu in measures.gpus] == [0]
