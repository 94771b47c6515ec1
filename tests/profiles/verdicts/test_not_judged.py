"""Nothing is called fine over a large loss: what no finding names is told as such, on every recording there is."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profiles import analyse
from profiles.doubts.recordings import clocks_apart
from profiles.ground.errors import RingscopeError
from profiles.model import measures_json
from profiles.model.measures import OWNERS
from profiles.verdicts.not_judged import CALLED, LAUNCHED
from tests.made.build import Build
from tests.profiles.verdicts.test_people import ATEN, MS, US, findings, looped
from tests.recordings import DATA, SHARED, timeline
from tests.tiers import few

HOSTILE = ("hostile",)
RECORDINGS = sorted(
    path
    for folder in (DATA, SHARED)
    for path in folder.rglob("*")
    if path.is_file() and path.suffix != ".md" and not set(path.parts) & set(HOSTILE)
)


def unnamed(found: dict[str, Any]) -> list[tuple[int, int]]:
    """(GPU, ns of its window that no finding names) from the JSON alone, in whole owners: one that a finding of the
    GPU, or of all, takes anything from is named."""
    lost = []
    for place, gpu in enumerate(found["gpus"]):
        named = {
            owner
            for one in found["findings"]
            if place in (one["gpu"], *one["evidence"].get("gpus", ())) or one["gpu"] is None
            for owner in one["saved_ns"]
        }
        lost.append((place, sum(ns or 0 for owner, ns in gpu["ledger_ns"].items() if owner not in named | {"compute"})))
    return lost


@pytest.mark.parametrize("path", few(RECORDINGS, 5), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_tenth_of_the_time_that_no_finding_names_is_told_of(path: Path) -> None:
    try:
        measures = analyse([timeline(path)]).measures
    except RingscopeError:
        pytest.skip("no timeline of a GPU")
    found = json.loads(measures_json.dumps(measures, per_step=False))
    told = [one for one in found["findings"] if one["code"] == "loss-not-judged"]
    for place, ns in unnamed(found):
        span = found["gpus"][place]["span_ns"]
        mine = [one for one in told if one["gpu"] is None or place in (one["gpu"], *one["evidence"].get("gpus", ()))]
        if 10 * ns >= span:
            (line,) = mine
            assert line["change"] and line["evidence"]["lost_share"] >= 0.1
    for line in told:
        share = line["evidence"]["lost_share"]
        worst = found["gpus"][line["evidence"].get("gpu", line["gpu"])]
        assert sum(line["evidence"]["lost_ns_by_owner"].values()) == round(share * worst["span_ns"])
        assert 0.1 <= share <= 1 - worst["ledger_ns"]["compute"] / worst["span_ns"] + 1e-9


@pytest.mark.parametrize("each_ns", [21 * US, 31 * US])
def test_a_step_of_an_inference_has_the_same_advice_below_and_above_a_tenth_of_compute(each_ns: int) -> None:
    """7.7 and 10.9 % of it."""
    made = looped(*[ATEN] * 4, mark="ProfilerStep#{}", each_ns=each_ns)
    assert 0.07 < 4 * each_ns / (4 * each_ns + MS) < 0.12
    assert "python-in-the-loop" in findings(made)


def bursts(first_ms: int, *, every_ms: int) -> Build:
    """Twenty kernels of 10 us, a hundred ms apart from the end of a capture of 200 ms that begins with a copy."""
    made = Build()
    made.copy("h2d", 0, US, call=(-US, US))
    for number in range(20):
        start = (first_ms + number * every_ms) * MS
        made.kernel(start, start + 10 * US, f"kernel {number}", call=(start - 3 * US, start - 2 * US))
    made.memset(200 * MS, 200 * MS + US, call=(199 * MS, 199 * MS + US))
    return made


def test_a_start_is_judged_by_where_kernels_lie_and_not_by_how_much_they_compute() -> None:
    """Both compute for 0.1 % of the time."""
    all_along, at_the_end = findings(bursts(1, every_ms=10)), findings(bursts(179, every_ms=1))
    assert "python-in-the-loop" in all_along and "loss-not-judged" not in all_along
    assert set(at_the_end) == {"loss-not-judged"}
    assert "idle_launch" in at_the_end["loss-not-judged"].evidence["lost_ns_by_owner"]


def work_after_a_gap(gap_ms: int, *, ahead_ns: int = 2 * US) -> Build:
    """A hundred kernels of 1 ms in a row, after a small one and that gap; each is launched so long before it starts."""
    made = Build()
    for number in range(101):
        start = (number + gap_ms) * MS if number else 0
        called = start - ahead_ns
        made.kernel(start, start + (MS if number else US), f"kernel {number}", call=(called - US, called))
    return made


@pytest.mark.parametrize(("ahead_ms", "launched"), [(99.9, True), (60, True), (40, False)])
def test_a_gap_after_its_launch_is_no_wait_for_a_launch(ahead_ms: float, launched: bool) -> None:
    """The whole gap is launch idle: the call came after the GPU ran dry. Most of it may lie behind that call."""
    (found,) = findings(work_after_a_gap(100, ahead_ns=int(ahead_ms * MS))).values()
    assert "idle_launch" in found.evidence["lost_ns_by_owner"]
    assert (LAUNCHED in found.text) is launched and CALLED["idle_wait"] not in found.text
    assert (CALLED["idle_launch"] in found.text) is not launched


@pytest.mark.parametrize("gap_ms", [20, 100])
def test_one_gap_before_work_that_never_waits_is_no_fault_of_a_loop(gap_ms: int) -> None:
    """As of a profiler that starts with one small kernel, half a second before the requests come."""
    (told,) = findings(work_after_a_gap(gap_ms)).values()
    assert told.code == "loss-not-judged" and "a gap of" in told.text
    assert told.evidence["lost_ns_by_owner"]["idle_launch"] >= gap_ms * MS


def looping(*, first_ms: float = 0, gap_us: int = 10, each_us: int = 90, last_ms: float = 0) -> Build:
    """A thousand kernels of two names with a gap before each, after a small one and a gap, and before such a pair."""
    made = Build()
    at = 0
    for number in range(1_002):
        at += int({1: first_ms, 1_001: last_ms}.get(number, 0) * MS) + gap_us * US
        made.kernel(at, at + each_us * US, f"kernel {number % 2}", call=(at - 3 * US, at - 2 * US))
        at += each_us * US
    return made


@pytest.mark.parametrize(("last_ms", "most"), [(60, True), (40, False)])
def test_one_gap_is_called_most_of_the_idle_time_only_where_it_is(last_ms: int, most: bool) -> None:
    """Beside 50 ms in which a loop of 1 000 kernels idles between them."""
    (one,) = (measured := analyse([looping(last_ms=last_ms, gap_us=50, each_us=50).timeline()]).measures).gpus
    told = next(finding.text for finding in measured.findings if finding.code == "loss-not-judged")
    idle = sum(ns or 0 for owner, ns in one.ledger_ns.items() if owner.startswith("idle_"))
    assert (2 * one.rest.gaps_ns[0] > idle) is most
    assert ("most of the idle time" in told) is most and "gap of" in told


@pytest.mark.parametrize(("first_ms", "last_ms"), [(60, 0), (0, 60), (10, 60)])
def test_two_findings_about_a_loop_name_none_of_the_gaps_beside_it(first_ms: int, last_ms: int) -> None:
    """`launch-bound` counts the same 50 ms as `python-in-the-loop`, and stands back for it."""
    found = findings(looping(first_ms=first_ms, last_ms=last_ms, gap_us=50, each_us=50))
    assert set(found) == {"python-in-the-loop", "loss-not-judged"}
    lost = found["loss-not-judged"].evidence["lost_ns_by_owner"]["idle_launch"]
    assert lost == pytest.approx((first_ms + last_ms) * MS, rel=0.02)


@pytest.mark.parametrize("first_ms", [3.2, 60])
def test_one_gap_of_a_start_is_not_counted_in_the_loop(first_ms: float) -> None:
    """3 % of the window, or 37 %, in which the host is in no call; the loop itself waits for 1 % of its time."""
    found = findings(looping(first_ms=first_ms, gap_us=1, each_us=99))
    assert "python-in-the-loop" not in found and "launch-bound" not in found
    assert ("loss-not-judged" in found) is (first_ms > 10)


@pytest.mark.parametrize(("first_ms", "last_ms"), [(400, 0), (100, 400), (0, 0)])
def test_a_loop_beside_gaps_that_come_once_is_judged_without_them(first_ms: float, last_ms: float) -> None:
    """It waits for half of its time, whatever stands before and after it."""
    made = looping(first_ms=first_ms, last_ms=last_ms, gap_us=50, each_us=50)
    result = analyse([made.timeline()]).measures
    (one,), told = result.gpus, result.findings[0]
    assert told.code == "python-in-the-loop" and told.at_most_gain == pytest.approx(
        0.96, rel=0.01
    )  # a call of 1 us in each gap
    gone = [int(ms * MS) + 50 * US for ms in (first_ms, last_ms) if ms]
    assert (one.rest.gaps_ns if one.rest else []) == sorted(gone, reverse=True)
    assert one.rest is None or one.rest.span_ns == sum(ns or 0 for ns in one.rest.ledger_ns.values())
    assert one.steadily.span_ns == one.span_ns - sum(gone)
    once = [finding for finding in result.findings if finding.code == "loss-not-judged"]
    assert bool(once) is bool(gone)


@pytest.mark.parametrize(("gaps", "told"), [((20, 25, 22, 30), True), ((3, 25, 1, 80), False)])
def test_a_few_long_rounds_alike_are_a_loop(gaps: tuple[int, ...], told: bool) -> None:
    """Of one copy and one kernel each, with the host in no call in between: a start has gaps of any length."""
    made, at = Build(), 0
    for gap_ms in (0, *gaps):
        at += gap_ms * MS
        made.copy("h2d", at, at + MS, 1 << 20, call=(at - 3 * US, at - 2 * US))
        made.kernel(at + MS, at + 2 * MS, "saxpy", call=(at - 2 * US, at - US))
        at += 2 * MS
    found = findings(made)
    assert ("python-in-the-loop" in found) is told
    assert ("or a pause" in getattr(found.get("loss-not-judged"), "text", "")) is not told


def test_gaps_alike_are_a_loops() -> None:
    made = work_after_a_gap(20)
    for first in (40, 70):
        for row in [*made.rows["kernels"][first:], *made.rows["api"][first:]]:
            row["start_ns"] += 20 * MS
            row["end_ns"] += 20 * MS
    assert "loss-not-judged" not in findings(made)


def test_idle_time_at_the_end_of_a_step_is_not_for_want_of_calls() -> None:
    made = looped(*[ATEN] * 30, mark="ProfilerStep#{}", steps=1)
    (row,) = (row for row in made.rows["marks"])
    row["end_ns"] += 10 * MS
    told = findings(made)["loss-not-judged"]
    assert "no operation follows" in told.text and "calls" not in told.change


@pytest.mark.parametrize("kind", ["h2d", "d2h", "d2d", "p2p"])
@pytest.mark.parametrize("mark", ["step {}", "something {}"])
def test_exposed_copies_of_every_direction_are_told_with_steps_and_without(kind: str, mark: str) -> None:
    made = looped(ATEN, mark=mark, gap_ns=400 * US)
    for row in [*made.rows["kernels"]]:
        end = row["end_ns"]
        made.copy(kind, end, end + 300 * US, 1 << 24, call=(end - 50 * US, end - 49 * US), src_kind="pinned")
    named = {owner for one in findings(made).values() for owner in one.saved_ns}
    assert kind in named


def test_why_idle_time_has_no_cause_is_said_in_the_words_of_the_doubt() -> None:
    made = Build()
    for number in range(10):
        made.kernel(number * MS, number * MS + 100 * US, f"kernel {number}")  # without launch calls
    (doubt,) = (one for one in analyse([made.timeline()]).measures.doubts if one.code == "no-api-rows")
    told = findings(made)["loss-not-judged"]
    assert doubt.text in told.text and told.change == doubt.next


def test_what_jaxs_trace_lacks_is_recorded_with_jaxs_profiler() -> None:
    told = next(iter(analyse([timeline(DATA / "made" / "jax.trace.json.gz")]).measures.findings))
    assert told.code == "loss-not-judged" and ".xplane.pb" in told.change and "nsys" not in told.change


def test_calls_that_the_profiler_timed_by_another_clock_are_not_asked_for() -> None:
    """The file holds calls, which were left out: the reason is the clock, also where few kernels run."""
    made = Build()
    for number in range(10):
        made.kernel(number * MS, number * MS + 100 * US, f"kernel {number}")
    made.kernel(900 * MS, 900 * MS + US)
    apart = clocks_apart(3832e9, "after")
    timeline = replace(made.timeline(), doubts=[apart], left_out={"clocks-apart in api": 20})
    told = next(one for one in analyse([timeline]).measures.findings if one.code == "loss-not-judged")
    assert apart.text in told.text and told.change == apart.next


def test_copies_beside_launches_that_left_no_kernel_are_no_program_that_does_not_compute() -> None:
    made = Build()
    for number in range(21):
        made.api("cudaLaunchKernel_v7000", MS + number * US, MS + number * US + US, correlation=10_000 + number)
    for start in (0, 100 * MS):
        made.copy("d2h", start, start + MS, call=(start - US, start + MS))
    (doubt,) = (one for one in analyse([made.timeline()]).measures.doubts if one.code == "launches-lost")
    told = findings(made)["loss-not-judged"]
    assert doubt.text in told.text and told.change == doubt.next and "no kernel" not in told.text


def test_every_owner_that_may_be_lost_has_words() -> None:
    assert set(OWNERS) - {"compute"} <= set(CALLED)


@pytest.mark.parametrize(("kernels", "judged"), [(10, False), (20, True)])
def test_a_few_kernels_beside_a_gap_that_comes_once_are_an_example(kernels: int, judged: bool) -> None:
    made, at = Build(), 0
    for number in range(kernels):
        made.kernel(at, at + 20 * US, call=(at - 3 * US, at - 2 * US))
        at += 20 * US + (50 * MS if number == kernels // 2 else 30 * US)
    found = findings(made)
    assert ("python-in-the-loop" in found) is judged and "loss-not-judged" in found


def running(kernels: int, each_ns: int) -> Build:
    """A plain CUDA program: kernels of one block, a millisecond of the host's own work before each but the first."""
    made, at = Build(), 0
    made.device(0, multiprocessors=40)
    for _ in range(kernels):
        made.kernel(at, at + each_ns, "step(float *)", blocks=1, call=(at - 3 * US, at - 2 * US))
        at += each_ns + MS
    return made


