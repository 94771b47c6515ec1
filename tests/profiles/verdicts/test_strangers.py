"""What is said of recordings that others made: without steps, of managed memory, of ranks with unlike work."""

from __future__ import annotations

import re

import pytest

from profiles import measure
from profiles.model.findings import Finding
from profiles.model.measures import GpuMeasures
from profiles.runs.records import Cell
from profiles.verdicts import Context, find
from profiles.verdicts.collectives import MOSTLY_WAITING
from tests.figures import figures
from tests.made.build import Build
from tests.made.hand import gpu, measures
from tests.profiles.verdicts.test_verdicts import ONE_GPU

MS = 1_000_000
UPDATES = {"count": 5, "idle_launch_ns": 20 * MS}
STORM = {"kernels": {"per_step": 3800}, "groups": {"elementwise": (2500, 3 * MS)}}


def _find(code: str, *gpus: GpuMeasures, cell: Cell | None = None) -> Finding | None:
    return next((one for one in find(measures(gpus), Context(cell=cell)) if one.code == code), None)


@pytest.mark.parametrize("code", ["collectives-not-fused", "graphs-updated-every-step"])
def test_nothing_is_told_per_step_where_there_are_no_steps(code: str) -> None:
    one = gpu(ledger={"collective": MS, "idle_launch": MS}, per_step_collectives=161, steps=5)
    one.graph_updates = UPDATES
    assert _find(code, one) is not None
    one.window = "capture"
    assert _find(code, one) is None


def test_a_slow_gpu_without_steps_is_slower_in_all() -> None:
    pair = [gpu(rank=rank, ledger={"compute": ns}) for rank, ns in ((0, 8 * MS), (1, 9 * MS))]
    for one in pair:
        one.window = "capture"
    found = _find("slow-gpu", *pair)
    assert found is not None and "longer in all than the others" in found.text


def test_launching_that_nothing_recorded_is_not_told_to_be_none() -> None:
    known, unknown = gpu(**STORM), gpu(**STORM, ledger={"idle_launch": None, "idle_turnaround": None})
    found = [_find("not-compiled", one) for one in (known, unknown)]
    assert found[0] is not None and found[0].text.endswith(", launching 0 %")
    assert found[1] is not None and "launching" not in found[1].text


