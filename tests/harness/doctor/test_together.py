"""What ranks were seen doing, made by hand, and what the doctor says of it; the copy that a script runs in."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.doctor import devices, hooks, workspace
from harness.doctor.observations import Told
from harness.doctor.script import Observed, Rank, Trial, observe
from harness.doctor.together import judge
from profiles.ground.errors import RingscopeError

TRIAL = Trial(["python", "train.py"], 2, "horovodrun")


def step(number: int, *values: float, rows: list[str] | None = None, **facts: Any) -> dict[str, Any]:
    """A line of a step; two weights of 50 values each, of which the first is told."""
    weights = [[f"layer/weight{i}", str(value), [value]] for i, value in enumerate(values)]
    line = {"kind": "step", "step": number, "weights": weights, "elements": 100, "exchanged": 0, "rows": rows}
    facts = {"workers": 1, "cores": [0, 1], "replicas": {"count": 1, "apart": None}} | facts
    return line | {"ring": False, "horovod": False, "horovods_optimizer": False} | facts


def rank(number: int, *steps: dict[str, Any], **facts: Any) -> Rank:
    return Rank(number, pid=1, steps={line["step"]: line for line in steps}, **({"done": True} | facts))


def numbers(text: str) -> list[float]:
    return [float(each) for each in re.findall(r"\d+(?:\.\d+)?", text)]


def judged(*ranks: Rank, hung: bool = False, late: bool = False) -> dict[str, tuple[str, str, str]]:
    """(status, text, remedy) by name."""
    checks = judge(Observed(TRIAL, list(ranks), hung, late, "the launcher's last word"))
    return {check.name: (check.status, check.text, check.remedy or "") for check in checks}


ROWS = [[f"{rank}-{i}" for i in range(20)] for rank in range(2)]


def test_weights_equal_on_samples_that_differ_have_been_made_equal():
    found = judged(*(rank(k, step(0, 1, 2), step(1, 3, 4, rows=ROWS[k])) for k in range(2)))
    assert {name: status for name, (status, _, _) in found.items()} == dict.fromkeys(
        ("script", "weights", "data"), "ok"
    )
    assert numbers(found["data"][1]) == [20, 20, 1]  # samples of each, in so many steps


def test_replicas_of_a_strategy_that_train_alone_are_told():
    def told(*apart: list[object] | None) -> tuple[str, str, str] | None:
        each = ({"count": 2, "apart": one} for one in apart)
        steps = [step(number, 3, 4, replicas=one) for number, one in enumerate(each, start=1)]
        return judged(rank(0, *steps), rank(1, *steps))["replicas"]

    assert "replicas" not in judged(rank(0, step(1, 3, 4)), rank(1, step(1, 3, 4)))
    assert told(None, None)[0] == "ok"
    status, text, remedy = told(None, ["dense/kernel", 1, 0.25])
    assert status == "failure" and "ring.distribute(model)" in remedy
    assert "dense/kernel differs between replica 0 and replica 1 of rank 0 after step 2, by 0.25" in text


def test_workers_of_all_ranks_want_a_core_each():
    def told(workers: int, *cores: list[int]) -> tuple[str, str, str] | None:
        each = (rank(k, step(1, 3, 4, workers=workers, cores=cores[k])) for k in range(2))
        return judged(*each).get("loaders")

    assert told(1, [0], [0]) is None
    assert told(2, [0, 1], [2, 3])[0] == "ok"
    status, text, remedy = told(4, [0, 1, 2], [1, 2, 3])
    assert status == "warning" and "2 ranks of this host with 4 data-loading workers each share 4 cores" in text
    assert "workers=2" in remedy


def test_weights_equal_on_equal_samples_need_an_exchange_to_be_believed():
    def pair(exchanged: int) -> dict[str, tuple[str, str, str]]:
        return judged(*(rank(k, step(1, 3, 4, rows=ROWS[0], exchanged=exchanged)) for k in range(2)))

    status, text, remedy = pair(7)["weights"]  # say, of a metric
    assert status == "failure" and {7, 100} <= set(numbers(text)) and "ring.distribute" in remedy
    found = pair(100)
    assert found["weights"][0] == "ok"
    assert found["data"][0] == "warning"


def test_the_first_step_that_differs_is_named_with_the_weight_and_by_how_much():
    first, second = rank(0, step(1, 3, 4), step(2, 5, 6)), rank(1, step(1, 3, 4), step(2, 5, 6.5))
    status, text, _ = judged(first, second)["weights"]
    assert status == "failure"
    assert "layer/weight1" in text and numbers(text.replace("weight1", "")) == [0, 1, 2, 0.5]


@pytest.mark.parametrize(
    ("facts", "remedy"),
    [
        ({}, "ring.init()"),
        ({"horovod": True}, "hvd.allreduce"),
        ({"horovod": True, "horovods_optimizer": True}, "Horovod's own Keras optimizer"),
        ({"horovod": True, "ring": True}, "other than the distributed optimizer"),
    ],
)
def test_what_to_change_depends_on_what_the_script_uses(facts, remedy):
    found = judged(rank(0, step(1, 3, 4, **facts)), rank(1, step(1, 9, 4, **facts)))
    assert remedy in found["weights"][2]


def test_weights_sent_within_the_first_step_may_begin_apart():
    ranks = (rank(k, step(0, k, 2), step(1, 3, 4, rows=ROWS[k]), step(2, 5, 6, rows=ROWS[k])) for k in range(2))
    assert judged(*ranks)["weights"][0] == "ok"


def test_what_does_not_train_is_not_called_together():
    found = judged(*(rank(k, step(0, 1, 2), *(step(i, 1, 2, rows=ROWS[k]) for i in (1, 2))) for k in range(2)))
    assert found["weights"][0] == "warning"


def test_samples_of_few_kinds_are_not_compared():
    rows = ["a", "b"] * 10
    found = judged(*(rank(k, step(1, 3, 4, rows=rows, exchanged=100)) for k in range(2)))
    assert found["data"][0] == "n/a"
    assert judged(rank(0, step(1, 3)), rank(1, step(1, 3)))["data"][0] == "n/a"


def test_samples_of_several_epochs_are_compared_until_one_comes_again():
    def data(*rows: list[str]) -> str:
        return judged(*(rank(k, step(1, 3, 4, rows=each, exchanged=100)) for k, each in enumerate(rows)))["data"][0]

    mine, theirs = ([f"{k}-{i}" for i in range(60)] for k in range(2))
    assert data(mine * 3, theirs * 3) == data(mine + theirs[:2] + mine, theirs + mine[:2] + theirs) == "ok"
    assert data(mine * 3, mine * 3) == data(mine * 3, mine[30:] + theirs * 2) == "warning"
    assert data(mine[:20] * 3, theirs[:20] * 3) == "n/a"


def test_weights_that_begin_apart_under_averaged_gradients_want_a_broadcast():
    def told(exchanged: int) -> tuple[str, str, str]:
        lines = [[step(n, n, n + k, rows=ROWS[k], exchanged=exchanged) for n in (0, 1, 2)] for k in range(2)]
        return judged(*(rank(k, *each) for k, each in enumerate(lines)))["weights"]

    assert "trains alone" in told(0)[1] and "send rank 0's first weights" not in told(0)[2]
    status, text, remedy = told(100)
    assert status == "failure" and "began" in text and "send rank 0's first weights" in remedy


END = {"exit_code": 0, "signal": None}


def test_a_rank_that_waits_for_one_that_has_ended_is_named_with_its_line():
    stack = (
        'Thread 0x1 (most recent call first):\n  File "/w/other.py", line 1 in x\n\n'
        'Current thread 0x2 (most recent call first):\n  File "/e/site-packages/horovod/x.py", line 3 in call\n'
        '  File "/w/train.py", line 37 in <module>\n  File "<frozen runpy>", line 88 in _run_code\n'
    )
    ended = rank(0, *(step(i, 1) for i in (1, 2)), done=False, end=END)
    waits = rank(1, *(step(i, 1) for i in (1, 2, 3)), done=False, stack=stack)
    status, text, _ = judged(ended, waits, hung=True)["script"]
    assert status == "failure"
    assert "train.py:37" in text and numbers(text)[:5] == [1, 3, 37, 0, 2]  # rank and steps of who waits, and of whom


def test_ranks_with_unlike_steps_are_warned_of_and_those_that_a_launcher_ends_are_not_blamed():
    unlike = judged(
        *(rank(k, *(step(i, 1, rows=ROWS[k]) for i in range(1, 3 + k)), done=False, end=END) for k in (0, 1))
    )
    assert unlike["script"][0] == "warning" and numbers(unlike["script"][1]) == [0, 2, 1, 3]
    failed = rank(1, done=False, end={"exit_code": 1, "signal": None}, log="Traceback\nValueError: bad\nbye\n")
    killed = rank(0, done=False, end={"exit_code": None, "signal": 15}, ended_at=-1.0)
    status, text, _ = judged(killed, failed)["script"]
    assert status == "failure" and numbers(text) == [1, 0, 1] and text.endswith("ValueError: bad")


def test_a_copy_holds_the_files_and_links_what_is_not_to_be_copied(tmp_path: Path):
    here = tmp_path / "here"
    for folder in ("code", ".git", "environment", "elsewhere"):
        (here / folder).mkdir(parents=True)
    (here / "environment" / "pyvenv.cfg").touch()
    (here / "code" / "model.keras").write_text("mine")
    (here / "data").symlink_to("elsewhere")
    with workspace.copied(here, tmp_path / "copies") as copy:
        assert (copy / ".git").is_symlink() and (copy / "environment").is_symlink()
        assert (copy / "data").resolve() == (here / "elsewhere").resolve()
        (copy / "code" / "model.keras").write_text("the script's")
    assert (here / "code" / "model.keras").read_text() == "mine"
    assert not copy.exists() and (here / "environment" / "pyvenv.cfg").exists()


def test_a_folder_that_is_too_large_for_a_copy_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "data").write_bytes(b"12345")
    monkeypatch.setattr(workspace, "LARGEST_BYTES", 4)
    with pytest.raises(RingscopeError) as told, workspace.copied(tmp_path / "here", tmp_path / "copies"):
        pass
    assert "--in-place" not in str(told.value)  # an option of doctor's, and of nobody else who copies
    monkeypatch.chdir(tmp_path / "here")
    trial = Trial([sys.executable, "data"], 1, "single")
    with pytest.raises(RingscopeError, match="--in-place"):
        observe(trial, lambda _: None, os.environ)


# ---- PyTorch


def of_torch(number: int, *values: float, **facts: Any) -> dict[str, Any]:
    seen = {"group": True, "ddp": 1, "ddp_called": 4, "numbers": 1} | facts.pop("torch", {})
    return step(number, *values, torch=seen, sharded=0, **facts)


@pytest.mark.parametrize(
    ("seen", "remedy"),
    [
        ({"ddp_called": 0}, "call the wrapper"),
        ({}, "no_sync"),
        ({"ddp": 0}, "wrap the model"),
        ({"ddp": 0, "group": False}, "start it by torchrun"),
    ],
)
def test_pytorch_ranks_that_come_apart_are_told_what_averages_nothing(seen, remedy):
    found = judged(*(rank(k, of_torch(1, 3, 4 + k, torch=seen)) for k in range(2)))
    assert found["weights"][0] == "failure" and remedy in found["weights"][2]


def test_weights_that_ranks_rightly_have_unlike_are_no_failure():
    sharded = judged(*(rank(k, of_torch(1) | {"sharded": 4}) for k in range(2)))
    assert sharded["weights"][0] == "n/a" and 4 in numbers(sharded["weights"][1])
    stages = judged(rank(0, of_torch(1, 3)), rank(1, of_torch(1, 3, 4)))
    assert stages["weights"][0] == "n/a"
    # Averaged every second step.
    steps = [[of_torch(n, 3 + n, 4 + k * (n % 2), exchanged=100) for n in (1, 2, 3)] for k in range(2)]
    assert judged(*(rank(k, *steps[k]) for k in range(2)))["weights"][0] == "warning"
    alone = [[of_torch(n, 3 + n, 4 + k) for n in (1, 2)] for k in range(2)]
    assert judged(*(rank(k, *alone[k]) for k in range(2)))["weights"][0] == "failure"


def test_statistics_that_differ_are_told_and_metrics_that_do_are_a_warning():
    def pair(buffer: float, loss: float) -> dict[str, tuple[str, str, str]]:
        lines = [of_torch(1, 3, rows=ROWS[k], exchanged=100, logs={"loss": k * loss}) for k in range(2)]
        each = [line | {"buffers": [["norm/mean", str(k * buffer), [k]]]} for k, line in enumerate(lines)]
        return judged(*(rank(k, line) for k, line in enumerate(each)))

    same, unlike = pair(0, 0), pair(1, 0.5)
    assert "buffers" not in same and same["metrics"][0] == "ok"
    assert unlike["buffers"][0] == "ok" and "norm/mean" in unlike["buffers"][1]
    assert unlike["metrics"][0] == "warning" and {0.5, 1} <= set(numbers(unlike["metrics"][1]))
    assert unlike["weights"][0] == same["weights"][0] == "ok"


@pytest.mark.parametrize(("numbers", "metrics"), [((0, 0), "n/a"), ((0, 2), None), ((2, 2), None)])
def test_a_loop_of_pytorch_that_exchanges_no_number_prints_one_ranks(numbers, metrics):
    found = judged(*(rank(k, of_torch(1, 3, rows=ROWS[k], torch={"numbers": numbers[k]})) for k in range(2)))
    assert found.get("metrics", (None,))[0] == metrics


# ---- Keras on JAX


def of_jax(number: int, *values: float, **facts: Any) -> dict[str, Any]:
    seen = {"processes": 2, "here": 1, "used": 1, "parts": 2} | facts.pop("jax", {})
    return step(number, *values, jax=seen, **({"sharded": 0} | facts))


def test_devices_that_do_nothing_or_all_the_same_are_told():
    def told(sharded: int = 0, **seen: int) -> str | None:
        return judged(rank(0, of_jax(1, 3, sharded=sharded, jax=seen))).get("devices", (None,))[0]

    assert told() is None
    assert told(here=2) == "warning"
    assert told(here=2, used=2) == "ok"
    assert told(here=2, used=2, parts=1) == "warning"
    assert told(here=2, used=2, parts=1, sharded=3) == "ok"


@pytest.mark.parametrize(("processes", "remedy"), [(1, "distribution.initialize("), (2, "set_distribution(")])
def test_processes_of_jax_that_train_alone_are_told_what_joins_them(processes, remedy):
    found = judged(*(rank(k, of_jax(1, 3, 4 + k, jax={"processes": processes})) for k in range(2)))
    assert found["weights"][0] == "failure" and remedy in found["weights"][2]
    assert ("initialize" in found["weights"][2]) == (processes == 1)


def test_ranks_that_have_parts_of_one_model_take_the_same_samples_rightly():
    def data(*parts: list[str] | None) -> str:
        lines = [of_jax(1, 3, rows=ROWS[0], part=part, exchanged=100) for part in parts]
        return judged(*(rank(k, line) for k, line in enumerate(lines)))["data"][0]

    assert data(["all"], ["all"]) == "ok"
    assert data(["first"], ["second"]) == data(None, None) == "warning"
    assert data(["first"], ["first"], ["second"], ["second"]) == "warning"


def test_a_rank_that_trains_on_several_devices_by_itself_is_a_process_for_one():
    def alone(**facts: Any) -> bool:
        return devices.are_one_process([rank(k, of_jax(1, 3, **facts)) for k in range(2)])

    assert alone(jax={"processes": 1, "used": 2}) and not alone(jax={"processes": 2, "used": 2})
    assert not alone(jax={"processes": 1})
    mirrored = [rank(k, step(1, 3, replicas={"count": 2, "apart": None}, ring=k == 2)) for k in range(3)]
    assert devices.are_one_process(mirrored[:2]) and not devices.are_one_process(mirrored)
    assert not devices.are_one_process(mirrored[:1])


def test_a_loop_on_jax_that_cannot_be_seen_is_no_failure():
    assert judged(*(rank(k, backend="jax", end=END, done=False) for k in range(2)))["script"][0] == "n/a"
    assert judged(*(rank(k, backend="numpy", end=END, done=False) for k in range(2)))["script"][0] == "failure"


def test_what_a_release_lacks_is_told_and_nothing_is_concluded_from_it():
    unseen = {"calls of DistributedDataParallel": ["torch:gone"]}
    lines = [of_torch(n, 3 + n, rows=ROWS[0]) for n in (1, 2)]
    assert judged(*(rank(k, *lines) for k in range(2)))["weights"][0] == "failure"
    found = judged(*(rank(k, *lines, unseen=unseen) for k in range(2)))
    assert found["weights"][0] == "ok" and found["private names"][0] == "n/a"
    assert "torch:gone" in found["private names"][1]
    assert judged(*(rank(k, unseen=unseen, end=END, done=False) for k in range(2)))["script"][0] == "n/a"


def test_a_hook_whose_name_is_absent_is_not_laid(monkeypatch: pytest.MonkeyPatch):
    laid, written = [], []
    told = cast(Told, SimpleNamespace(write=written.append))
    monkeypatch.setattr(hooks, "TABLE", {"all": ("json:JSONDecoder.decode",), "none": ("json:gone", "no.module:x")})
    for seen in hooks.TABLE:
        hooks.lay(told, seen, lambda seen=seen: laid.append(seen))
    assert laid == ["all"]
    assert written == [{"kind": "unseen", "what": "none", "absent": ["json:gone", "no.module:x"]}]


@pytest.mark.skipif(not importlib.util.find_spec("tensorflow"), reason="needs TensorFlow")
def test_all_private_names_of_doctors_sources_are_in_its_table_and_those_of_keras_are_there():
    held = " ".join(name for names in hooks.TABLE.values() for name in names)
    room = Path(hooks.__file__).parent
    for source in ("observer.py", "of_torch.py", "of_jax.py"):
        for node in ast.walk(ast.parse((room / source).read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith(("keras.src", "tensorflow.python")):
                assert all(f"{node.module}:{one.name}" in held for one in node.names), (source, node.module)
    assert {"_pre_forward", "_BaseDataLoaderIter"} <= set(re.findall(r"\b_\w+", held))
    assert all(map(hooks._is_there, hooks.TABLE["steps of Keras on TensorFlow"]))


def test_one_rank_has_no_other_to_be_compared_with():
    assert set(judged(rank(0, step(1, 3, 4)))) == {"script"}
    assert set(judged(rank(0, step(1, 3, 4, replicas={"count": 2, "apart": None})))) == {"script", "replicas"}


# ---- a launcher of the user's own

TORCHRUN = """#!/bin/sh
for rank in 0 1; do RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 "$@" & done
wait
"""


def test_ranks_of_the_users_own_launcher_tell_how_they_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "torchrun").write_text(TORCHRUN)
    (tmp_path / "torchrun").chmod(0o755)
    fails = "import os\nif os.environ['RANK'] == '1':\n    open('no-such-file')\n"
    (tmp_path / "train.py").write_text(fails)
    command = [str(tmp_path / "torchrun"), sys.executable, "train.py"]
    found = observe(Trial(command, 7, "torchrun", own=True, limit_s=900), lambda ranks: None, dict(os.environ))
    assert [(each.number, each.of, each.end["exit_code"]) for each in found.ranks] == [(0, 2, 0), (1, 2, 1)]
    [check] = judge(found)
    assert check.status == "failure" and check.text.startswith("rank 1 failed after 0 steps")
    assert "FileNotFoundError" in check.text
