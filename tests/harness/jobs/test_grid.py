"""The grid, its order, the run directory and what a launch left behind: no process needed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click
import pytest

from harness.jobs import bench, sweep
from harness.jobs.explain import RECORDING_TAKES
from harness.jobs.grid import FITS, GPU_MINUTES, Choices, grid, indivisible
from harness.jobs.options import Bench, Launch
from harness.jobs.times import Times
from harness.launch.hosts import Host
from harness.processes.supervise import Limits
from harness.training.models import MODELS
from harness.verbs import bench as verb_bench
from harness.verbs import options, train
from harness.verbs import record as verb_record
from profiles.ground.errors import RingscopeError
from profiles.runs.cell import AXES, SETTINGS, setting
from profiles.runs.records import Cell
from profiles.runs.setting import Setting
from profiles.runs.strategies import STRATEGIES, TENSORFLOW
from profiles.scaling.rows import LaunchRow
from tests.harness.running import ROOT

CELL = Cell("mlp", 2, 8, steps=3)


def test_the_grid_holds_every_combination_once() -> None:
    lists = {"ranks": (1, 2), "model": ("gru", "mlp"), "per_rank_batch": (8, 8, 16), "feed": ("prefetch", "device")}
    cells = grid(Choices(lists), gpus=0)
    assert len(cells) == len(set(cells)) == len({cell.id for cell in cells}) == 16


def test_without_a_gpu_the_default_is_small() -> None:
    cells = grid(Choices(), gpus=0)
    assert len(cells) <= 8
    assert {cell.ranks for cell in cells} == {1, 2}


@pytest.mark.parametrize(("gpus", "ranks"), [(1, {1}), (4, {1, 2, 4}), (6, {1, 2, 4, 6}), (8, {1, 2, 4, 8})])
def test_with_gpus_ranks_double_up_to_all_of_them(gpus: int, ranks: set[int]) -> None:
    assert {cell.ranks for cell in grid(Choices(), gpus=gpus)} == ranks


def test_strong_scaling_shares_the_batch_and_refuses_what_does_not_divide() -> None:
    lists = {"ranks": (1, 2, 3), "model": ("mlp",), "feed": ("prefetch",), "per_rank_batch": (8,)}
    cells = grid(Choices(lists, scaling="strong"), gpus=0)
    assert [(cell.per_rank_batch, cell.global_batch) for cell in cells] == [(8, 8), (4, 8), (2, 8)]
    assert [indivisible(cell) is not None for cell in cells] == [False, False, True]


def choices_of(verb: click.Command, *words: str) -> Choices:
    """The grid that a verb makes of its command line."""
    return options.choices(verb.make_context("ringscope", list(words)).params)


def test_of_what_fits_the_machine_train_takes_the_first_cell_of_bench() -> None:
    single = grid(choices_of(train.command, "--model", "mlp"), gpus=0)
    many = grid(choices_of(verb_bench.command, "--models", "mlp", "--ranks", "1"), gpus=0)
    assert len(many) > 1
    assert single[0] == many[0]
    launch = Launch()
    assert bench.cells(Bench(Choices({"model": ("mlp",)}), launch, first_only=True), gpus=0) == single[:1]


def test_a_single_cell_is_as_its_options_say() -> None:
    words = [
        "--model",
        "gru",
        "-np",
        "3",
        "--per-rank-batch",
        "7",
        "--feed",
        "host",
        "--aggregate",
        "2",
        "--steps",
        "9",
    ]
    (cell,) = grid(choices_of(train.command, *words, "--step", "compiled"), gpus=2)
    assert (cell.model, cell.ranks, cell.per_rank_batch, cell.feed) == ("gru", 3, 7, "host")
    assert (cell.aggregate, cell.steps, cell.step) == (2, 9, "compiled")


def test_a_single_cell_takes_no_list() -> None:
    with pytest.raises(RingscopeError, match="--feed host,device: give one value only"):
        choices_of(train.command, "--model", "mlp", "--feed", "host,device")


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_setting_is_an_option_of_all_three_verbs(setting: Setting) -> None:
    for verb, listed in ((verb_bench.command, True), (train.command, False), (verb_record.command, False)):
        flags = {flag: parameter for parameter in verb.params for flag in parameter.opts}
        flag = f"--{setting.list_option if listed and setting.axis else setting.single_option}"
        assert (flag in flags) is not setting.derived
        if not setting.derived:
            assert flags[flag].name == setting.name


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_setting_and_its_values_are_documented(setting: Setting) -> None:
    docs = "\n".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    assert [word for word in (setting.name, *setting.choices) if f"`{word}`" not in docs] == []


@pytest.mark.parametrize("axis", AXES, ids=lambda axis: axis.name)
def test_every_value_of_an_axis_makes_a_cell(axis: Setting) -> None:
    listed = axis.choices or (("mlp", "gru") if axis.name == "model" else (1, 4))
    plain = {"models": "mlp", "ranks": "2", "feeds": "prefetch"} | {axis.list_option: ",".join(map(str, listed))}
    words = [word for option, value in plain.items() for word in (f"--{option}", value)]
    cells = grid(choices_of(verb_bench.command, *words), gpus=0)
    assert tuple(getattr(cell, axis.name) for cell in cells) == listed


def test_on_four_gpus_two_models_come_a_curve_at_a_time_within_the_time() -> None:
    tasks = sweep.order(grid(Choices(), gpus=4), 1)
    curves = [(model, ranks) for model in ("resnet50", "transformer") for ranks in (1, 2, 4)]
    assert [(cell.model, cell.ranks) for cell, _ in tasks] == curves
    times = Times(4)
    took = [times.next_s(cell) for cell, _ in tasks]
    # Both ends of each curve are recorded as well.
    recorded = RECORDING_TAKES * sum(Times(4, [_row(cell, times.next_s(cell))]).next_s(cell) for cell, _ in tasks)
    assert sum(took[:3]) <= 180 and sum(took) + recorded <= 60 * GPU_MINUTES


def test_a_cells_next_launch_finds_its_programs_compiled() -> None:
    one, two = (Cell("resnet50", ranks, 256) for ranks in (1, 2))
    assert Times(2).next_s(one) > Times(2).next_s(two)  # kernels are chosen by then
    assert Times(2, [_row(one, 100)]).next_s(one) == pytest.approx(55)
    assert Times(2, [_row(one, seconds) for seconds in (100, 30, 40, 35)]).next_s(one) == 35
    assert Times(0, [_row(one, 100)]).next_s(one) == 100
    assert Times(2, [_row(one, 100), _row(two, 80)]).planned_s([one, two], 3) == pytest.approx(100 + 80 + 2 * 99)


def _row(cell: Cell, seconds: float) -> LaunchRow:
    nothing = dict.fromkeys(("samples_per_s_global", "step_ms_p50", "input_wait_share", "step_ms_p95"))
    more = dict.fromkeys(("window_ms", "clock_offset_ms_max", "profiled"))
    return LaunchRow(
        cell, 0, "ok", "", launcher="mpirun", started_utc_ns=0, seconds=seconds, host="", **nothing, **more
    )


def test_all_models_are_more_than_the_default_and_no_name_of_one() -> None:
    for gpus in (0, 2):
        default, every = (
            {cell.model for cell in grid(choices, gpus=gpus)}
            for choices in (Choices(), choices_of(verb_bench.command, "--models", "all"))
        )
        assert default < every <= set(MODELS)
    with pytest.raises(RingscopeError, match="there is no 'all'"):
        choices_of(train.command, "--model", "all")


def test_launches_are_interleaved_and_the_order_is_always_the_same() -> None:
    cells = grid(Choices({"ranks": (1, 2), "per_rank_batch": (8, 16)}), gpus=0)
    tasks = sweep.order(cells, 3)
    assert tasks[: len(cells)] == [(cell, 0) for cell in cells]  # as they are read
    for number in range(3):
        block = tasks[number * len(cells) : (number + 1) * len(cells)]
        assert Counter(cell for cell, _ in block) == Counter(cells)
        assert {launch for _, launch in block} == {number}
    assert tasks == sweep.order(cells, 3)


@pytest.mark.parametrize("text", ["", "1,x", "0", "-1", "1.5"])
def test_counts_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(RingscopeError, match="--ranks"):
        choices_of(verb_bench.command, "--ranks", text)


@pytest.mark.train
@pytest.mark.beside
def test_the_names_that_the_command_line_knows_are_those_of_the_worker() -> None:
    feeds = pytest.importorskip("harness.training.feeds")
    ring = pytest.importorskip("ringscope.ring")
    assert set(setting("feed").choices) == set(feeds.FEEDS)
    assert set(setting("step").choices) == set(ring.STEPS) - {"auto"}  # a cell says which of them it measures
    assert set(setting("compression").choices) == set(ring.COMPRESSIONS)


def test_every_model_has_a_batch_that_fits() -> None:
    assert set(FITS) == set(MODELS)


def test_horovods_stall_shut_down_comes_before_ours_and_after_its_warning() -> None:
    for stall_s in (1, 2, 10, 180):
        env = sweep.stall_check(Limits(stall_s=stall_s))
        warn, end = int(env["HOROVOD_STALL_CHECK_TIME_SECONDS"]), int(env["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"])
        assert 0 < warn < end


def test_horovods_limits_reach_the_ranks_and_a_launcher_around_this_does_not(tmp_path: Path) -> None:
    limits, outer = Limits(stall_s=170), {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "another", "HOROVOD_RANK": "3"}
    env = sweep.command(tmp_path, Cell("mlp", 2, 8), sweep.How(limits=limits), outer)("LIFELINE").env
    assert sweep.stall_check(limits).items() <= env.items() and int(env["HOROVOD_GLOO_TIMEOUT_SECONDS"]) > 170
    assert not outer.keys() & env.keys()


def test_without_tensorflow_a_sweep_ends_in_a_line_that_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RingscopeError, match="TensorFlow is not installed in .*; `make setup`"):
        verb_bench.command.main(["--models", "mlp", "--out", str(tmp_path / "out")], standalone_mode=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--models", ","], "--models: ',' holds no name; choose from mlp,"),
        (["--models", "mlp", "--hosts", ",,"], "hosts: ',,' names no host"),
        (["--models", "mlp", "--data", "nowhere"], "nowhere: no such directory; give one of TFRecords, or synthetic"),
        (["--models", "mlp", "--data", "tests"], "tests: holds no .tfrecord. file; give a directory that does"),
    ],
)
def test_an_option_that_says_nothing_or_leads_nowhere_is_refused_before_anything_is_begun(
    tmp_path: Path, options: list[str], says: str
) -> None:
    with pytest.raises(RingscopeError, match=says):
        verb_bench.command.main([*options, "--out", str(tmp_path / "out")], standalone_mode=False)
    assert not (tmp_path / "out").exists()


def test_data_whose_link_leads_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to("data")
    with pytest.raises(RingscopeError, match="data: no such directory"):
        verb_bench.command.main(["--models", "mlp", "--data", str(tmp_path / "data")], standalone_mode=False)


def test_more_ranks_than_memory_holds_are_refused_and_not_begun() -> None:
    refused = sweep.refusal(Cell("mlp", 10**6, 8), sweep.How(), {})
    assert refused is not None and refused.status == "unsupported"
    assert refused.reason.startswith("1000000 ranks need at least 0.3 GB of host memory (RAM) each, and ")
    assert sweep.refusal(Cell("mlp", 2, 8), sweep.How(), {}) is None


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        (Cell("mlp", 2, 8, strategy="parameter_server", feed="numpy"), "parameter_server works with --step fit and"),
        (
            Cell("mlp", 2, 8, strategy="mirrored", compression="fp16"),
            "--compression does not work with --strategy mirrored; use horovod,",
        ),
        (Cell("mlp", 1, 8, strategy="sharded", optimizer="lamb"), "LAMB needs the norms of whole weights"),
    ],
)
def test_what_cannot_be_combined_is_a_row_before_anything_is_launched(cell: Cell, says: str) -> None:
    refused = sweep.refusal(cell, sweep.How(), {})
    assert refused is not None and refused.status == "unsupported" and refused.reason.startswith(says)


def test_what_needs_a_gpu_is_refused_where_the_ranks_are_known_to_have_none() -> None:
    pinned = Cell("mlp", 1, 8, feed="pinned")
    assert [sweep.refusal(pinned, sweep.How(gpus=gpus), {}) is not None for gpus in (0, 1)] == [True, False]
    for how in (sweep.How("srun"), sweep.How(hosts=(Host("a", 1),))):
        assert sweep.refusal(pinned, how, {}) is None


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        (Cell("mlp", 3, 8, strategy="hybrid"), "3 ranks do not divide by 2 stages"),
        (Cell("mlp", 2, 8, strategy="split", micro_batches=3), "a batch of 16 does not divide into 3 micro-batches"),
        (Cell("mlp", 4, 5, strategy="hybrid", micro_batches=4), "a batch of 10 does not divide into 4 micro-batches"),
    ],
)
def test_stages_and_micro_batches_that_do_not_divide_are_a_row_with_the_reason(cell: Cell, says: str) -> None:
    refused = sweep.refusal(cell, sweep.How(), {})
    assert refused is not None and (refused.status, refused.reason) == ("indivisible", says)


@pytest.mark.parametrize(
    ("strategy", "processes", "gpus"),
    [
        ("horovod", 4, 1),
        ("split", 1, 4),
        ("replicas", 1, 4),
        ("hybrid", 2, 2),
        ("multiworker", 4, 1),
        ("no such", 4, 1),
    ],
)
def test_a_strategy_says_how_many_processes_share_the_gpus(strategy: str, processes: int, gpus: int) -> None:
    cell = Cell("mlp", 4, 8, strategy=strategy)
    assert (cell.processes, cell.gpus_per_process) == (processes, gpus)


def test_strategies_beside_each_other_are_fed_alike_and_take_the_ranks_that_their_stages_divide() -> None:
    lists = {"model": ("mlp",), "strategy": ("horovod", "hybrid"), "ranks": (1, 2, 3, 4)}
    cells = [(cell.strategy, cell.ranks, cell.feed) for cell in grid(Choices(lists), gpus=0)]
    assert cells == [("horovod", n, "prefetch") for n in (1, 2, 3, 4)] + [("hybrid", n, "prefetch") for n in (2, 4)]
    asked = {**lists, "feed": ("prefetch", "resident"), "ranks": (1, 3)}
    found = grid(Choices(asked), gpus=0)
    assert len(found) == 8 and {cell.ranks for cell in found if cell.strategy == "hybrid"} == {1, 3}  # rows that say so


def test_what_is_left_open_fits_the_strategy_and_what_is_asked_for_stays() -> None:
    lists = {"model": ("resnet50",), "strategy": tuple(STRATEGIES), "ranks": (2,)}
    for cell in grid(Choices(lists), gpus=2):
        assert cell.step in cell.spread.steps and cell.feed in cell.spread.feeds
    (horovod,) = (cell for cell in grid(Choices(lists), gpus=2) if cell.strategy == "horovod")
    assert (horovod.step, horovod.feed) == ("compiled", "pinned")
    asked = {**lists, "step": ("compiled",), "feed": ("pinned",)}
    here = [cell for cell in grid(Choices(asked), gpus=2) if cell.spread.backend == TENSORFLOW]
    assert {(cell.step, cell.feed) for cell in here} == {("compiled", "pinned")}


@pytest.mark.parametrize("strategy", [name for name, one in STRATEGIES.items() if one.backend != TENSORFLOW])
def test_on_another_backend_keras_chooses_step_and_feed_unless_it_is_asked_for_alone(strategy: str) -> None:
    asked = {"model": ("mlp",), "ranks": (2,), "feed": ("pinned", "device"), "step": ("compiled", "fit")}
    beside = grid(Choices({**asked, "strategy": ("horovod", strategy)}), gpus=2)
    (one,) = (cell for cell in beside if cell.strategy == strategy)  # measured once
    assert (one.step,) == one.spread.steps and (one.feed,) == one.spread.feeds and len(beside) == 5
    alone = grid(Choices({**asked, "strategy": (strategy,)}), gpus=2)
    assert {(cell.step, cell.feed) for cell in alone} == {(s, f) for s in asked["step"] for f in asked["feed"]}


def test_a_setting_multiplies_the_strategies_that_heed_it_alone() -> None:
    lists = {
        "model": ("mlp",),
        "ranks": (2,),
        "strategy": ("horovod", "split"),
        "micro_batches": (1, 4),
        "feed": ("host",),
    }
    cells = grid(Choices(lists), gpus=0)
    assert [(cell.strategy, cell.micro_batches) for cell in cells] == [("horovod", 1), ("split", 1), ("split", 4)]
    (alone,) = grid(Choices({**lists, "strategy": ("horovod",), "micro_batches": (4,)}), gpus=0)
    assert alone.micro_batches == 4  # asked for by name: the worker refuses it, with the reason


def test_what_is_to_be_learnt_is_not_one_batch_unless_it_is_asked_for() -> None:
    feeds = [cell.feed for cell in grid(Choices({"model": ("mlp",), "ranks": (1,)}), gpus=0)]
    assert feeds == ["prefetch", "resident"]
    learnt = {"model": ("mlp",), "ranks": (1,), "until": ("accuracy=0.9",), "data": ("generated",)}
    assert [cell.feed for cell in grid(Choices(learnt), gpus=0)] == ["prefetch"]
    assert [cell.feed for cell in grid(Choices(learnt | {"feed": ("resident",)}), gpus=0)] == ["resident"]
