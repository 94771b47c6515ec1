"""A sampler keeps the user's lines, on a clock that the recording has too."""

from __future__ import annotations

import gc
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.launch.profilers import Profiler, Span
from profiles.model import marks
from profiles.readers import sampled
from ringscope.places import garbage, ranges, sampler, whose
from ringscope.places.whose import Where
from tests.made.build import Build
from tests.recordings import ROOT

HERE = "tests/places/test_sampler.py"


def sleeps(seconds: float) -> None:
    time.sleep(seconds)


def waits(replies: queue.Queue[int]) -> None:
    replies.get(timeout=60)


def takes(lock: threading.Lock) -> None:
    with lock:
        pass


def work_on(looks: sampler.Sampler, times: int, work: Callable[[], object]) -> None:
    """Work again and again until the sampler has looked so many times more, however busy the machine is."""
    enough = looks.count + times
    while looks.count < enough:
        work()


def look_on(looks: sampler.Sampler, times: int) -> None:
    """Return once the sampler has looked so many times more."""
    work_on(looks, times, lambda: time.sleep(0.005))


def sampled_while(work: Callable[[], object], folder: Path, *, looks: int) -> dict[str, object]:
    """The file of so many looks or more, while `work` runs again and again."""
    return sampled_by(lambda sampling: work_on(sampling, looks, work), folder)


def sampled_by(work: Callable[[sampler.Sampler], None], folder: Path) -> dict[str, object]:
    """The file that the sampler writes about this process while `work` runs; `work` gets the sampler."""
    looks = sampler.of_rank(folder, "3", sampler.main_thread, hz=500)
    looks.start()
    work(looks)
    looks.stop()
    told: dict[str, object] = json.loads((folder / "rank3.places.json").read_text())
    return told


def test_lines_of_the_thread_that_steps_and_of_others_are_kept(tmp_path: Path) -> None:
    replies: queue.Queue[int] = queue.Queue()
    other = threading.Thread(target=waits, args=(replies,))
    other.start()

    def work(looks: sampler.Sampler) -> None:
        begun_ns.append(time.monotonic_ns())
        work_on(looks, 20, lambda: sleeps(0.3))
        begun_ns.append(time.monotonic_ns())

    begun_ns = [time.monotonic_ns()]
    told = sampled_by(work, tmp_path)
    began_ns, work_ns, worked_ns = begun_ns
    over_ns = time.monotonic_ns()
    replies.put(1)
    other.join()
    places = {one["function"]: one for one in told["places"]}  # type: ignore[attr-defined]
    assert (places["sleeps"]["file"], places["sleeps"]["source"]) == (HERE, "time.sleep(seconds)")
    get = "queue.Queue.get" if sys.version_info >= (3, 11) else "queue.get"  # a frame of 3.10 does not name the class
    assert places["waits"]["via"] == get and not places["waits"]["framework"]
    stepping = [one for one in told["threads"] if one["steps"]]  # type: ignore[attr-defined]
    assert len(stepping) == 1 and len(told["threads"]) == 2  # type: ignore[arg-type]
    number = [one["function"] for one in told["places"]].index("sleeps")  # type: ignore[attr-defined]
    spans = zip(*(stepping[0][name] for name in ("start_ns", "end_ns", "place")), strict=True)
    slept = sum(end - start for start, end, place in spans if place == number)
    assert (worked_ns - work_ns) / 2 < slept < over_ns - began_ns


class Clocks:
    """A module `time` whose clocks go on only where a test says so, in its pauses and by what each costs."""

    def __init__(self, over: Callable[[], bool]) -> None:
        self.now_ns = self.cpu_ns = 0
        self.pauses_s: list[float] = []
        self.within: list[float] = []  # seconds after which a thread hands over Python's lock, at each pause
        self._over = over

    def sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)
        self.pauses_s.append(seconds)
        self.within.append(sys.getswitchinterval())
        if self._over():
            time.sleep(0.005)

    def spend(self, ns: int) -> None:
        self.now_ns += ns
        self.cpu_ns += ns

    def monotonic_ns(self) -> int:
        return self.now_ns

    def thread_time_ns(self) -> int:
        return self.cpu_ns

    def time_ns(self) -> int:
        return self.now_ns


