"""What processes, hosts and partial files put together is to the byte what one process finds in all recordings."""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from signal import default_int_handler
from typing import get_args

import psutil
import pytest
from click.testing import CliRunner

import ringscope
from benchmarks.training import Shape
from benchmarks.write import WRITERS
from profiles.ground.version import VERSION
from profiles.measuring import partial_file, processes
from profiles.measuring.one_recording import Asked, FirstSteps, Identity, Unit, gather_unit, measure
from profiles.measuring.processes import Reading
from profiles.measuring.together import Again, join, settle
from profiles.model import measures_json
from profiles.model.timeline import Timeline
from profiles.verbs.timeline import command
from tests.harness.running import named
from tests.made.build import Build
from tests.recordings import ROOT

SHAPE = Shape(steps=8, kernels=12, gpus=9, processes=9, skew_ns=50, hidden_ns=150_000, feed_ns=100_000)
SLOW = replace(SHAPE, slow_gpus=(4,), late_ns=700_000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine ranks, the fourth of them slow, as files of nsys."""
    made = tmp_path_factory.mktemp("ranks")
    for rank in range(SLOW.gpus):
        WRITERS["nsys"](SLOW, made / f"rank{rank}.sqlite", range(rank, rank + 1))
    return made


@pytest.fixture(scope="module")
def alone(folder: Path) -> str:
    return measured(folder)


def measured(*paths: Path, **more) -> str:
    return measures_json.dumps(ringscope.analyse(paths, **more).measures)


def run(*words: object) -> str:
    done = CliRunner().invoke(command, [str(word) for word in words], catch_exceptions=True)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def test_processes_give_the_same_json_to_the_byte(folder: Path, alone: str) -> None:
    script = "import sys, ringscope\nfrom profiles.model import measures_json\nif __name__ == '__main__':\n"
    script += "    found = ringscope.analyse(sys.argv[1], processes=3)\n"
    script += "    sys.stdout.write(measures_json.dumps(found.measures))\n"
    (folder.parent / "measure.py").write_text(script)
    command = [sys.executable, str(folder.parent / "measure.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT)})
    assert done.stdout == alone
    assert "rank 4" in json.loads(done.stdout)["findings"][0]["text"]


def test_memory_is_bounded_by_measuring_each_as_it_is_read(folder: Path, alone: str, monkeypatch) -> None:
    held: list[int] = []

    def counted(unit, *more):
        held.append(1)
        return measure(unit, *more)

    measure = processes.measure
    monkeypatch.setattr(processes, "measure", counted)
    monkeypatch.setattr(processes, "_HELD_BYTES", 3 * (folder / "rank0.sqlite").stat().st_size)
    assert measured(folder) == alone
    assert len(held) == SLOW.gpus - 3


def test_partial_files_give_the_same_json_to_the_byte_in_any_mixture(folder: Path, alone: str, tmp_path: Path) -> None:
    of = {name: [folder / f"rank{rank}.sqlite" for rank in ranks] for name, ranks in (("a", range(5)), ("b", [5, 6]))}
    for name, paths in of.items():
        said = run(*paths, "--partial", tmp_path / f"{name}.partial", "--json-summary", "/dev/null")
        assert "findings" not in said
    rest = [folder / "rank7.sqlite", folder / "rank8.sqlite"]
    assert measured(tmp_path / "a.partial", tmp_path / "b.partial", *rest) == alone
    assert measured(tmp_path / "a.partial", *of["b"], *rest) == alone
    assert (tmp_path / "a.partial").stat().st_size < sum(path.stat().st_size for path in of["a"]) / 10


def test_what_readers_doubted_is_doubted_in_partial_files_too(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    path = Path(shutil.copy(folder / "rank0.sqlite", tmp_path / "run"))
    with sqlite3.connect(path) as base:
        base.execute('UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET "end" = start - 1 WHERE rowid = 1')
    (tmp_path / "run" / "empty.sqlite").touch()
    found = measured(tmp_path / "run")
    assert [doubt["code"] for doubt in json.loads(found)["doubts"]][:2] == ["unreadable", "impossible-times"]
    run(tmp_path / "run", "--partial", tmp_path / "a.partial")
    assert measured(tmp_path / "a.partial") == found


def unlike_warm_up(folder: Path) -> tuple[Path, Path]:
    """Rank 1 takes long over its first four steps, rank 0 over none."""
    for rank, slow in ((0, 0), (1, 4)):
        shape = replace(SHAPE, steps=14, gpus=2, processes=2)
        path = folder / f"rank{rank}.sqlite"
        WRITERS["nsys"](shape, path, range(rank, rank + 1))
        if slow:
            _stretch(path, slow)
    return folder / "rank0.sqlite", folder / "rank1.sqlite"


def _stretch(path: Path, steps: int) -> None:
    """All that happens before the end of so many steps happens 20 ms a step earlier."""
    with sqlite3.connect(path) as base:
        begins = dict(base.execute("SELECT s.value, n.start FROM NVTX_EVENTS n JOIN StringIds s ON s.id = n.textId"))
        for table in [row[0] for row in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]:
            columns = [row[1] for row in base.execute(f"PRAGMA table_info({table})")]
            for column in {"start", "end"} & set(columns):
                late = " + ".join(f'("{column}" < {begins[f"step {step}"]})' for step in range(1, steps + 1))
                base.execute(f'UPDATE {table} SET "{column}" = "{column}" - 20000000 * ({late})')


def test_what_is_warm_up_on_one_host_is_so_on_all(tmp_path: Path) -> None:
    first, second = unlike_warm_up(tmp_path)
    together = json.loads(measured(first, second))
    assert [gpu["steps"]["rows"][0]["step"] for gpu in together["gpus"]] == [4, 4]
    assert json.loads(measured(first))["gpus"][0]["steps"]["rows"][0]["step"] < 4
    run(first, "--partial", tmp_path / "first.partial")
    run(second, "--partial", tmp_path / "second.partial")
    # Rank 1's tells rank 0's recording where to start, but not what another host has measured already.
    assert measured(first, tmp_path / "second.partial") == measured(first, second)
    with pytest.raises(ringscope.RingscopeError, match=r"first\.partial: .*make it again with --from-step 4"):
        measured(tmp_path / "first.partial", tmp_path / "second.partial")
    run(first, "--partial", tmp_path / "first.partial", "--from-step", "4")
    assert measured(tmp_path / "first.partial", tmp_path / "second.partial") == measured(first, second)


def test_processes_of_one_gpu_in_two_recordings_are_measured_together(tmp_path: Path) -> None:
    timelines = []
    for pid in (1, 2):
        made = Build(pid=pid, path=f"{pid}.sqlite", origin_utc_ns=7)
        made.device(0, uuid="GPU-0")
        made.kernel(1_000 * pid, 1_000 * pid + 600, call=(0, 10))
        timelines.append(made.timeline())
    (gpu,) = ringscope.measure(timelines).gpus
    assert gpu.recordings == [0, 1] and gpu.kernels.count == 2 and gpu.span_ns == 1_600


def without_marks(pid: int, slow: int, *, gpu: str, marks: bool = False) -> Timeline:
    """Twelve steps of a rank, by their collectives; the first `slow` take six times longer."""
    made = Build(pid=pid, path=f"{pid}.sqlite", origin_utc_ns=7)
    made.device(0, uuid=gpu)
    at = 1_000_000
    for step in range(12):
        lasts = 60_000 if step < slow else 10_000
        if marks:
            made.mark(f"step {step}", at - 600, at + 3 * lasts + 100_000)
        for place, name in enumerate(("forward", "ncclDevKernel_AllReduce", "ApplyMomentum")):
            begins = at + place * lasts
            made.kernel(begins, begins + lasts - 100, name, call=(at - 500, at - 400))
        at += 3 * lasts + 200_000
    return made.timeline()


def test_a_unit_is_measured_again_where_the_first_step_of_all_moves_back() -> None:
    """Two processes share a GPU. The first by itself tells steps by collectives, and four of them are warm-up: another
    GPU is measured from the fifth on. Together they have marks, and nothing says that of the other GPU any more."""
    timelines = [
        without_marks(1, slow=4, gpu="GPU-0"),
        without_marks(2, slow=4, gpu="GPU-0", marks=True),
        without_marks(3, slow=1, gpu="GPU-1"),
    ]
    asked = Asked()

    def measured_as(members: tuple[int, ...], shift_ns: tuple[int, ...], first: FirstSteps | None) -> Unit:
        made = gather_unit([timelines[place] for place in members], members, shift_ns, asked)
        measure(made, made.first_steps if first is None else first, asked)
        return made

    def remake(wanted: Sequence[Again]) -> list[Unit]:
        return [measured_as(one.members, one.shift_ns, one.first) for one in wanted]

    alone = [measured_as((place,), (0,), None) for place in range(3)]
    assert [unit.first_steps for unit in alone] == [{"collectives": 4}, {"marks": 4}, {"collectives": 1}]
    joined = join(settle(alone, remake, asked)).measures
    assert [(gpu.steps.source, gpu.steps.rows[0].step) for gpu in joined.gpus] == [("marks", 4), ("collectives", 1)]
    assert joined.gpus == [replace(gpu, what_if=[]) for gpu in ringscope.measure(timelines).gpus]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: data | {"version": "0.0.1"}, "of ringscope 0.0.1"),
        (lambda data: data | {"units": [{}]}, f"cut short, damaged or of another build of ringscope {VERSION}"),
        (lambda data: data | {"window": "capture"}, "measured with --window capture"),
    ],
)
def test_a_partial_file_of_another_version_or_window_is_refused(folder, tmp_path, damage, says) -> None:
    path = tmp_path / "a.partial"
    run(folder / "rank0.sqlite", "--partial", path)
    data = json.loads(gzip.decompress(path.read_bytes()))
    with gzip.open(path, "wt") as out:
        json.dump(damage(data), out)
    assert partial_file.detects(path)
    with pytest.raises(ringscope.UnreadableRecording, match=says):
        ringscope.analyse(path)


def test_a_partial_file_cut_short_is_an_error_of_one_line(folder, tmp_path) -> None:
    path = tmp_path / "a.partial"
    run(folder / "rank0.sqlite", "--partial", path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ringscope.UnreadableRecording, match="damaged"):
        ringscope.analyse(path)


def test_a_recording_is_not_counted_twice(folder, tmp_path) -> None:
    run(folder / "rank0.sqlite", "--partial", tmp_path / "a.partial")
    with pytest.raises(ringscope.RingscopeError, match="given twice"):
        ringscope.analyse([tmp_path / "a.partial", folder])


def test_a_partial_file_among_its_own_recordings_is_written_anew(folder, alone, tmp_path) -> None:
    shutil.copytree(folder, tmp_path / "run")
    for _ in range(2):
        run(tmp_path / "run", "--partial", tmp_path / "run" / "all.partial", "--processes", "1")
    assert len(ringscope.measure(tmp_path / "run" / "all.partial").gpus) == SLOW.gpus


def test_a_page_of_partial_files_has_all_but_the_picture_of_operations(folder, tmp_path) -> None:
    run(folder, "--partial", tmp_path / "all.partial", "--processes", "1")
    run(tmp_path / "all.partial", "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "rank 4" in page and 'id="packed"' not in page
    with pytest.raises(ringscope.RingscopeError, match="holds no operations to draw"):
        run(tmp_path / "all.partial", "--perfetto", tmp_path / "trace.json.gz")


@pytest.mark.parametrize("asks", [["--perfetto", "trace.json.gz"], ["--ranks", "77"]])
def test_no_partial_file_is_left_where_something_else_that_is_asked_for_cannot_be_had(
    asks: list[str], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(folder / "rank0.sqlite", "--partial", "a.partial")
    with pytest.raises(ringscope.RingscopeError, match=asks[0]):
        run("a.partial", "--partial", "b.partial", *asks)
    assert [path.name for path in tmp_path.iterdir()] == ["a.partial"]


def test_a_recording_in_a_folder_is_no_earlier_partial_file(tmp_path: Path) -> None:
    """Its name tells nothing: a trace of PyTorch's and a partial file are called as people like."""
    for name, steps in (("a", 4), ("b", 5)):
        WRITERS["kineto"](replace(SHAPE, gpus=1, processes=1, steps=steps), tmp_path / name, None)
    before = (tmp_path / "a").read_bytes()
    with pytest.raises(ringscope.RingscopeError, match="does not overwrite it"):
        run(tmp_path, "--partial", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == before


def test_as_many_processes_measure_as_cores_and_memory_allow(folder, monkeypatch) -> None:
    with processes.readers.listed([folder]) as files:
        monkeypatch.setattr(processes, "_WORTH_BYTES", 1)
        monkeypatch.setattr(processes.os, "sched_getaffinity", lambda _pid: set(range(64)))
        monkeypatch.setattr(processes, "available_bytes", lambda: 1 << 40)
        assert processes.count(files) == SLOW.gpus
        each = processes._PROCESS_BYTES + processes._TIMES_FILE * max(file.path.stat().st_size for file in files)
        monkeypatch.setattr(processes, "available_bytes", lambda: 3 * each)
        assert processes.count(files) == 3
        monkeypatch.setattr(processes, "_WORTH_BYTES", 1 << 30)
        assert processes.count(files) == 1


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_process_that_is_killed_ends_in_one_line(folder, monkeypatch) -> None:
    ended = pytest.raises(ringscope.RingscopeError, match="--processes 1")
    with processes.readers.listed([folder]) as files, ended, processes.pool(2, Asked(), Reading()) as pool:
        for _ in pool.each([*files] * 100, None):  # more than can have been measured meanwhile
            for process in list(pool._pool._processes.values()):
                process.kill()


def test_nothing_of_it_outlives_a_process_that_is_killed(folder, tmp_path) -> None:
    script = "import sys, time\nfrom profiles.measuring import processes\n"
    script += "from profiles.measuring.one_recording import Asked\n"
    script += "if __name__ == '__main__':\n    with processes.readers.listed([sys.argv[1]]) as files:\n"
    script += "        with processes.pool(2, Asked(), processes.Reading()) as pool:\n"
    script += "            next(pool.each(files, None))\n            print('measured', flush=True)\n"
    script += "            time.sleep(600)\n"
    (tmp_path / "measure.py").write_text(script)
    words = [sys.executable, str(tmp_path / "measure.py"), str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(ROOT)}) as running:
        assert running.stdout is not None and running.stdout.readline() == "measured\n"
        below = psutil.Process(running.pid).children(recursive=True)
        assert len(below) >= 3  # the server that forks workers, and these
        running.kill()
    assert not psutil.wait_procs(below, timeout=900)[1]


def test_a_ctrl_c_while_workers_are_made_is_for_the_command_alone() -> None:
    """The terminal sends it to all of them, and what is importing then would print a traceback."""
    blocked = """
import re
from multiprocessing import forkserver
from pathlib import Path
from profiles.measuring.processes import Pool, Reading
from profiles.measuring.one_recording import Asked

if __name__ == "__main__":
    pool = Pool(2, Asked(None, False, 0), Reading())
    for pid in ("self", forkserver._forkserver._forkserver_pid):
        print(int(re.search(r"SigBlk:\\s*(\\w+)", Path(f"/proc/{pid}/status").read_text())[1], 16) >> 1 & 1)
    pool.close(cancels=True)
"""
    done = subprocess.run([sys.executable, "-c", blocked], cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.stdout.split() == ["0", "1"], done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.exhaustive)])