def test_kernels_of_one_kind_that_take_longer_may_have_more_to_do() -> None:
    """As of experts with unlike numbers of tokens; with a lower clock all kinds take longer."""
    products, norms = {"convolution_matmul": (50, 6 * MS)}, {"reduction": (50, 2 * MS)}
    usual = gpu(ledger={"compute": 8 * MS, "collective": 2 * MS}, groups=products | norms)
    busy = gpu(rank=1, ledger={"compute": 10 * MS}, groups={"convolution_matmul": (50, 8 * MS)} | norms)
    slow = gpu(
        rank=1,
        ledger={"compute": 10 * MS},
        groups={name: (50, ns * 10 // 8) for name, (_, ns) in (products | norms).items()},
    )
    for one, cell, uneven in (
        (busy, None, True),
        (slow, None, False),
        (busy, Cell(model="resnet50", ranks=2, per_rank_batch=128), False),
    ):
        found = _find("slow-gpu", usual, one, cell=cell)
        assert found is not None and found.change.startswith("give each rank equal work") is uneven
        assert "clocks" in found.change


MANAGED = {"count": 20, "bytes": 200 * MS, "busy_ns": 30 * MS, "exposed_ns": 10 * MS, "pageable_share": 0.0}


def test_managed_memory_that_moves_is_no_copy_of_the_programs_own() -> None:
    """10 ms of it exposed, 20 ms under kernels that may be waiting."""
    one = gpu(ledger={"h2d": MS}, busy={"h2d": 3 * MS}, h2d=MANAGED)
    own = _find("copies-exposed", one)
    assert own is not None and _find("managed-memory-moves", one) is None
    one.copies["h2d"].managed_share = 1.0
    found = _find("managed-memory-moves", one)
    assert found is not None and _find("copies-exposed", one) is None
    assert found.cost_ns_per_step == 3 * MS and found.evidence["under_kernels_ns"] == 20 * MS
    assert "cudaMemPrefetchAsync" in found.change


def test_pages_of_managed_memory_are_no_loss_that_is_fetched() -> None:
    arguments, _ = ONE_GPU["loss-fetched-every-step"]
    one = gpu(**arguments)
    assert _find("loss-fetched-every-step", one) is not None
    one.copies["d2h"].managed_share = 1.0
    assert _find("loss-fetched-every-step", one) is None
    waits = _find("host-synchronises", one)
    assert waits is not None and "not in every step" not in waits.text


def _moved(**copy: object) -> Build:
    made = Build()
    made.kernel(0, 100, call=(-50, -40))
    made.copy("h2d", 100, 200, 4096, **copy)
    made.kernel(200, 300, call=(60, 70))
    return made


def test_copies_that_no_call_asked_for_are_the_drivers() -> None:
    def share(made: Build) -> float | None:
        return measure([made.timeline()]).gpus[0].copies["h2d"].managed_share

    assert share(_moved(src_kind="managed")) == 1.0
    assert share(_moved(src_kind="managed", call=(50, 55))) == 0.0  # cudaMemPrefetchAsync
    assert share(_moved()) == 0.0


def test_a_copy_of_a_cuda_graph_is_no_call_that_waits() -> None:
    made = _moved(call=(50, 55))
    for row in made.rows["api"]:
        row["name"] = "cudaGraphLaunch_v10000" if row["start_ns"] == 50 else row["name"]
    assert measure([made.timeline()]).gpus[0].copies["h2d"].synchronous == 0
    for row in made.rows["api"]:
        row["name"] = row["name"].replace("GraphLaunch", "Memcpy")
    assert measure([made.timeline()]).gpus[0].copies["h2d"].synchronous == 1


@pytest.mark.parametrize(("kind", "said"), [("reduce_scatter", True), ("all_to_all", True), ("send_recv", False)])
def test_exchanges_that_mostly_wait_for_a_rank_are_told_to_arrive_together(kind: str, said: bool) -> None:
    """Stages of a pipeline wait for each other by their nature."""
    one = gpu(ledger={"collective": 4 * MS}, waiting=3 * MS)
    one.collectives.kinds = {kind: {"count": 10, "busy_ns": 40 * MS, "exposed_ns": 40 * MS, "bytes": None}}
    found = _find("collectives-exposed", one)
    assert found is not None and found.change.startswith(MOSTLY_WAITING) is said


@pytest.mark.parametrize(
    ("framework", "exchange", "code", "said"),
    [
        ("pytorch", None, "collectives-exposed", "FSDP.*DDP"),
        ("pytorch", "fsdp", "collectives-exposed", "forward_prefetch"),
        ("pytorch", "ddp", "all-reduce-exposed", "DistributedDataParallel"),
        ("tensorflow", None, "all-reduce-exposed", "larger batch"),  # Horovod's
    ],
)
def test_collectives_of_a_kind_that_nothing_tells_are_called_gradients_only_where_the_library_sums_them(
    framework: str, exchange: str | None, code: str, said: str
) -> None:
    """RCCL has one kernel for all kinds."""
    one = gpu(ledger={"collective": 4 * MS}, per_step_collectives=26)
    one.framework, one.exchange = framework, exchange
    one.collectives.kinds = {"other": {"count": 260, "busy_ns": 40 * MS, "exposed_ns": 40 * MS, "bytes": None}}
    found = find(measures([one]))
    assert found[0].code == code and re.search(said, found[0].change)
    assert ("collectives-not-fused" in {one.code for one in found}) is (code == "all-reduce-exposed")


def test_a_sharded_model_that_sums_between_hosts_too_is_not_told_of_ddp() -> None:
    one = gpu(ledger={"collective": 4 * MS})
    one.framework, each = "pytorch", {"count": 10, "busy_ns": 9 * MS, "exposed_ns": 9 * MS, "bytes": None}
    one.collectives.kinds = {"all_reduce": {**each, "exposed_ns": 20 * MS}, "all_gather": each, "reduce_scatter": each}
    found = _find("all-reduce-exposed", one)
    assert found is not None and "DistributedDataParallel" not in found.change


def test_copies_between_gpus_are_told_of_in_the_programs_words() -> None:
    for framework, words in (("cuda", "the edges of a domain"), ("pytorch", "DistributedDataParallel"), (None, "step")):
        one = gpu(ledger={"p2p": MS})
        one.framework = framework
        found = _find("copies-between-gpus", one)
        assert found is not None and words in found.change


def test_collectives_of_unknown_kind_are_not_called_all_reduces_and_breaks_are_no_steps() -> None:
    """RCCL's kernels are all called alike. 48 collectives of the window lie in a break between its ten steps."""
    one = gpu(ledger={"collective": MS}, per_step_collectives=26)
    one.collectives.count += 48
    one.collectives.kinds = {"other": {"count": 308, "busy_ns": 10 * MS, "exposed_ns": 10 * MS, "bytes": None}}
    exposed, many = _find("all-reduce-exposed", one), _find("collectives-not-fused", one)
    assert exposed is not None and "collectives" in exposed.text
    assert many is not None and figures(many.text)[0] == "26" and "collectives" in many.text
    assert "all-reduce" not in many.text + exposed.text


KERAS = r"tf\.|[Kk]eras|ring\.|Horovod|hvd"
FOREIGN = {
    "cuda": KERAS,
    "onnxruntime": KERAS,
    "jax": KERAS.removeprefix(r"tf\.|"),  # whose batches tf.data may make
    "hip": f"{KERAS}|cuda|CUDA",
}
LATE = ("no-prefetch", "prefetch-on-host-only", "copies-exposed", "input-pipeline-slow")


@pytest.mark.parametrize("framework", FOREIGN)
def test_changes_of_a_program_name_nothing_of_another_framework(framework: str) -> None:
    found = []
    for arguments in ({key: value for key, value in one.items() if key != "cell"} for one, _ in ONE_GPU.values()):
        one = gpu(**arguments)
        one.framework = framework
        one.copies["d2h"].managed_share = 1.0
        one.held_launches = {"gaps": 10, "count": 10, "idle_launch_ns": MS, "bytes": 1024}
        found += find(measures([one]))
    assert set(LATE) <= {finding.code for finding in found}
    assert not [one for one in found if re.search(FOREIGN[framework], one.change)]


def test_managed_memory_of_hip_is_told_of_in_its_calls() -> None:
    one = gpu(ledger={"h2d": MS}, busy={"h2d": 3 * MS}, h2d=MANAGED | {"managed_share": 1.0})
    one.framework = "hip"
    found = _find("managed-memory-moves", one)
    assert found is not None and "hipMemPrefetchAsync" in found.change
