"""Ranks that are lost and added, under Horovod's elastic launcher (scripts/elastic.py).

What a training ends in is compared with the same steps taken by NumPy: a linear model, its squared error and SGD with
momentum, on the joined batches of as many ranks as there were.

They alone catch a training that goes on wrongly once a rank is lost or added.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import profiles
from tests.harness.running import ROOT, carrying, environment, kill_all, wait_until
from tests.made.build import Build
from tests.ring import SCRIPTS

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.exhaustive]

ROWS, BATCH = 240, 8
LIMIT_S = 900  # on a machine that does ten other things


class Ended:
    """A job that has ended: what its launcher and its ranks left."""

    def __init__(self, case: str, out: Path, hosts: Sequence[str], ranks: int) -> None:
        self.out = out
        (out / "hosts").write_text("".join(f"{host}\n" for host in hosts))
        discover = out / "discover.sh"
        discover.write_text(f"#!/bin/sh\ncat '{out / 'hosts'}'\n")
        discover.chmod(0o755)
        launcher = ["horovodrun", "--gloo", "-np", str(ranks), "--min-np", "1", "--max-np", "3"]
        launcher += ["--host-discovery-script", str(discover), "--network-interfaces", "lo"]
        command = [*launcher, sys.executable, str(SCRIPTS / "elastic.py"), case, str(out)]
        mark = uuid.uuid4().hex
        marked = {"PYTHONPATH": f"{SCRIPTS / 'marked'}:{ROOT}", "NVTX_LINES": str(out / "marks")}
        with (out / "output").open("w") as output:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment() | marked | {"RINGSCOPE_TEST": mark}, stdout=output, stderr=output
            )
            try:
                self.code = process.wait(LIMIT_S)
                # Nothing is left of it.
                wait_until(lambda: not carrying(mark), 120, lambda: f"{carrying(mark)}\n{self.output}")
            finally:
                process.kill()
                kill_all(mark)

    @property
    def output(self) -> str:
        return (self.out / "output").read_text()

    def ends(self) -> list[dict[str, Any]]:
        """What each rank that was there at the end wrote."""
        files = sorted(self.out.glob("end*.json"))
        assert files, self.output
        return [json.loads(file.read_text()) for file in files]

    def steps(self, ranks_at_the_end: int = 0) -> list[dict[str, Any]]:
        """Those of the process that is that rank at the end, in order."""
        taken = [[json.loads(line) for line in file.read_text().splitlines()] for file in self.out.glob("steps*")]
        return max((each for each in taken if each[-1]["rank"] == ranks_at_the_end), key=len)

    def marks(self) -> list[list[dict[str, Any]]]:
        """The ranges of each process that began again, in order of their ends."""
        files = [[json.loads(line) for line in file.read_text().splitlines()] for file in self.out.glob("marks.*")]
        return [marks for marks in files if any(mark["name"].startswith("paused") for mark in marks)]

    def said(self) -> list[str]:
        """ring's lines, without who printed them."""
        return re.findall(r"ring: (.*)", self.output)


class Reference:
    """The training without ranks. `rate` may change on the way."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._x = rng.normal(size=(ROWS, 5)).astype(np.float32).astype(np.float64)
        made = (self._x.astype(np.float32) @ rng.normal(size=(5, 1)) + 0.3).astype(np.float32)
        self._y = made[:, 0].astype(np.float64)
        self._weights, self._velocity = np.zeros(6), np.zeros(6)

    def step(self, rows: Sequence[int], rate: float) -> None:
        inputs = np.concatenate([self._x[rows], np.ones((len(rows), 1))], axis=1)
        gradient = 2 * inputs.T @ (inputs @ self._weights - self._y[rows]) / len(rows)
        self._velocity = 0.9 * self._velocity - rate * gradient
        self._weights = self._weights + self._velocity

    def check(self, ends: list[dict[str, Any]]) -> None:
        kernel, bias = ends[0]["weights"]
        assert np.allclose([*kernel, *bias], self._weights, rtol=0, atol=2e-5)
        assert all(end["bits"] == ends[0]["bits"] for end in ends)


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Of three ranks one is killed in the third of five epochs; every third step is committed."""
    return Ended("lost", tmp_path_factory.mktemp("lost"), ["localhost:2", "127.0.0.1:1"], 3)


def test_ranks_that_remain_go_on_from_the_last_commit_and_end_with_the_same_weights(lost: Ended) -> None:
    assert lost.code == 0, lost.output
    ends = lost.ends()
    assert [end["ranks"] for end in ends] == [2, 2]
    # 10 steps of 24 rows an epoch; one rank goes in the seventh of epoch 2, of which six are committed; the 12 batches
    # that are left are six steps of two ranks.
    schedule = [(0, 3, 10), (1, 3, 10), (2, 3, 6), (2, 2, 6), (3, 2, 15), (4, 2, 15)]
    reference, row, before = Reference(), 0, 0
    for epoch, ranks, steps in schedule:
        row = row if epoch == before else 0
        before = epoch
        for _ in range(steps):
            reference.step(ends[0]["orders"][epoch][row : row + ranks * BATCH], 0.02)
            row += ranks * BATCH
    reference.check(ends)


def test_every_row_is_taken_once_in_each_epoch_though_a_rank_is_lost_within_one(lost: Ended) -> None:
    for end in lost.ends():
        assert end["epochs"] == [0, 1, 2, 3, 4]
        assert end["history"]["most"] == end["history"]["least"] == [1.0] * 5
        assert end["seen"] == 5


