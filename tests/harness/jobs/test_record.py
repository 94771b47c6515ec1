"""Recording: what profilers are told, and real recordings of two ranks under TensorFlow's profiler."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness import launch
from harness.jobs.measuring import collect
from harness.launch import recorder
from harness.launch.profilers import Profiler, Span, choose
from harness.launch.recording import Options
from harness.machine import describe, nvml, recorded_ranks
from harness.verbs import record
from profiles.ground.errors import RingscopeError
from profiles.runs.records import read_runs
from tests.harness.running import ROOT, prepared

NSYS = Profiler("nsys", "/opt/nsys")
OUT = Path("/out")
# It trains until it has been recorded, however long the machine takes to begin with that.
SCRIPT = """
import os, sys, time
from pathlib import Path
import tensorflow as tf
assert sys.argv[1:] == ["--epochs", "3"], sys.argv
recording = "rank1.xplane.pb"
deadline = time.monotonic() + 200
while time.monotonic() < deadline and not list(Path("out", "command", "0").glob(recording)):
    tf.reduce_sum(tf.random.normal([64, 64])).numpy()
    time.sleep(0.01)
print("trained to its end")
"""


def test_a_cell_opens_its_own_range_and_its_graphs_are_recorded_by_node() -> None:
    assert NSYS.prefix(OUT) == [
        *("/opt/nsys", "profile", "-t", "cuda,nvtx", "-s", "none", "--cpuctxsw=none", "--cuda-graph-trace=node"),
        *("--force-overwrite=true", "-c", "cudaProfilerApi", "--capture-range-end=stop"),
        *("-o", "/out/rank%q{RINGSCOPE_RANK}"),
    ]


def test_a_command_is_recorded_for_a_while_and_goes_on() -> None:
    argv = NSYS.prefix(OUT, Span(60, 5))
    assert [a for a in argv if a.startswith(("--d", "--k"))] == ["--delay=60", "--duration=5", "--kill=none"]
    assert "cudaProfilerApi" not in argv


def test_a_python_command_is_recorded_by_its_steps_and_opens_the_range_itself() -> None:
    span = Span(steps=7)
    argv = NSYS.prefix(OUT, span)
    assert "cudaProfilerApi" in argv and not [a for a in argv if a.startswith(("--delay", "--kill"))]
    words = NSYS.of_command(["python3", "-u", "my.py", "-x"], OUT, span)
    assert words[:4] == ["python3", "-u", "-m", "harness.launch.recorded_script"] and words[5:] == ["my.py", "-x"]
    assert Options.from_json(words[4]) == Options("nsys", OUT, span)
    with pytest.raises(RingscopeError, match="leave --steps out"):
        NSYS.of_command(["bash", "train.sh"], OUT, span)
    assert NSYS.of_command(["bash", "train.sh"], OUT, Span()) == ["bash", "train.sh"]


@pytest.mark.parametrize("span", [None, Span(5, 1), Span(5, 1, 7)])
def test_more_options_stand_among_those_of_nsys(span: Span | None) -> None:
    more = ("--gpu-metrics-devices=all", "--gpu-metrics-frequency=10000")
    plain, asked = NSYS.prefix(OUT, span), replace(NSYS, more=more).prefix(OUT, span)
    assert asked == [*plain[:-2], *more, *plain[-2:]] and plain[-2] == "-o"


def test_more_options_of_nsys_reach_it_and_no_other_profiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    (tmp_path / "nsys").write_text('#!/bin/sh\necho "nsys got $*"\n')
    (tmp_path / "nsys").chmod(0o755)
    for profiler, args, says in (
        ("nsys", "--gpu-metrics-devices=all -e 'A=a b'", "wrote no recording"),
        ("framework", "--stats=true", "--nsys-args is for nsys, and framework records here"),
        ("nsys", "-e 'A", "--nsys-args -e 'A: No closing quotation"),
    ):
        words = ["--launcher", "single", "--profiler", profiler, "--nsys-args", args, "--out", "out"]
        with pytest.raises(RingscopeError, match=says):
            record.command.main([*words, "--", "python", "train.py"], standalone_mode=False)
    assert "--gpu-metrics-devices=all -e A=a b -o " in capfd.readouterr().out


def test_an_nsys_without_its_importer_is_told_from_one_that_recorded_nothing(tmp_path: Path) -> None:
    with pytest.raises(RingscopeError, match="wrote no recording"):
        collect(NSYS, tmp_path)
    (tmp_path / "rank0.qdstrm").touch()
    with pytest.raises(RingscopeError, match=r"rank0\.qdstrm: nsys wrote this file .*QdstrmImporter"):
        collect(NSYS, tmp_path)


# what nsys prints: where GPU counters are for administrators alone, and on GPUs that it cannot read
NO_RIGHT = """GPU Metrics: None of the installed GPUs are supported:
\tNVIDIA GeForce RTX 4090 PCI[0000:01:00.0] - Insufficient privilege, see https://developer.nvidia.com/ERR_NVGPUCTRPERM
See the user guide: https://docs.nvidia.com/nsight-systems/UserGuide/index.html#gms-introduction
"""
TOO_OLD = """Illegal --gpu-metrics-devices usage.
None of the installed GPUs are supported:
\tTesla V100-PCIE-32GB PCI[0000:17:00.0] - Unsupported architecture
\tTesla V100-PCIE-32GB PCI[0000:fa:00.0] - Unsupported architecture
"""
ALLOWED = """Possible --gpu-metrics-devices values are:
\t0: Hopper GH100 | NVIDIA H200 PCI[0000:18:00.0]
\tall: Select all supported GPUs
"""


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (NO_RIGHT, "Insufficient privilege, see https://developer.nvidia.com/ERR_NVGPUCTRPERM"),
        (TOO_OLD, "Unsupported architecture"),
        (ALLOWED, None),
    ],
)
def test_where_nsys_may_not_read_gpu_metrics_it_records_without_them_and_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], says: str, reason: str | None
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    (tmp_path / "help.txt").write_text(says)
    # like nsys, it ends without a word of the command if it may not read the metrics that are asked for
    refuses = f"case $* in *--gpu-metrics*) {'exit 1' if reason else ''} ;; esac"
    helps = f"case $* in *=help) cat {tmp_path}/help.txt >&2; exit 1;; esac"
    (tmp_path / "nsys").write_text(f'#!/bin/sh\n{helps}\n{refuses}\necho "nsys got $*"\n')
    (tmp_path / "nsys").chmod(0o755)
    words = ["--launcher", "single", "--profiler", "nsys", "--out", "out", "--nsys-args"]
    words += ["--gpu-metrics-devices all -e A=b --gpu-metrics-frequency=10000", "--", "python", "train.py"]
    with pytest.raises(RingscopeError, match="wrote no recording"):
        record.command.main(words, standalone_mode=False)
    lines = capfd.readouterr().out.splitlines()
    assert [line for line in lines if "GPU metrics" in line] == (
        [f"nsys cannot read GPU metrics here ({reason}); the recording goes on without them"] if reason else []
    )
    (got,) = (line for line in lines if line.startswith("nsys got "))
    asked = "--gpu-metrics-devices all -e A=b --gpu-metrics-frequency=10000"
    assert f" {'-e A=b' if reason else asked} -o " in got and ("--gpu-metrics" in got) == (reason is None)


def test_nvprof_waits_for_a_cells_range_and_records_a_command_whole() -> None:
    nvprof = Profiler("nvprof", "/opt/nvprof")
    stem = ["/opt/nvprof", "-f", "-o", "/out/rank%q{RINGSCOPE_RANK}.nvvp"]
    assert nvprof.prefix(OUT) == [*stem, "--profile-from-start", "off"]
    assert nvprof.prefix(OUT, Span()) == stem


def test_tensorflows_profiler_wraps_a_python_script_and_nothing_else() -> None:
    wrapped = Profiler("tensorflow").of_command(["python", "my.py", "--epochs", "3"], OUT, Span(1, 2))
    assert wrapped[:3] == ["python", "-m", "harness.launch.recorded_script"] and wrapped[4:] == [
        "my.py",
        "--epochs",
        "3",
    ]
    assert Options.from_json(wrapped[3]) == Options("tensorflow", OUT, Span(1, 2))
    module = Profiler("tensorflow").of_command(["python3", "-u", "-m", "pkg", "-x"], OUT, Span(1, 2))
    assert module[:4] == ["python3", "-u", "-m", "harness.launch.recorded_script"] and module[5:] == ["-m", "pkg", "-x"]
    variables = ["env", "A=1", "B=python=2"]
    after = Profiler("tensorflow").of_command([*variables, "python", "my.py", "C=3"], OUT, Span(1, 2))
    assert after == [*variables, *wrapped[:-2], "C=3"]
    for other in (
        *(["./a.out"], ["python"], ["python", "-m"], ["python", "-c", "1"], ["bash", "my.py"]),
        *(["env"], ["env", "A=1"], ["env", "-i", "python", "my.py"], ["env", "A=1", "./a.out"]),
    ):
        with pytest.raises(RingscopeError, match="install Nsight Systems"):
            Profiler("tensorflow").of_command(other, OUT, Span())


@pytest.mark.parametrize(
    ("here", "capabilities", "name"),
    [
        ({"nsys", "nvprof"}, ["9.0"], "nsys"),
        ({"nsys", "nvprof"}, ["7.0"], "nsys"),
        ({"nvprof"}, ["7.0", "7.5"], "nvprof"),
        ({"nvprof"}, [None], "nvprof"),
        ({"nvprof"}, ["7.5", "8.0"], "framework"),
        ({"nvprof"}, ["10.0"], "framework"),
        ({"nsys", "nvprof"}, [], "framework"),
        (set(), ["9.0"], "framework"),
    ],
)
def test_the_profiler_is_one_that_can_record_these_gpus(
    here: set[str], capabilities: list[str | None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = [{"compute_capability": capability} for capability in capabilities]
    monkeypatch.setattr(nvml, "gpu_list", lambda: (gpus, None))
    monkeypatch.setattr(describe, "find", lambda one: f"/usr/bin/{one}" if one in here else None)
    assert choose().name == name
    for one in here:
        assert choose(one).name == one  # whoever asks for it gets it


SAMPLES = [("all", [0, 1, 2, 3]), ("first-per-host", [0, 2]), ("1,3", [1, 3]), ("0", [0])]


@pytest.mark.parametrize(("asked", "recorded"), SAMPLES)
def test_a_profiler_stands_before_the_ranks_asked_for_alone(asked: str, recorded: list[int], tmp_path: Path) -> None:
    """Two hosts with two ranks each, as their launcher's variables tell them."""
    profiler = tmp_path / "profiler"
    profiler.write_text('#!/bin/sh\ntouch "$1"\nshift\nexec "$@"\n')
    profiler.chmod(0o755)
    says = ["sh", "-c", 'echo "rank $RINGSCOPE_RANK ${RINGSCOPE_RECORDED:-1}"']
    for rank in range(4):
        environ = {**os.environ, "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_RANK": str(rank % 2)}
        prefix = [str(profiler), str(tmp_path / f"rank{rank}")]
        job = launch.command(says, ranks=1, launcher="single", environ=environ, prefix=prefix, recorded=asked)
        done = subprocess.run(job.argv, env=environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
        assert done.stdout == f"rank {rank} {int(rank in recorded)}\n", done.stderr
    assert sorted(path.name for path in tmp_path.glob("rank*")) == [f"rank{rank}" for rank in recorded]
    assert recorded_ranks.count(asked, 4, [2, 2]) == len(recorded)


@pytest.mark.parametrize("asked", ["0,4", "some", "", "1,,2", "-1"])
def test_a_sample_that_no_job_has_is_refused(asked: str) -> None:
    with pytest.raises(RingscopeError, match="--record-ranks"):
        recorded_ranks.check(asked, 4)


def test_an_export_that_fails_leaves_nothing_that_looks_like_a_recording(tmp_path: Path) -> None:
    (tmp_path / "rank0.nsys-rep").write_bytes(b"report")
    program = tmp_path / "nsys"
    writes = '#!/bin/sh\nfor word; do if [ "$last" = --output ]; then echo half > "$word"; fi; last=$word; done\n'
    program.write_text(writes + "echo full disk >&2; exit 1\n")
    program.chmod(0o755)
    with pytest.raises(RingscopeError, match="full disk"):
        collect(Profiler("nsys", str(program)), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nsys", "rank0.nsys-rep"]
    program.write_text(writes)
    assert [path.name for path in collect(Profiler("nsys", str(program)), tmp_path)] == ["rank0.sqlite"]
    assert not list(tmp_path.glob("*partial*")) and not list(tmp_path.glob(".*partial*"))


def test_a_module_runs_under_tensorflows_profiler_as_python_runs_it(tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text("import sys; print(__name__, sys.argv[1:], sys.path[0])")
    argv = Profiler("tensorflow").of_command([sys.executable, "-m", "told", "-a"], tmp_path, Span(99, 1))
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    assert done.stdout.strip() == f"__main__ ['-a'] {tmp_path}", done.stderr


def test_a_profiler_that_is_not_here_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe, "find", lambda name: None)
    assert choose().name == "framework"
    with pytest.raises(RingscopeError, match="nsys is not on the PATH"):
        choose("nsys")


def _record(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
    argv = [sys.executable, "-m", "harness", "record", "--profiler", "tensorflow", "--out", "out", *arguments]
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=900)


@pytest.mark.train
@pytest.mark.beside
def test_each_rank_of_a_cell_leaves_its_own_recording_and_the_launch_is_no_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks that need not import TensorFlow (prepared.py), under a real horovodrun."""
    worker, described = launch.worker, describe.describe
    monkeypatch.setattr(launch, "worker", lambda *paths: [*prepared(), *worker(*paths)])
    monkeypatch.setattr(describe, "describe", lambda: described(libraries=False))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    words = ["--profiler", "tensorflow", "--out", str(tmp_path / "out"), "--per-rank-batch", "16", "--warmup", "2"]
    assert not record.command.main([*words, "--model", "mlp", "-np", "2", "--steps", "4"], standalone_mode=False)
    (run,) = read_runs(tmp_path / "out")
    assert run.record.profiled == "tensorflow"
    recordings = [run.directory / f"rank{rank}.xplane.pb" for rank in (0, 1)]
    assert all(path.stat().st_size > 1000 for path in recordings)
    assert recordings[0].read_bytes() != recordings[1].read_bytes()


@pytest.mark.ci
@pytest.mark.train
@pytest.mark.beside
def test_a_script_of_the_users_is_recorded_on_some_ranks_and_trains_to_its_end_on_all(tmp_path: Path) -> None:
    (tmp_path / "my_train.py").write_text(SCRIPT)
    command = ["--", sys.executable, "my_train.py", "--epochs", "3"]
    result = _record(tmp_path, "-np", "2", "--delay", "4", "--duration", "1", "--record-ranks", "1", *command)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("trained to its end") == 2
    assert {path.name for path in (tmp_path / "out").rglob("*.pb")} == {"rank1.xplane.pb"}


# The first step compiles for longer than the rest take.
STEADY = """
import keras, numpy as np
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
model.compile("sgd", "mse")
DISTRIBUTE
x, y = np.zeros((2000, 8)), np.zeros((2000, 4))
model.fit(x, y, batch_size=8, epochs=1, verbose=0, callbacks=[keras.callbacks.LambdaCallback()])
print("trained to its end", int(model.optimizer.iterations))
"""


@pytest.mark.exhaustive
@pytest.mark.train
@pytest.mark.beside
@pytest.mark.parametrize(
    ("first", "distribute"),
    [
        ("", ""),
        ("import tensorflow as tf", ""),  # which asks for keras before anybody imports it
        ("from ringscope import ring; ring.init()", "ring.distribute(model)"),
    ],
)
def test_steps_of_a_keras_script_are_recorded_once_they_are_steady(tmp_path: Path, first: str, distribute: str) -> None:
    (tmp_path / "my_train.py").write_text(first + STEADY.replace("DISTRIBUTE", distribute))
    result = _record(tmp_path, "--launcher", "single", "--steps", "5", "--", sys.executable, "my_train.py")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "trained to its end 250" in result.stdout
    begun = re.search(r"recording from step (\d+) on", result.stderr)
    assert begun and 20 <= int(begun[1]) <= recorder.LAST_LOOK and int(begun[1]) % recorder.LOOK_EVERY == 0
    assert "recorded 5 steps" in result.stderr
    assert [path.name for path in (tmp_path / "out").rglob("*.pb")] == ["rank0.xplane.pb"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--profiler", "tensorflow", "--", "echo", "hi"], "Python scripts and modules only, not 'echo hi'"),
        (["--profiler", "tensorflow", "--", "python", "-u", "none.py"], "none.py: no such file; check the path"),
        (
            ["--profiler", "tensorflow", "-np", "2", "--hosts", "a:1", "--", "python", "x.py"],
            "2 ranks, but the hosts have 1",
        ),
    ],
)
def test_a_command_that_cannot_be_recorded_is_refused_and_nothing_is_written(
    tmp_path: Path, words: list[str], says: str
) -> None:
    with pytest.raises(RingscopeError, match=says):
        record.command.main(["--launcher", "mpirun", "--out", str(tmp_path / "out"), *words], standalone_mode=False)
    assert not (tmp_path / "out").exists()


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("file", "x.py"):
        (tmp_path / name).write_text("")
    words = [
        "--launcher",
        "single",
        "--profiler",
        "tensorflow",
        "--out",
        str(tmp_path / "file"),
        "--",
        "python",
        "x.py",
    ]
    with pytest.raises(RingscopeError, match="Not a directory; mend that"):
        record.command.main(words, standalone_mode=False)


def under_the_profiler(folder: Path, script: str, *, delay_s: float) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(script)
    (folder / "out").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = Profiler("tensorflow").of_command([sys.executable, "script.py"], Path("out"), Span(delay_s, 30))
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)


@pytest.mark.parametrize(
    ("script", "code", "says"),
    [
        # The profiler is loading TensorFlow meanwhile.
        pytest.param("import sys, time; time.sleep(0.8); sys.exit(3)", 3, (), marks=pytest.mark.exhaustive),
        (
            "raise KeyError('mine')",
            1,
            ("KeyError: 'mine'", "the script failed before; first make the script run without ringscope"),
        ),
        ("print('done')", 0, ()),
    ],
)
def test_a_script_that_ends_early_keeps_its_exit_code(
    tmp_path: Path, script: str, code: int, says: tuple[str, ...]
) -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    done = under_the_profiler(tmp_path, script, delay_s=0.1 if code == 3 else 99)
    assert done.returncode == code and all(each in done.stderr for each in says), done.stderr


def test_a_command_that_failed_is_told_by_the_exit_code(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys; sys.exit(3)")
    result = _record(tmp_path, "--launcher", "single", "--delay", "99", "--", sys.executable, "script.py")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "the command ended with exit code 3" in result.stdout


def test_a_script_that_fails_under_horovodrun_is_told_by_its_own_error_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("raise KeyError('mine')")
    result = _record(tmp_path, "--delay", "99", "--", sys.executable, "script.py")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "KeyError: 'mine'" in result.stderr and "run_commandline" not in result.stderr
