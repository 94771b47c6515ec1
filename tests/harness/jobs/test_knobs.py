"""What is tried around a script, what is kept of it, and the turns that tell; no process needed."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import pytest

from harness.jobs import apply
from harness.jobs.knobs import LEAST_GAIN, TOLERANCE, Knob, Taken, apart, judge, of_code, of_environment
from profiles.ground.errors import RingscopeError
from tests.harness.running import ROOT

LOSSES = {"0:1:1": 0.7, "0:1:2": 0.6}


def turns(*step_ns: int | None, **losses: float) -> list[Taken]:
    return [Taken(ns, LOSSES | losses) for ns in step_ns]


@pytest.mark.parametrize(
    ("having", "kept", "why"),
    [
        ([90, 92], True, ""),
        ([90, 101], False, "the gain is within the difference between turns"),  # one of them is slower than one without
        ([110, 120], False, "slower"),
        ([99.2, 99.3], False, "less than 1%"),
    ],
)
def test_what_is_faster_by_more_than_turns_differ_is_kept(having: Sequence[float], kept: bool, why: str) -> None:
    verdict = judge(turns(100_000, 100_100), turns(*(round(1000 * each) for each in having)))
    assert (verdict.kept, verdict.why) == (kept, why)
    assert verdict.gain is not None and verdict.gain.value == pytest.approx(100.05 / (sum(having) / 2), abs=1e-4)


def test_what_trains_otherwise_is_dropped_however_fast_it_is() -> None:
    other = [Taken(1, LOSSES), Taken(1, LOSSES | {"0:1:2": 0.6 + 1.1 * TOLERANCE})]
    verdict = judge(turns(100, 100), other)
    assert not verdict.kept and verdict.gain is None and verdict.why.startswith("the loss after 2 steps is 0.6011")
    assert judge(turns(100, 100), [Taken(1, LOSSES | {"0:1:2": 0.6 + 0.9 * TOLERANCE})] * 2).kept
    assert not judge(turns(100, 100), [Taken(1, {"0:1:8": 0.6})] * 2).kept  # no step in common
    assert judge(turns(100, 100), [Taken(None, why="it failed: no such flag")]).why == "it failed: no such flag"


def test_losses_of_any_rank_and_epoch_count_and_a_loss_that_is_no_number_is_far_from_one() -> None:
    assert apart({"1:2:5": 1000.0}, {"1:2:5": 1000.9}) == ""  # a share of what is large
    assert (
        apart({"1:2:5": 1.0}, {"1:2:5": 2.0})
        == "the loss after 5 steps of epoch 2 on rank 1 is 2, without the setting 1"
    )
    assert apart({"0:1:1": math.nan}, {"0:1:1": math.nan}) == ""
    assert "nan" in apart({"0:1:1": math.nan}, {"0:1:1": 1.0}) and "inf" in apart({"0:1:1": 1.0}, {"0:1:1": math.inf})


def test_what_the_user_has_set_is_left_and_flags_of_xla_are_added_to() -> None:
    every = of_environment(gpus=2, ranks=2, cores=8, environ={})
    names = {name for knob in every for name in knob.environment}
    assert {"XLA_FLAGS", "HOROVOD_CYCLE_TIME", "NCCL_MIN_NCHANNELS", "TF_NUM_INTRAOP_THREADS"} <= names
    own = {"HOROVOD_CYCLE_TIME": "3", "OMP_NUM_THREADS": "8", "XLA_FLAGS": "--xla_dump_to=x"}
    left = of_environment(gpus=2, ranks=2, cores=8, environ=own)
    (flags,) = (knob.environment["XLA_FLAGS"] for knob in left if "XLA_FLAGS" in knob.environment)
    assert flags.startswith("--xla_dump_to=x --") and not {name for knob in left for name in knob.environment} & (
        own.keys() - {"XLA_FLAGS"}
    )
    assert not [k for k in of_environment(gpus=2, ranks=2, cores=8, environ={"XLA_FLAGS": flags}) if "XLA" in k.name]


def test_without_gpus_or_further_ranks_nothing_of_theirs_is_tried() -> None:
    alone = {name for knob in of_environment(gpus=0, ranks=1, cores=2, environ={}) for name in knob.environment}
    assert alone == {"TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"}
    assert of_environment(gpus=0, ranks=1, cores=1, environ={}) == []


def test_lines_to_paste_are_shell_and_code() -> None:
    assert Knob("x", {"XLA_FLAGS": "--a=1 --b=2"}).lines == ["export XLA_FLAGS='--a=1 --b=2'"]
    (knob,) = of_code({"steps_per_execution": "", "prefetch": "the data is not a tf.data.Dataset"}, ranks=1, cores=2)
    assert knob.lines == ["model.compile(..., steps_per_execution=8)"]


def test_turns_come_one_after_the_other_and_what_failed_is_not_tried_again() -> None:
    one, broken, taken = Knob("one"), Knob("broken"), []

    def take(turned: Sequence[Knob]) -> Taken:
        taken.append("+".join(knob.name for knob in turned))
        return Taken(None, why="it failed") if broken in turned else Taken(100, LOSSES)

    trials = apply.Trials(take)
    trials.first()
    trials.by_turns([one, broken])
    assert [verdict.why for verdict in trials.verdicts().values()] == [
        "the gain is within the difference between turns",
        "it failed",
    ]
    trials.confirm([one])
    assert taken == ["", "one", "broken", "", "one", "one", "", "one", ""]


def test_a_script_that_trains_otherwise_each_time_is_refused() -> None:
    each = iter([0.7, 0.7, 0.8])
    trials = apply.Trials(lambda turned: Taken(100, {"0:1:1": next(each)}))
    trials.first()
    with pytest.raises(RingscopeError, match="trains differently each time.*the loss after 1 steps is 0.8"):
        trials.by_turns([Knob("one")])


def test_the_guide_has_the_limits_that_are_held() -> None:
    guide = (ROOT / "docs" / "guides" / "slow-script.md").read_text()
    assert f"{TOLERANCE:g}" in re.findall(r"[\d.]+", guide) and f"{LEAST_GAIN:.0%}".replace("%", " %") in guide