def test_no_export_of_nsys_outlives_what_it_was_for(number: signal.Signals, tmp_path: Path) -> None:
    """It exports for as long as it is let; the signal is for ringscope's first process alone."""
    program = tmp_path / "nsys"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    reports = [tmp_path / f"rank{rank}.nsys-rep" for rank in range(2)]
    for report in reports:
        report.write_bytes(b"NVIDIA Tegra Profiler Report" + report.name.encode())
    words = [sys.executable, "-m", "profiles", "timeline", "--processes", "2", *map(str, reports)]
    environ = {"PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}:/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with subprocess.Popen(
        words, env=environ, stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGINT, default_int_handler)
    ) as running:
        below: list[psutil.Process] = []
        until = time.monotonic() + 900
        while len(named("sleep", below)) < 2:
            assert time.monotonic() < until and running.poll() is None, below
            time.sleep(0.05)
            with contextlib.suppress(psutil.NoSuchProcess):
                below = psutil.Process(running.pid).children(recursive=True)
        running.send_signal(number)
        assert running.wait(900) == {signal.SIGINT: 130, signal.SIGTERM: -15}[number]
        assert not psutil.wait_procs(below, timeout=900)[1]
        assert running.stderr is not None
        assert b"Warning" not in running.stderr.read()  # of semaphores that the pool left


def test_no_type_of_theirs_is_a_text_which_python_3_10_does_not_read() -> None:
    assert not any(isinstance(each, str) for each in get_args(Identity))