def test_a_line_says_what_was_lost_where_it_goes_on_and_how_long_it_took(lost: Ended) -> None:
    (line,) = [line for line in lost.said() if "lost" in line]
    assert re.fullmatch(r"rank \d of 3 is lost; 2 ranks go on from epoch 3 after batch 18 after \d+\.\d s", line)
    for end in lost.ends():
        (pause,) = end["pauses"]
        assert [pause[name] for name in ("epoch", "batch", "ranks")] == [2, 18, 2]
        assert pause["why"] in line
        assert 0 < pause["seconds"] < LIMIT_S


def test_the_ledger_of_a_rank_that_went_on_shows_the_pause(lost: Ended) -> None:
    """Its own marks, with a kernel under each step in the place of a GPU's."""
    killed_ns = int((lost.out / "lost").read_text())
    assert len(lost.marks()) == 2
    for marks in lost.marks():
        made = Build()
        for mark in marks:
            made.mark(mark["name"], mark["start_ns"], mark["end_ns"], domain=mark["domain"])
            if mark["name"].startswith("step "):
                launched = (mark["start_ns"] + 1, mark["start_ns"] + 2)
                made.kernel(mark["start_ns"] + 3, mark["end_ns"], "conv", call=launched)
        (gpu,) = profiles.analyse([made.timeline()]).measures.gpus
        (pause,) = gpu.pauses
        assert re.fullmatch(r"rank \d of 3 is lost", pause.why)
        steps = [mark for mark in marks if mark["name"].startswith("step ")]
        assert killed_ns < pause.start_ns < pause.end_ns
        # At most the one whose exchange failed.
        assert len([step for step in steps if pause.start_ns < step["start_ns"] < pause.end_ns]) <= 1
        assert [step["name"] for step in steps if step["start_ns"] >= pause.end_ns][0] == "step 0"
        assert gpu.capture is not None
        # A step that was under way when the rank was told goes on to its end.
        ends = [(max(step["start_ns"] + 3, pause.start_ns), min(step["end_ns"], pause.end_ns)) for step in steps]
        computed_ns = sum(max(0, end - start) for start, end in ends)
        assert gpu.capture["ledger_ns"]["idle_pause"] == pause.end_ns - pause.start_ns - computed_ns > 0


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A host joins one rank, and is taken away again."""
    return Ended("hosts", tmp_path_factory.mktemp("hosts"), ["localhost:1"], 1)


def test_hosts_come_and_go_at_commits_and_no_step_is_lost(hosts: Ended) -> None:
    assert hosts.code == 0, hosts.output
    (end,) = hosts.ends()
    steps = hosts.steps()
    assert sorted({step["ranks"] for step in steps}) == [1, 2]
    assert steps[0]["ranks"] == steps[-1]["ranks"] == end["ranks"] == 1
    reference, row, epoch = Reference(), 0, 0
    for step in steps:
        row, epoch = (row, epoch) if step["epoch"] == epoch else (0, step["epoch"])
        reference.step(range(row, row + step["ranks"] * BATCH), 0.02 * step["ranks"])
        row += step["ranks"] * BATCH
    reference.check([end])
    assert end["epochs"] == list(range(epoch + 1))
    assert end["seen"] == epoch + 1
    assert set(end["history"]["least"]) == {1.0}


def test_the_learning_rate_goes_with_the_ranks_where_it_is_scaled(hosts: Ended) -> None:
    assert [line for line in hosts.said() if "learning rate goes" in line] == [
        "the learning rate goes from 0.02 to 0.04 with the number of ranks",
        "the learning rate goes from 0.04 to 0.02 with the number of ranks",
    ]
    assert "127.0.0.1:0 was removed from the training and exits" in hosts.said()


def test_a_loop_of_the_users_own_goes_on_when_rank_0_is_lost(tmp_path: Path) -> None:
    job = Ended("loop", tmp_path, ["localhost:1", "127.0.0.1:1"], 2)
    assert job.code == 0, job.output
    (end,) = job.ends()
    assert end["first"] == [1, 96]
    assert end["learning rate"] == pytest.approx(0.01)
    reference = Reference()
    for epoch, ranks, first, stop in [(0, 2, 0, 240), (1, 2, 0, 96), (1, 1, 96, 240), (2, 1, 0, 240)]:
        assert epoch < 3
        for row in range(first, stop, ranks * BATCH):
            reference.step(range(row, row + ranks * BATCH), 0.01 * ranks)
    reference.check([end])
    assert any(line.startswith("rank 0 of 2 is lost; 1 rank goes on from epoch 1, row 96") for line in job.said())


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return Ended("refused", tmp_path_factory.mktemp("refused"), ["localhost:1"], 1)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("own shares", "with shard=False ring does not know which rank has which data"),
        ("unknown length", "the data set has no known length"),
        ("steps_per_epoch", "with steps_per_epoch an epoch begins"),
        ("generator", "commit_steps needs NumPy arrays or a tf.data.Dataset"),
        ("lists", "commit_steps needs NumPy arrays or a tf.data.Dataset"),
        ("a model that is not distributed", "call ring.distribute(model) first"),
    ],
)
def test_what_cannot_be_taken_up_again_is_refused_in_a_line(refused: Ended, what: str, says: str) -> None:
    said = json.loads((refused.out / "refused.json").read_text())[what]
    assert said.startswith("RingscopeError: ")
    assert says in said
    assert "\n" not in said


def test_a_scripts_own_error_ends_it_and_is_not_begun_again(refused: Ended) -> None:
    assert refused.code != 0
    assert refused.output.count('KeyError: "the script\'s own error"') == 1