def test_the_first_look_which_knows_no_line_sets_no_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = sampler.of_rank(tmp_path, "0", sampler.main_thread)
    clocks = Clocks(over=lambda: looks.count > 40)
    own = looks._look

    def look(*given: int) -> None:
        clocks.spend(20_000 if looks.count else 2_000_000)
        own(*given)

    monkeypatch.setattr(sampler, "time", clocks)
    monkeypatch.setattr(looks, "_look", look)
    marked = SimpleNamespace(begin=lambda name: clocks.spend(12_000_000), end=lambda begun: None)
    monkeypatch.setattr(sampler, "writer", lambda: marked)
    before = sys.getswitchinterval()
    looks.start()
    look_on(looks, 40)
    looks.stop()
    assert max(clocks.pauses_s) <= 1.5 / sampler.HZ  # by the first look and its mark it was 3 s
    assert clocks.within[-1] < before == sys.getswitchinterval()


@pytest.mark.parametrize(("looks", "codes"), [(8, ["places-few"]), (50, []), (None, [])])
def test_few_looks_are_a_doubt_with_their_error(looks: int | None, codes: list[str], tmp_path: Path) -> None:
    thread = {"steps": True, "start_ns": [1], "at_ns": [2], "end_ns": [4], "place": [0]}
    place = {"file": "a.py", "line": 1, "function": "f", "via": "", "framework": False}
    told = {"schema": marks.SAMPLES_SCHEMA, "pid": 1, "hz": 200, "began_ns": 0, "began_utc_ns": "0"}
    some = {} if looks is None else {"samples": looks}
    (tmp_path / "rank0.places.json").write_text(json.dumps({**told, **some, "places": [place], "threads": [thread]}))
    made = Build()
    made.mark("clock 0", 0, 1)
    found = sampled.beside(tmp_path / "rank0.sqlite", made.timeline()).doubts
    assert [one.code for one in found] == codes and all("35 %" in one.text for one in found)


def spans_of(told: dict[str, object], function: str) -> list[tuple[int, int]]:
    numbers = {at for at, one in enumerate(told["places"]) if one["function"] == function}  # type: ignore[arg-type, var-annotated]
    return [
        (start, end)
        for thread in told["threads"]  # type: ignore[attr-defined]
        for start, end, place in zip(thread["start_ns"], thread["end_ns"], thread["place"], strict=True)
        if place in numbers
    ]


def test_a_thread_that_waits_on_is_one_sample_until_it_goes_on_or_is_gone(tmp_path: Path) -> None:
    replies: queue.Queue[int] = queue.Queue()
    others = [threading.Thread(target=waits, args=(replies,)) for _ in range(2)]
    for one in others:
        one.start()
    began_ns = time.monotonic_ns()

    def work(looks: sampler.Sampler) -> None:
        look_on(looks, 10)
        replies.put(1)
        while all(one.is_alive() for one in others):
            time.sleep(0.005)
        look_on(looks, 10)

    told = sampled_by(work, tmp_path)
    over_ns = time.monotonic_ns()
    replies.put(1)
    for one in others:
        one.join()
    gone, stays = sorted(spans_of(told, "waits"), key=lambda span: span[1])
    assert began_ns <= gone[0] < gone[1] < stays[1] <= over_ns and began_ns <= stays[0] < gone[1]


def looped() -> None:
    for _ in range(3):
        time.sleep(0.01)
        time.sleep(0.03)


