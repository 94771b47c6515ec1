"""`ringscope infer`: what it refuses, what it plans, what it tells; and, for real, a server under load."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from harness.inference import serving as servers
from harness.jobs import infer, infer_devices, infer_served, infer_together
from harness.jobs.options import Infer
from harness.jobs.progress import Steps
from harness.verbs.infer import command
from profiles.ground.errors import RingscopeError
from profiles.inference.loads import Limits
from profiles.inference.records import Call, Inference, Served, Together
from tests.harness.inference.http_server import serving
from tests.harness.running import PATIENCE_S, carrying, environment, wait_until
from tests.recordings import ROOT

MS = 1_000_000
ALL = ("devices", "replicas", "batching")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--parts", "all"], "--parts all: choose from devices, replicas, batching"),
        (["--parts", "devices", "--rates", "5"], "--rates is for --parts batching"),
        (["--parts", "batching", "--replicas", "3"], "--replicas is for --parts replicas"),
        (["--parts", "batching", "--batches", "3"], "--batches is for the parts devices and replicas"),
        (["--parts", "devices", "--seconds", "3"], "--seconds is for the parts replicas and batching"),
        (
            ["--url", "http://x", "--instance", "x", "--max-batch", "2"],
            "--max-batch is for a server that ringscope starts",
        ),
        (["--instance", "x"], "--instance works only with --url"),
        (["--url", "http://x"], "--url needs a sample to send; add --instance FILE"),
        (["--max-batch", "1", "--wait-ms", "2"], "--wait-ms has no effect with --max-batch 1"),
        (["--rates", "0"], "--rates 0: write numbers from 0.01 up, such as --rates 50,200"),
        (["--rates", "fast"], "--rates fast: write numbers from 0.01 up"),
        (["--batches", "1.5"], "--batches 1.5: write numbers from 1 up"),
        (["--wait-ms", "nan"], "--wait-ms nan: write numbers from 0 up"),
        (["--models", "resnet51"], "no 'resnet51' here; name a .keras file, or one of"),
        (["--models", "/nowhere/m.keras"], "/nowhere/m.keras: no such file"),
    ],
)
def test_what_has_no_effect_or_cannot_be_is_refused(words: list[str], why: str, tmp_path: Path) -> None:
    with pytest.raises(RingscopeError) as refused:
        command.main([*words, "--out", str(tmp_path / "out")], standalone_mode=False)
    assert why in str(refused.value) and refused.value.exit_code == 2
    assert not (tmp_path / "out").exists()


def test_a_server_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(infer, "check_training", lambda: None)
    with pytest.raises(RingscopeError, match="--server tfserving: tensorflow_model_server is not installed"):
        infer.check(Infer(("batching",), server="tfserving"))


def test_without_tensorflow_and_a_server_tensorflow_is_named_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RingscopeError, match="^TensorFlow is not installed in .*; `make setup`"):
        infer.check(Infer(ALL))


def test_every_pair_of_limits_is_a_server_and_batches_of_one_wait_for_nobody() -> None:
    assert infer_served.pairs(Infer(ALL, most=(1, 8, 32), wait_ms=(1.0, 2.5))) == [
        *(Limits(1, 0.0), Limits(8, 1.0), Limits(8, 2.5), Limits(32, 1.0), Limits(32, 2.5)),
    ]


def test_the_plan_fits_the_machine(tmp_path: Path) -> None:
    found = Inference()
    cpu, gpus = (infer_devices.steps(Infer(ALL), count, tmp_path, found) for count in (0, 2))
    assert [step.words.partition(":")[0] for step in cpu] == ["dense2", "mlp", "cnn_cifar"]
    assert "on the CPU" in cpu[0].words and "on CPU and GPU" in gpus[-1].words and gpus[-1].words[:8] == "resnet50"
    words = [step.words for step in infer_together.steps(Infer(ALL, replicas=4, batches=(8, 16)), 4, tmp_path, found)]
    assert words == [
        "resnet50: 4 processes with a GPU each, batches of 16 for each",
        "resnet50: one process with 4 devices, batches of 16 for each",
    ]


@pytest.mark.parametrize(
    ("count", "gpus", "devices", "batch"), [(2, 0, 2, 8), (4, 4, 4, 8), (2, 1, 1, 16), (4, 2, 2, 16), (2, 8, 2, 8)]
)
def test_both_ways_have_as_many_samples_at_once(count: int, gpus: int, devices: int, batch: int) -> None:
    replicas, one = infer_together.ways(count, 8, gpus)
    assert (replicas.processes, replicas.devices, replicas.batch) == (count, 1, 8)
    assert (one.processes, one.devices, one.batch) == (1, devices, batch)
    assert replicas.processes * replicas.batch == one.devices * one.batch


def test_the_time_left_is_what_is_planned_at_the_pace_so_far() -> None:
    out = io.StringIO()
    with Steps([10.0, 20.0, 30.0], Console(file=out, width=100)) as steps:
        assert steps.left_s() == 60
        steps.begun("one")
        steps.ended(20.0)
        assert steps.left_s() == 100  # twice as slow as planned
        steps.ended(10.0)
        assert steps.left_s() == 30
    assert all(part in out.getvalue().splitlines()[0] for part in ("1/3 one", " 20 s", " 1 min 40 s"))


SERVED = Served("litserve", "m", 8, 5.0, 100.0, 500, 0, 0, 100.0, 5 * MS, 9 * MS, 20 * MS, True, MS // 10)


def test_doubts_are_told_of_what_they_touch() -> None:
    call, one = Call("m", 1, "CPU", 1, 10, 5, 6), Together("m", "replicas", 2, 1, 8, 5.0, 1, 1)
    found = Inference(calls=[call], together=[one], served=[SERVED])

    def codes(gpus: int, options: Infer | None = None) -> list[str]:
        return [doubt.code for doubt in infer.told(found, options or Infer(ALL), gpus)]

    assert codes(0) == ["no-gpu", "replicas-share-cores", "load-beside-server"]
    assert codes(2) == ["load-beside-server"]
    assert codes(2, Infer(ALL, url="http://x")) == []
    found.served += [replace(SERVED, late_p99_ns=MS), replace(SERVED, requests=199)]
    assert codes(2) == ["load-late", "few-requests", "load-beside-server"]


def test_rows_of_both_devices_give_a_crossover_and_failures_are_kept(tmp_path: Path) -> None:
    rows = [
        asdict(Call("m", 1, device, batch, 10, ns, ns))
        for device, batch, ns in [("CPU", 1, 10), ("GPU", 1, 50), ("CPU", 64, 90), ("GPU", 64, 60)]
    ]
    rows.append({"model": "m", "device": "GPU", "batch": 9999, "failed": "out of memory"})
    (tmp_path / "rows").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = Inference()
    infer_devices.take(tmp_path / "rows", found)
    (crossing,) = found.crossovers
    assert (crossing.cpu_until, crossing.gpu_from) == (1, 64)
    assert found.failures == [{"what": "m on the GPU with 9999", "why": "out of memory"}]


def test_rows_of_a_process_that_was_killed_while_it_wrote_are_a_failure_of_its_own(tmp_path: Path) -> None:
    whole = json.dumps(asdict(Call("m", 1, "CPU", 1, 10, 5, 5)))
    (tmp_path / "m.jsonl").write_text(f"{whole}\n{whole[:20]}")
    found = Inference()
    infer_devices.take(tmp_path / "m.jsonl", found)
    assert len(found.calls) == 1 and found.failures[0]["what"] == "m"


@pytest.mark.parametrize(
    "text", [None, "", "[1.5, ", "[NaN]", "[" * 100_000], ids=["pipe", "empty", "cut", "NaN", "deep"]
)
def test_a_sample_that_is_none_is_refused_before_anything_is_measured(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "sample.json"
    if text is None:
        os.mkfifo(path)
    else:
        path.write_text(text)
    with pytest.raises(RingscopeError, match="does not hold one sample as JSON"):
        infer.check(Infer(("batching",), url="http://x", instance=path))
    assert list(tmp_path.iterdir()) == [path]


def run(*words: str, timeout_s: float = 900, **more: str) -> tuple[int, dict[str, Any], str]:
    """(exit code, JSON, what was printed beside) of `ringscope infer`, as a process."""
    argv = [sys.executable, "-m", "harness", "infer", *words, "--json", "-"]
    done = subprocess.run(argv, cwd=ROOT, env=environment() | more, capture_output=True, text=True, timeout=timeout_s)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def needs(*names: str) -> None:
    for name in names:
        pytest.importorskip(name)


@pytest.mark.ci
def test_a_server_of_the_users_own_is_asked_by_its_url(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    (tmp_path / "sample.json").write_text("[1.5, 2.5]")
    words = ["--parts", "batching", "--instance", str(tmp_path / "sample.json"), "--rates", "40,80", "--seconds", "1"]
    with serving(lambda number, asked: (200, {"predictions": [sum(asked["instances"][0])]})) as url:
        code, told, said = run(*words, "--url", url, "--out", str(tmp_path / "good"))
    assert code == 0, said
    assert [(row["server"], row["asked_per_s"], row["lost"], row["most"]) for row in told["served"]] == [
        (url, 40.0, 0, None),
        (url, 80.0, 0, None),
    ]
    assert all(row["simulated_p99_ns"] is None and row["mean_batch"] is None for row in told["served"])
    with serving(lambda number, asked: (503 if number % 7 == 6 else 200, {"predictions": [4]})) as url:
        code, told, said = run(*words, "--rates", "40", "--url", url, "--out", str(tmp_path / "bad"))
    assert code == 1
    (row,), (failure,), (best,) = told["served"], told["failures"], told["best"]
    assert row["lost"] == sum(number % 7 == 6 for number in range(5, 5 + row["requests"])) and not row["keeps_up"]
    assert failure["what"] == f"{row['lost']} of {row['requests']} requests at 40 a second"
    assert "status 503" in failure["why"]
    assert best["most"] is None


def test_the_end_of_the_machine_leaves_what_was_measured_and_no_process(tmp_path: Path, mark: str) -> None:
    pytest.importorskip("aiohttp")
    (tmp_path / "sample.json").write_text("[1.5, 2.5]")
    held, released = threading.Event(), threading.Event()

    def answer(number: int, asked: Any) -> tuple[int, Any]:
        if (tmp_path / "out" / "batching" / "load-40.json").exists():  # the first load has been told
            held.set()
            released.wait(2 * PATIENCE_S)
        return 200, {"predictions": [4]}

    words = ["--parts", "batching", "--instance", str(tmp_path / "sample.json"), "--rates", "40,41", "--seconds", "1"]
    with serving(answer) as url:
        argv = [sys.executable, "-m", "harness", "infer", *words, "--url", url, "--out", str(tmp_path / "out")]
        process = subprocess.Popen(argv, cwd=ROOT, env=environment() | {"RINGSCOPE_TEST": mark})
        assert held.wait(PATIENCE_S)
        process.send_signal(signal.SIGTERM)
        code = process.wait(PATIENCE_S)
        released.set()
    told = json.loads((tmp_path / "out" / "inference.json").read_text())
    assert code == 130 and [row["asked_per_s"] for row in told["served"]] == [40.0]
    wait_until(lambda: not carrying(mark), PATIENCE_S, lambda: carrying(mark))


@pytest.mark.train
@pytest.mark.exhaustive
def test_litserve_gathers_requests_and_loses_none(tmp_path: Path) -> None:
    needs("tensorflow", "litserve", "aiohttp")
    words = ["--parts", "batching", "--models", "dense2", "--max-batch", "4", "--wait-ms", "20", "--rates", "60,5"]
    code, told, said = run(*words, "--seconds", "4", "--out", str(tmp_path))
    assert code == 0, said + "".join(path.read_text() for path in tmp_path.rglob("*.log"))
    busy, quiet = told["served"]
    check(busy, quiet, tmp_path / "batching" / "dense2-4-20ms")


def check(busy: dict[str, Any], quiet: dict[str, Any], folder: Path) -> None:
    """What holds however slow the machine is."""
    for row in (busy, quiet):
        assert row["lost"] == row["wrong"] == 0
        load = json.loads((folder / f"load-{row['asked_per_s']:g}.json").read_text())
        assert row["requests"] == len(load["due_ns"]) and all(load["good"])
        latency = np.sort(np.array(load["done_ns"]) - np.array(load["due_ns"]))
        assert row["p50_ns"] == latency[-(-len(latency) // 2) - 1] and row["max_ns"] == latency[-1]
        batch = np.array(load["batch"])
        assert batch.min() >= 1 and batch.max() <= 4
        for size in range(1, 5):  # who was in a batch of n is there n times
            assert np.count_nonzero(batch == size) % size == 0
        assert row["mean_batch"] == pytest.approx(len(batch) / np.sum(1 / batch))
        assert row["simulated_p50_ns"] > 0
    assert busy["mean_batch"] > quiet["mean_batch"] and busy["mean_batch"] > 1.2


@pytest.mark.train
@pytest.mark.exhaustive
def test_tensorflow_serving_gets_a_saved_model_and_its_limits_and_is_asked_by_rest(tmp_path: Path) -> None:
    """By a program with its options and its REST, as it is in no package index: harness/inference/model_server.py."""
    needs("tensorflow", "aiohttp")
    program = tmp_path / "bin" / "tensorflow_model_server"
    program.parent.mkdir()
    stand_in = ROOT / "tests/harness/inference/model_server.py"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{stand_in}" "$@"\n')
    program.chmod(0o755)
    words = ["--parts", "batching", "--models", "dense2", "--server", "tfserving", "--rates", "20", "--seconds", "2"]
    limits = ["--max-batch", "8", "--wait-ms", "2.5"]
    path = f"{program.parent}:{environment()['PATH']}"
    code, told, said = run(*words, *limits, "--out", str(tmp_path / "out"), PATH=path)
    folder = tmp_path / "out" / "batching" / "dense2-8-2.5ms"
    assert code == 0, said + "".join(log.read_text() for log in folder.glob("*.log"))
    (row,) = told["served"]
    assert (row["server"], row["lost"], row["wrong"], row["mean_batch"]) == ("tfserving", 0, 0, None)


def test_tensorflow_serving_is_started_with_a_batchs_limits_on_the_port_that_is_asked(tmp_path: Path) -> None:
    start = servers.tensorflow_serving("dense2", Limits(8, 2.5), tmp_path)
    options = dict(word.removeprefix("--").split("=") for word in start.argv[1:])
    said = re.findall(r"(\w+) { value: (\d+) }", Path(options["batching_parameters_file"]).read_text())
    assert {("max_batch_size", "8"), ("batch_timeout_micros", "2500")} <= set(said)
    assert (options["enable_batching"], options["model_base_path"]) == ("true", str((tmp_path / "model").resolve()))
    name = options["model_name"]
    assert start.url == f"http://127.0.0.1:{options['rest_api_port']}/v1/models/{name}:predict"
    assert options["port"] != options["rest_api_port"]  # gRPC has another one


@pytest.mark.train
@pytest.mark.exhaustive
def test_a_minute_of_load_loses_no_request(tmp_path: Path) -> None:
    needs("tensorflow", "litserve", "aiohttp")
    words = ["--parts", "batching", "--models", "mlp", "--max-batch", "8", "--wait-ms", "5", "--rates", "50"]
    code, told, said = run(*words, "--seconds", "60", "--out", str(tmp_path))
    assert code == 0, said
    (row,) = told["served"]
    assert row["requests"] == pytest.approx(3000, abs=280) and row["lost"] == row["wrong"] == 0
    assert not told["failures"]


@pytest.mark.train
@pytest.mark.ci
def test_all_parts_and_nothing_is_left_running(tmp_path: Path, mark: str) -> None:
    needs("tensorflow", "litserve", "aiohttp")
    words = ["--models", "dense2", "--batches", "1,100", "--max-batch", "1", "--rates", "20", "--seconds", "2"]
    words += ["--out", str(tmp_path), "--charts", str(tmp_path / "charts"), "--html", str(tmp_path / "infer.html")]
    code, told, said = run(*words, RINGSCOPE_TEST=mark)
    assert code == 0, said
    assert [(row["device"], row["batch"]) for row in told["calls"]] == [("CPU", 1), ("CPU", 100)]
    assert [(row["way"], row["processes"], row["devices"]) for row in told["together"]] == [
        ("replicas", 2, 1),
        ("synchronous", 1, 2),
    ]
    assert all(row["samples_per_s"] > 0 and row["p50_ns"] <= row["p99_ns"] for row in told["together"])
    assert told["served"][0]["mean_batch"] == 1
    assert {path.name for path in (tmp_path / "charts").iterdir()} >= {"calls-dense2.svg", "latency-20.png"}
    assert "<title>" in (tmp_path / "infer.html").read_text()
    assert json.loads((tmp_path / "inference.json").read_text()) == told
    wait_until(lambda: not carrying(mark), PATIENCE_S, lambda: carrying(mark))
