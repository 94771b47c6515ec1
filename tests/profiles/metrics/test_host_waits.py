"""Idle time after the host waited is parted by the call that it waited in."""

from __future__ import annotations

import pytest

from profiles import analyse
from profiles.model.measures import GpuMeasures
from tests.made.build import Build
from tests.profiles.verdicts.test_people import MS, US, findings
from tests.recordings import OURS, timeline
from tests.tiers import few

CALLS = {  # (call, operator around it, direction of its copy)
    "cudaDeviceSynchronize": (None, None),
    "cudaMemcpy": (None, "h2d"),
    "cudaMemcpy ": (None, "d2h"),
    "cudaStreamSynchronize": ("aten::item", "d2h"),
}


def waiting(kinds: list[str], *, idle_us: int = 50) -> Build:
    """A kernel, then a wait of each kind in turn, and `idle_us` after it until the host launches the next kernel."""
    made, now = Build(), MS
    for number, kind in enumerate(kinds):
        made.kernel(now, now + 100 * US, f"kernel {number}", call=(now - 3 * US, now - 2 * US))
        now += 100 * US
        within, moves = CALLS[kind]
        begun = now - 50 * US
        if moves and within:  # an asynchronous copy, then a call that waits for it, in an operator
            made.copy(moves, now, now + 10 * US, 4, call=(begun, begun + US))
            made.operator(within, begun - US, now + 12 * US)
            made.operator("aten::_local_scalar_dense", begun, now + 12 * US)
        elif moves:
            made.copy(moves, now, now + 10 * US, 1 << 20, call=(begun, now + 11 * US), api="cudaMemcpy")
        now += 10 * US if moves else 0
        if not moves or within:
            made.api(f"{kind}_v3020", begun + 2 * US, now + US)
        now += idle_us * US
    made.kernel(now, now + 100 * US, call=(now - 3 * US, now - 2 * US))
    return made


def measured(made: Build) -> GpuMeasures:
    return analyse([made.timeline()]).measures.gpus[0]


@pytest.mark.parametrize("kind", CALLS)
def test_sync_idle_is_of_the_call_under_way_when_the_gpu_ran_dry(kind: str) -> None:
    (wait,) = measured(waiting([kind] * 10)).host_waits
    within, moves = CALLS[kind]
    assert (wait["call"].split("_")[0], wait["within"], wait["moves"]) == (kind.strip(), within, moves)
    assert (wait["ns"], wait["count"]) == (10 * 50 * US, 10)


def test_three_copies_take_no_more_than_what_waits_for_them() -> None:
    """Synchronous copies at the begin, cudaDeviceSynchronize ever after."""
    made = waiting(["cudaMemcpy"] * 3 + ["cudaDeviceSynchronize"] * 60)
    gpu, found = measured(made), findings(made)
    assert found["copies-synchronous"].saved_ns == {"h2d": 30 * US, "idle_sync": 3 * 50 * US}
    assert found["host-synchronises"].saved_ns == {"idle_sync": 60 * 49 * US}  # as long as the waits
    assert "cudaDeviceSynchronize" in found["host-synchronises"].text
    assert gpu.ledger_ns["idle_sync"] == 63 * 50 * US


def test_a_number_that_is_asked_for_is_named_as_a_script_writes_it() -> None:
    found = findings(waiting(["cudaStreamSynchronize"] * 10))
    assert ".item()" in found["host-synchronises"].text


@pytest.mark.parametrize("idle_us", [50, 90, 150, 1_000])
def test_what_the_host_does_of_its_own_after_a_wait_is_no_price_of_the_wait(idle_us: int) -> None:
    """Without a wait the host would be ahead by as long as it waited, and no more. Each wait returns
    1 us after the GPU ran dry, 49 us after its begin, and each launch begins 3 us before its kernel."""
    made = waiting(["cudaDeviceSynchronize"] * 10, idle_us=idle_us)
    found, (wait,) = findings(made), measured(made).host_waits
    idle, own, waited = 10 * idle_us * US, 10 * (idle_us - 4) * US, 10 * 49 * US
    assert (wait["ns"], wait["own_ns"], wait["waited_ns"]) == (idle, own, waited)
    stays = max(0, idle - waited)
    assert found["host-synchronises"].saved_ns == {"idle_sync": idle - stays}
    assert ("python-in-the-loop" in found) is (stays > idle / 20)
    if stays > idle / 20:
        assert found["python-in-the-loop"].saved_ns == {"idle_sync": min(stays, own)}
        first = next(iter(found))
        assert first == ("python-in-the-loop" if 2 * stays > idle else "host-synchronises")


def test_calls_after_a_wait_are_not_the_hosts_own_time() -> None:
    made = waiting(["cudaDeviceSynchronize"] * 10, idle_us=1_000)
    for row in [one for one in made.rows["api"] if one["name"].startswith("cudaDeviceSynchronize")]:
        made.api("cudaFuncGetAttributes", row["end_ns"], row["end_ns"] + 900 * US)
    (wait,) = measured(made).host_waits
    assert wait["own_ns"] == 10 * 96 * US and "python-in-the-loop" not in findings(made)


@pytest.mark.parametrize(("every", "code"), [(1, "loss-fetched-every-step"), (5, "host-synchronises")])
def test_copies_back_in_some_steps_only_are_no_loss_that_is_fetched(every: int, code: str) -> None:
    """As a checkpoint or get_weights in a callback makes them: forty copies in one of five steps are eight in each."""
    made, now = Build(), 10 * MS
    for number in range(20):
        made.mark(f"step {number}", now - 20 * US, now + 2 * MS)
        made.kernel(now, now + MS, "kernel", call=(now - 3 * US, now - 2 * US))
        now += MS
        for _ in range(40 if number % every == every - 1 else 0):
            made.copy("d2h", now, now + 10 * US, 1 << 20, call=(now - 9 * US, now + 11 * US), api="cudaMemcpy")
            now += 20 * US
        now += 30 * US
    found = findings(made)
    assert {"loss-fetched-every-step", "host-synchronises"} & set(found) == {code}
    assert (".numpy()" in found[code].change) == (every == 1)


@pytest.mark.parametrize("path", few(OURS), ids=lambda path: path.name)
def test_what_the_host_waited_in_adds_up_to_sync_idle(path) -> None:
    for gpu in analyse([timeline(path)]).measures.gpus:
        assert sum(one["ns"] for one in gpu.host_waits) == (gpu.ledger_ns["idle_sync"] or 0)