def test_each_line_is_its_own_place_however_often_it_is_seen(tmp_path: Path) -> None:
    told = sampled_while(looped, tmp_path, looks=75)  # a quarter sees the shorter line: 0.75**75 is 4e-10
    lines = {one["source"] for one in told["places"] if one["function"] == "looped"}  # type: ignore[attr-defined]
    assert {"time.sleep(0.01)", "time.sleep(0.03)"} <= lines
    assert len(told["places"]) == len({tuple(one.values()) for one in told["places"]})  # type: ignore[arg-type, attr-defined]
    spans = sorted(spans_of(told, "looped"))
    assert all(end <= later for (_, end), (later, _) in zip(spans, spans[1:], strict=False))


def test_a_line_that_calls_fit_is_no_place_while_ring_works_around_the_training(tmp_path: Path) -> None:
    fit, source = ROOT / "ringscope" / "ring" / "fit" / "fit.py", f"def {sampler.FIT}(work): work()"
    assert f"    {source.partition('(')[0]}(" in fit.read_text()
    ring: dict[str, Any] = {}
    exec(compile(source, str(fit), "exec"), ring)
    waits_on = partial(threading.Event().wait, 0.4)  # the standard library's, as at the end of a `with` of ring
    by_ring = sampled_while(lambda: ring[sampler.FIT](waits_on), tmp_path, looks=5)
    by_itself = sampled_while(lambda: waits_on(), tmp_path, looks=5)
    of_ring, own = ([one["via"] for one in told["places"]] for told in (by_ring, by_itself))  # type: ignore[attr-defined]
    assert any(via.endswith("wait") for via in own) and not any(via.endswith("wait") for via in of_ring)


def test_a_line_that_waits_for_a_lock_is_told_by_what_the_name_is(tmp_path: Path) -> None:
    held = threading.Lock()
    held.acquire()
    main = threading.get_ident()

    def work(looks: sampler.Sampler) -> None:
        def release() -> None:
            while sys._current_frames()[main].f_code is not takes.__code__:
                time.sleep(0.005)
            look_on(looks, 3)
            held.release()

        threading.Thread(target=release).start()
        takes(held)

    told = sampled_by(work, tmp_path)
    places = {one["function"]: one["via"] for one in told["places"]}  # type: ignore[attr-defined]
    assert places["takes"] == "threading.Lock"


def test_samples_come_onto_the_recordings_clock_by_its_marks(tmp_path: Path) -> None:
    told = sampled_by(lambda looks: look_on(looks, 3), tmp_path)
    thread = next(one for one in told["threads"] if one["steps"])  # type: ignore[attr-defined]
    at, made = thread["start_ns"][0], Build(path=str(tmp_path / "rank3.sqlite"))
    for late in (9_000, 2_000, 700_000):
        made.mark(marks.clock(at), 5_000_000 + late)
    found = sampled.beside(tmp_path / "rank3.sqlite.xz", made.timeline())
    first = found.samples.sort_values("start_ns").iloc[0]
    assert first["start_ns"] <= 5_002_000 and found.samples["steps"].any()
    assert [one.code for one in found.doubts] == ["places-few"] * (told["samples"] < 50)  # type: ignore[operator]  # a busy machine looks on
    mine = found.samples[found.samples["steps"]]
    assert mine["start_ns"].min() == 5_002_000
    assert set(mine["pid"]) == {1}  # the recording has one process, of another number


@pytest.mark.parametrize("damage", ["", "{", '{"schema": "ringscope.places/9"}', "NaN", "[]"])
def test_a_file_that_is_none_is_a_doubt_and_the_recording_is_read(tmp_path: Path, damage: str) -> None:
    (tmp_path / "rank0.places.json").write_text(damage)
    made = Build()
    made.kernel(0, 10)
    found = sampled.beside(tmp_path / "rank0.sqlite", made.timeline())
    assert [one.code for one in found.doubts] == ["places-unreadable"] and not len(found.samples)