@pytest.mark.parametrize(
    ("kernels", "each_ns", "codes"),
    [
        (1, 99_999, []),
        (1, 100_000, ["tiny-batch"]),
        (7, 14_285, ["loss-not-judged"]),
        (7, 14_286, ["python-in-the-loop"]),
        (20, 2_000, ["python-in-the-loop"]),
    ],
)
def test_a_few_kernels_of_a_moment_say_nothing_about_a_program(kernels: int, each_ns: int, codes: list[str]) -> None:
    found = findings(running(kernels, each_ns))
    assert list(found) == codes
    if codes == ["loss-not-judged"]:
        assert "kernels take 100.0 µs in all, too little" in found["loss-not-judged"].text


@pytest.mark.parametrize(("kernels", "told"), [(1, "1 kernel is too few"), (2, "2 kernels are too few")])
def test_a_frameworks_few_kernels_are_counted_in_good_words(kernels: int, told: str) -> None:
    made = Build()
    made.copy("d2d", MS, 2 * MS, call=(MS - 3, MS - 2))
    for at in range(10 * MS, (10 + 9 * kernels) * MS, 9 * MS):
        made.kernel(at, at + MS, ATEN, call=(at - 3, at - 2))
    assert told in findings(made)["loss-not-judged"].text


@pytest.mark.parametrize(("filled_ms", "named"), [(50, True), (49, False)])
@pytest.mark.parametrize(("other_ms", "most"), [(100, True), (101, False)])
def test_the_operator_that_fills_most_of_the_lost_time_is_named(
    filled_ms: int, named: bool, other_ms: int, most: bool
) -> None:
    """A gap of 100 ms, an operator on the host in a part of it, and two gaps of half as long as the `other_ms`."""
    made, at = Build(), 10 * MS
    for gap_ns in (100 * MS, other_ms * MS // 2, other_ms * MS // 2, 0):
        made.kernel(at, at + MS, ATEN, call=(at - 3 * US, at - 2 * US))
        at += MS + gap_ns
    made.operator("aten::normal_", 11 * MS, (11 + filled_ms) * MS)
    said = findings(made)["loss-not-judged"].text
    assert ("waiting for a launch (aten::normal_ under way)" in said) is (named and most)


def capturing(replays: int, *, captures: bool = True) -> Build:
    """Kernels one by one, a gap of 100 ms in which a graph is captured, and kernels of its replays."""
    made, at = Build(), 0
    for number in range(40 + replays):
        made.kernel(at, at + 50 * US, f"kernel {number % 2}", call=(at - 3 * US, at - 2 * US))
        at += 100 * US
        if number == 20:
            if captures:
                made.api("hipStreamBeginCapture", at, at + 9)
                made.api("hipStreamEndCapture", at + 90 * MS - 9, at + 90 * MS)
            at += 100 * MS
    return made


def test_the_capture_of_a_graph_is_a_start_and_what_stands_around_it_no_loop() -> None:
    made = capturing(20)
    (gpu,), told = analyse([made.timeline()]).measures.gpus, findings(made)
    assert gpu.rest is None and (gpu.startup_ns or 0) >= 100 * MS
    assert set(told) == {"loss-not-judged"} and "captures graphs" in told["loss-not-judged"].text
    assert "python-in-the-loop" in findings(capturing(20, captures=False))


def test_a_loop_that_goes_on_for_long_after_a_capture_is_judged_without_it() -> None:
    found = findings(capturing(9_000))
    share = found["python-in-the-loop"].saved_ns["idle_launch"] / (9_040 * 50 * US)
    assert 0.9 < share <= 1


def loaded(kernels: int, *, weights_ms: int, first_ms: int, framework: str = ATEN) -> Build:
    """Weights that are copied one by one, and a loop of three kernels without a gap after its first runs, each of which
    the GPU waits for."""
    made, now = Build(), MS
    for _ in range(weights_ms):
        made.copy("h2d", now, now + 900 * US, 8 << 20, call=(now - US, now + 950 * US), api="cudaMemcpy")
        now += MS
    for number in range(kernels):
        late = first_ms * MS if number < 3 else 0
        made.kernel(now + late, now + late + MS, f"{framework} {number % 3}", call=(now - US, now + late - US))
        now += late + MS
    return made


def test_weights_that_are_copied_before_the_first_kernel_are_no_batches() -> None:
    """300 of 600 ms, 270 of them copies from pageable memory; the rest computes all the time."""
    found = findings(loaded(300, weights_ms=300, first_ms=0))
    told = found.pop("loss-not-judged")
    assert not found and "before the first kernel" in told.text
    assert told.evidence["lost_ns_by_owner"]["h2d"] == 270 * MS
    # A program of CUDA's own copies its input so: that is its work.
    assert {"copies-pageable", "copies-synchronous"} & set(
        findings(loaded(300, weights_ms=300, first_ms=0, framework="add"))
    )


@pytest.mark.parametrize("first_ms", [2, 40])
def test_the_first_run_of_a_kernel_is_a_start_and_no_loop(first_ms: int) -> None:
    """CUDA loads a kernel in the call that launches it first; all others are launched ahead."""
    made = loaded(300, weights_ms=0, first_ms=first_ms, framework="add")
    (one,) = analyse([made.timeline()]).measures.gpus
    assert one.startup_ns == one.ledger_ns["idle_launch"] == 2 * first_ms * MS  # the window begins with the first
    found = findings(made)
    assert not {"launch-bound", "python-in-the-loop"} & set(found)
    assert ("loss-not-judged" in found) is (first_ms == 40)


@pytest.mark.parametrize(("first_ms", "first"), [(40, "off-tensor-cores"), (400, "loss-not-judged")])
def test_products_off_the_tensor_cores_come_before_a_loss_that_is_shorter(first_ms: int, first: str) -> None:
    """Kernels of 300 ms in all, beside a start of 80 or of 800."""
    found = findings(loaded(300, weights_ms=0, first_ms=first_ms, framework="ampere_sgemm_128x64_tn"))
    assert {"off-tensor-cores", "loss-not-judged"} <= set(found) and next(iter(found)) == first
    share = 300 / (300 + 2 * first_ms)  # the window begins with the first kernel
    assert found["off-tensor-cores"].evidence["time_share"] == pytest.approx(share)


def test_a_call_that_fills_no_gap_is_not_under_way_in_it() -> None:
    made = work_after_a_gap(100)
    told = findings(made)["loss-not-judged"].text
    assert "a gap of" in told and "under way" not in told
    made.api("cudaStreamCreate", 10 * MS, 60 * MS)
    assert "cudaStreamCreate under way" in findings(made)["loss-not-judged"].text


def test_shares_of_what_is_left_say_so() -> None:
    """A loop that waits for half of its time, beside a gap that is half of all."""
    found = findings(looping(first_ms=100, gap_us=50, each_us=50))["python-in-the-loop"]
    assert re.search(r"leave out 100(\.\d+)? ms of work that occurs only once", found.text)
    assert "only once" not in findings(looping(gap_us=50, each_us=50))["python-in-the-loop"].text


@pytest.mark.parametrize(
    ("kernel", "told"), [("solve(double *)", "memory-allocated-in-the-loop"), (ATEN, "loss-not-judged")]
)
def test_a_few_long_kernels_after_a_start_are_a_loop_of_plain_cuda_alone(kernel: str, told: str) -> None:
    """Eighteen of 4 ms, after each of which the host waits and allocates; a start of 12 ms. Of a framework they are one
    operator."""
    made, at = Build(), 12 * MS
    made.memset(0, US, call=(-3 * US, -2 * US))
    for _ in range(18):
        made.kernel(at, at + 4 * MS, kernel, call=(at - 3 * US, at - 2 * US))
        made.api("cudaDeviceSynchronize_v3020", at - US, at + 4 * MS + 50 * US)
        made.api("cudaMallocAsync", at + 4 * MS + 60 * US, at + 5 * MS + 200 * US)
        at += 5 * MS + 300 * US
    assert next(iter(findings(made))) == told


def test_a_loop_in_a_small_part_of_a_recording_is_not_what_it_shows_first() -> None:
    """Of 2.1 s a loop takes the last 0.1, and waits for half of that."""
    codes = list(findings(looping(first_ms=2_000, gap_us=50, each_us=50)))
    assert codes[:2] == ["loss-not-judged", "python-in-the-loop"]


def test_a_gpu_without_a_kernel_is_told_apart_from_one_that_starts() -> None:
    made = work_after_a_gap(100)
    for number in range(3):
        made.copy("h2d", number * MS, number * MS + US, call=(number * MS - 2, number * MS - 1), device=1)
    found = [one for one in analyse([made.timeline()]).measures.findings if one.code == "loss-not-judged"]
    assert sorted((one.gpu, "no kernel" in one.text) for one in found) == [(0, False), (1, True)]


def test_what_the_host_did_after_a_wait_is_told_of_a_loss() -> None:
    """Half a second in no call after a copy was waited for, before work that never waits: as a model is compiled."""
    made = Build()
    made.copy("d2h", 0, US, 4, call=(-US, 2 * US), api="cudaMemcpy")
    for number in range(101):
        start = 500 * MS + number * MS
        made.kernel(start, start + MS, f"kernel {number}", call=(start - 3 * US, start - 2 * US))
    text = findings(made)["loss-not-judged"].text
    assert "cudaMemcpy to the host, then in no CUDA call" in text