@pytest.mark.parametrize(
    "change",
    [
        {"place": [7]},
        {"start_ns": [5, 6]},
        {"start_ns": [9], "end_ns": [3]},
        {"start_ns": [1 << 62], "end_ns": [1 << 62]},
        {"start_ns": [-(1 << 63)]},
        {"start_ns": [0, 1], "at_ns": [2, 3], "end_ns": [5, 6], "place": [0, 0]},
        {"at_ns": [9]},
    ],
)
def test_spans_that_cannot_be_are_a_doubt(tmp_path: Path, change: dict[str, list[int]]) -> None:
    thread = {"steps": True, "start_ns": [1], "at_ns": [2], "end_ns": [4], "place": [0]} | change
    place = {"file": "a.py", "line": 1, "function": "f", "via": "", "framework": False}
    told = {"schema": marks.SAMPLES_SCHEMA, "pid": 1, "hz": 200, "began_ns": 0, "began_utc_ns": "0"}
    (tmp_path / "rank0.places.json").write_text(json.dumps({**told, "places": [place], "threads": [thread]}))
    assert [one.code for one in sampled.beside(tmp_path / "rank0.sqlite", Build().timeline()).doubts] == [
        "places-unreadable"
    ]


def test_a_place_of_a_longer_name_than_any_is_a_doubt(tmp_path: Path) -> None:
    thread = {"steps": True, "start_ns": [1], "at_ns": [2], "end_ns": [4], "place": [0]}
    place = {"file": "a" * (1 << 20) + "a.py", "line": 1, "function": "f", "via": "", "framework": False}
    told = {"schema": marks.SAMPLES_SCHEMA, "pid": 1, "hz": 200, "began_ns": 0, "began_utc_ns": "0"}
    (tmp_path / "rank0.places.json").write_text(json.dumps({**told, "places": [place], "threads": [thread]}))
    (doubt,) = sampled.beside(tmp_path / "rank0.sqlite", Build().timeline()).doubts
    assert doubt.code == "places-unreadable" and len(doubt.text) < 1000


def test_without_a_clock_the_time_of_day_serves_and_is_doubted(tmp_path: Path) -> None:
    thread = {"steps": True, "start_ns": [1_500], "at_ns": [1_600], "end_ns": [1_700], "place": [0]}
    place = {"file": "a.py", "line": 1, "function": "f", "via": "", "framework": False}
    told = {"schema": marks.SAMPLES_SCHEMA, "pid": 1, "hz": 200, "samples": 7, "began_ns": 1_000}
    told |= {"began_utc_ns": str(10**18 + 123), "places": [place], "threads": [thread]}
    (tmp_path / "rank3.places.json").write_text(json.dumps(told))
    made = Build(origin_utc_ns=10**18)
    made.mark("step 0", 0, 10)
    found = sampled.beside(tmp_path / "rank3.nsys-rep", made.timeline())
    assert [one.code for one in found.doubts] == ["places-not-aligned", "places-few"]
    # 500 ns after the sampler began, which was 123 ns after the recording's origin
    assert found.samples[["start_ns", "at_ns", "end_ns"]].values.tolist() == [[623, 723, 823]]
    unknown = sampled.beside(tmp_path / "rank3.nsys-rep", Build().timeline())
    assert [one.code for one in unknown.doubts] == ["places-not-aligned"] and not len(unknown.samples)


@pytest.mark.parametrize("began", [{"began_utc_ns": (1 << 63) - 1}, {"began_ns": (1 << 63) - 1}])
def test_samples_centuries_away_are_left_out_and_doubted(began: dict[str, int], tmp_path: Path) -> None:
    thread = {"steps": True, "start_ns": [1], "at_ns": [2], "end_ns": [4], "place": [0]}
    place = {"file": "a.py", "line": 1, "function": "f", "via": "", "framework": False}
    told = {"schema": marks.SAMPLES_SCHEMA, "pid": 1, "hz": 200, "began_ns": 0, "began_utc_ns": 0, **began}
    (tmp_path / "rank0.places.json").write_text(json.dumps({**told, "places": [place], "threads": [thread]}))
    found = sampled.beside(tmp_path / "rank0.sqlite", Build(origin_utc_ns=10**18).timeline())
    assert [one.code for one in found.doubts] == ["places-not-aligned"] and not len(found.samples)


def test_whose_code_is_told_by_where_it_lies() -> None:
    import numpy.linalg

    assert whose.owner(__file__) == whose.USER
    assert whose.owner(json.__file__) == whose.STANDARD
    assert whose.owner(numpy.linalg.__file__) == whose.LIBRARY and whose.framework(numpy.linalg.__file__) is None
    assert whose.owner("/x/lib/python3.11/site-packages/keras/src/a.py") == whose.LIBRARY
    assert whose.framework("/x/lib/python3.11/site-packages/keras/src/a.py") == "keras"
    compiled = "/tmp/torchinductor_root/ke/ckevjhtvo4lw5ewk.py"  # written by torch.compile
    assert (whose.owner(compiled), whose.framework(compiled)) == (whose.LIBRARY, "torch")
    assert whose.owner(ranges.__file__) == whose.LIBRARY
    assert whose.owner("<frozen importlib._bootstrap>") == whose.STANDARD


class _Kept:
    """A writer that keeps what it is told."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def begin(self, name: str) -> None:
        self.names.append(name)

    def end(self, begun: object) -> None:
        self.names.append("end")


def test_garbage_that_a_frameworks_loop_collects_is_told_by_the_call_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "site-packages" / "keras" / "trainer.py"
    library.parent.mkdir(parents=True)
    library.write_text("import gc\ndef fit():\n    gc.collect()\n")
    keras: dict[str, Any] = {}
    exec(compile(library.read_text(), str(library), "exec"), keras)
    told: list[str] = []
    monkeypatch.setattr(ranges, "writer", lambda: SimpleNamespace(begin=told.append, end=lambda begun: None))
    garbage.watch()
    try:
        keras["fit"]()
    finally:
        gc.callbacks.remove(garbage._told)
    line = test_garbage_that_a_frameworks_loop_collects_is_told_by_the_call_of_the_loop.__code__.co_firstlineno + 12
    assert told == [marks.place("gc", "garbage collection", HERE, line)]


def test_a_place_in_another_one_has_its_name_and_its_own_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = _Kept()
    monkeypatch.setattr(ranges, "writer", lambda: kept)
    outer = ranges.Place("callback", "Saves.on_epoch_end", Where("my_train.py", 9))
    inside = ranges.Place("callback", "Base.on_epoch_end", Where("my_train.py", 2))
    with outer, ranges.Place("saving", "Model.save", Where("my_train.py", 50)), inside:
        pass
    own, inner = marks.place("callback", "Saves.on_epoch_end", "my_train.py", 9), "place saving Saves.on_epoch_end"
    assert kept.names == [own, f"{inner} (my_train.py:9)", "end", "end"]
    kept.names.clear()
    with ranges.Place("callback", "Keras's own", None):
        pass
    assert kept.names == []


def test_files_are_told_from_where_the_script_began(tmp_path: Path) -> None:
    script = tmp_path / "job" / "my.py"
    script.parent.mkdir()
    script.write_text("import os, sys\nfrom ringscope.places import whose\nos.chdir('/')\ndef f():\n    pass\n"
                      "print(*whose.defined(f)[:2])\n")  # fmt: skip
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    argv = Profiler("framework").of_command([sys.executable, "job/my.py"], tmp_path, Span(9, 1))
    environ = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(argv, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "job/my.py 4", done.stderr


def test_what_pip_has_installed_elsewhere_is_a_library_too(tmp_path: Path) -> None:
    for name in ("keras", "others", "keras-3.15.1.dist-info"):
        (tmp_path / "site" / name).mkdir(parents=True)
    code = "from ringscope.places import whose; import sys; a, b = sys.argv[1:]; "
    code += "print(whose.owner(a), whose.framework(a), whose.shown(a), whose.owner(b), whose.framework(b))"
    files = [str(tmp_path / "site" / name / "a.py") for name in ("keras", "others")]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", code, *files], env=environ, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.split() == ["2", "keras", "keras/a.py", "2", "None"], done.stderr
