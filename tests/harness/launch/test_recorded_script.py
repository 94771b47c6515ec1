"""Which steps of a script are recorded: by a clock that is told what each step takes."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
import threading
import time
from collections.abc import Callable, Iterable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from harness.launch.profilers import Span
from harness.launch.recorder import AHEAD, LAST_LOOK, Agreed, Recorder
from harness.launch.recording import Options, Recording, _by_time
from harness.launch.steps import Steps, watch, watch_deepspeed, watch_optimizers
from harness.launch.watched import say_executions, say_loaders
from profiles.ground.after_import import AfterImport
from ringscope.places import ranges


class Told:
    """A clock, and what the recorder has done by it."""

    def __init__(self, steps: int = 3, agreed: Agreed | None = None) -> None:
        self.now_s = 0.0
        self.done: list[str] = []
        begins, ends = (lambda: self.done.append("begins")), (lambda: self.done.append("ends"))
        self.recorder = Recorder(steps, begins, ends, lambda: self.now_s, agreed=agreed)

    def take(self, seconds: Iterable[float]) -> None:
        for each in seconds:
            self.recorder.step()
            self.now_s += each
        self.recorder.pause()


def test_recording_begins_when_steps_are_alike_and_ends_after_so_many() -> None:
    told = Told(steps=3)
    told.take([60.0, *[1.0] * 18])
    assert told.done == []  # 19 steps
    told.take([1.0])
    assert (told.done, told.recorder.opened_at) == (["begins"], 20)
    told.take([1.0, 1.0])
    assert told.done == ["begins"]
    told.take([1.0])
    assert told.done == ["begins", "ends"]
    told.take([1.0] * 50)
    told.recorder.finish()
    assert told.done == ["begins", "ends"]


def test_steps_that_still_grow_shorter_are_waited_for() -> None:
    told = Told()
    told.take([2.0] * 15 + [1.0] * 5)
    assert told.done == []  # the last five took half of those before
    told.take([1.0] * 10)
    assert told.recorder.opened_at == 30


def test_steps_that_never_grow_steady_are_recorded_after_all() -> None:
    told = Told()
    told.take(1.1**step for step in range(LAST_LOOK))
    assert told.recorder.opened_at == LAST_LOOK


def test_what_lies_between_epochs_is_no_step() -> None:
    told = Told()
    for _ in range(4):
        told.take([1.0] * 5)
        told.now_s += 100.0  # an evaluation
    assert told.recorder.opened_at == 20
    assert told.recorder._took == [1.0] * 16  # an epoch's last step ends with what follows it


def test_a_script_that_ends_while_it_is_recorded_ends_the_recording() -> None:
    told = Told(steps=100)
    told.take([1.0] * 25)
    told.recorder.finish()
    told.recorder.finish()
    assert told.done == ["begins", "ends"]


def test_why_nothing_was_recorded_is_said() -> None:
    told = Told()
    nothing = told.recorder.unopened()
    told.take([1.0] * 12)
    assert told.recorder.opened_at is None and "12 steps" in told.recorder.unopened() != nothing


def test_a_script_that_ends_before_the_delay_is_not_told_to_set_a_time() -> None:
    said = Told(steps=0).recorder.unopened()
    assert "ended before --delay was over" in said and "set the time" not in said


def test_a_recording_that_begins_with_the_end_of_all_steps_holds_nothing() -> None:
    told = Told()
    assert told.recorder.holds_nothing
    told.take([1.0] * 20)
    assert told.recorder.opened_at == 20 and told.recorder.holds_nothing
    told.take([1.0])
    assert not told.recorder.holds_nothing
    by_time = Told(steps=0)
    by_time.recorder.open()
    assert not by_time.recorder.holds_nothing  # no step was ever to be seen


def test_what_is_waited_for_is_said_with_the_time_that_it_takes() -> None:
    told = Told(steps=20)
    assert (
        told.recorder.waits_for().startswith("step 0 of 40 ")
        and "the first one is under way" in told.recorder.waits_for()
    )
    told.take([60.0, 4.0, 4.25, 4.25])
    assert (
        told.recorder.waits_for().startswith("step 4 of 40 ") and "about 2 min 33 s to go" in told.recorder.waits_for()
    )
    told.take([4.0] * 16)
    told.take([4.0] * 2)
    assert (
        told.recorder.opened_at == 20 and told.recorder.waits_for() == "step 2 of 20 (recorded); about 1 min 12 s to go"
    )
    told.take([4.0] * 18)
    assert told.recorder.waits_for() == ""


def test_ranks_with_unlike_clocks_record_the_same_steps() -> None:
    fast, slow = Told(), Told()
    fast.take([30.0, *[1.0, 1.1] * 20])
    slow.take([90.0, 40.0, *[1.05, 0.95] * 20])
    assert fast.recorder.opened_at == slow.recorder.opened_at == 20


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("steps", [1, 20])
def test_a_rank_that_is_not_steady_yet_records_the_steps_of_one_that_is(
    tmp_path: Path, steps: int, ahead: bool
) -> None:
    steady, unlike = (Told(steps, Agreed(tmp_path)) for _ in range(2))
    for number in range(60):
        order = [(steady, 1.0), (unlike, 3.0 if number < 12 else 1.0)]
        for told, seconds in reversed(order) if ahead else order:
            told.recorder.step()
            told.now_s += seconds
    assert steady.recorder.opened_at == unlike.recorder.opened_at == 20 + AHEAD
    assert steady.recorder.closed and unlike.recorder.closed


def test_ranks_that_share_no_folder_record_once_each_is_steady(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = Told(agreed=Agreed(tmp_path / "file"))
    told.take([1.0] * 30)
    assert told.recorder.opened_at == 20


def test_a_recorder_that_is_dropped_before_it_has_opened_never_opens() -> None:
    told = Told()
    assert told.recorder.finish() and not told.recorder.open()
    told.take([1.0] * 30)
    assert told.done == [] and told.recorder.holds_nothing


def test_a_recording_that_cannot_be_written_does_not_end_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = Recording(Options("nsys", tmp_path, Span(steps=3)), "0", 1)

    def fails() -> None:
        raise OSError("No space left on device")

    recording.recorder.open()
    recording._opened.callback(fails)
    recording.drop()
    assert "the recording of rank 0 is lost: No space left on device" in capsys.readouterr().err


@pytest.mark.parametrize("made", [False, True])
def test_no_time_is_recorded_while_the_first_step_of_an_optimizer_compiles(made: bool) -> None:
    told = Told()
    told.recorder.awaits_steps = made
    _by_time(told.recorder, 0.0, 0.0, threading.Event(), inside=False)
    assert told.done == ([] if made else ["begins", "ends"])


def test_no_time_is_recorded_while_pytorch_compiles_an_operation() -> None:
    """As DeepSpeed does with its own, before the script makes an optimizer."""
    told, begun, done, names = Told(), threading.Event(), threading.Event(), {}
    code = "def load(begun, done): begun.set(); done.wait()"
    exec(compile(code, "/site-packages/torch/utils/cpp_extension.py", "exec"), names)
    compiling = threading.Thread(target=names["load"], args=(begun, done))
    compiling.start()
    begun.wait()
    waits = threading.Thread(target=_by_time, args=(told.recorder, 0.0, 0.0, threading.Event(), False))
    waits.start()
    waits.join(1.0)
    assert waits.is_alive() and told.done == []
    done.set()
    compiling.join()
    _pump(lambda: not waits.is_alive())
    assert told.done == ["begins", "ends"]


def _waits(told: Told, agreed: Agreed, over: threading.Event, *, duration_s: float = 0.0) -> threading.Thread:
    waits = threading.Thread(target=_by_time, args=(told.recorder, 0.0, duration_s, over, False, agreed))
    waits.start()
    return waits


def _pump(until: Callable[[], bool]) -> None:
    """Run Python on this thread, the main one, which is asked to open recordings, until the condition holds."""
    while not until():
        time.sleep(0.01)


def test_a_rank_slower_to_its_optimizer_than_the_delay_records_steps_if_another_trains(tmp_path: Path) -> None:
    fast, slow, over = Told(), Told(), threading.Event()
    fast.recorder.awaits_steps = True
    _waits(fast, Agreed(tmp_path), over).join()
    late = _waits(slow, Agreed(tmp_path), over)
    late.join(1.0)
    assert late.is_alive() and fast.done == slow.done == []
    slow.recorder.awaits_steps = True
    late.join()
    assert fast.done == slow.done == []


def test_a_rank_that_never_trains_records_beside_the_first_step_of_the_others(tmp_path: Path) -> None:
    trains, other, over = Told(agreed=Agreed(tmp_path)), Told(), threading.Event()
    trains.recorder.awaits_steps = True
    _waits(trains, Agreed(tmp_path), over).join()
    late = _waits(other, Agreed(tmp_path), over)
    late.join(1.0)
    assert other.done == []
    trains.take([1.0] * 30)
    _pump(lambda: not late.is_alive())
    assert trains.done == other.done == ["begins", "ends"]


def test_ranks_that_begin_to_train_while_another_records_seconds_record_seconds_and_later_ones_steps(
    tmp_path: Path,
) -> None:
    first, second, third, over = Told(), Told(), Told(), threading.Event()
    agreed = [Agreed(tmp_path) for _ in range(3)]
    long = _waits(first, agreed[0], over, duration_s=60.0)
    _pump(lambda: bool(first.done))
    second.recorder.awaits_steps = True
    beside = _waits(second, agreed[1], over, duration_s=60.0)
    _pump(lambda: bool(second.done))
    assert first.done == second.done == ["begins"]
    over.set()
    long.join()
    beside.join()
    agreed[0].forget_seconds()
    third.recorder.awaits_steps = True
    _waits(third, agreed[2], threading.Event()).join()
    assert third.done == []


def test_a_module_is_seen_once_it_has_been_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ModuleType] = []
    finder = AfterImport(["colorsys"], seen.append)
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    assert importlib.util.find_spec("colorsys") is not None and not seen  # asked for, as TensorFlow asks for keras
    import colorsys

    assert seen == [colorsys] and colorsys.rgb_to_hsv(1, 1, 1) == (0.0, 0.0, 1)


def test_a_finder_that_asks_all_others_for_a_module_does_not_ask_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    class AsksOthers(importlib.abc.MetaPathFinder):
        """As tools that measure coverage do."""

        def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
            others = (each.find_spec(name, path, target) for each in sys.meta_path if each is not self)
            return next((spec for spec in others if spec is not None), None)

    seen: list[ModuleType] = []
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    monkeypatch.setattr(sys, "meta_path", [AsksOthers(), AfterImport(["colorsys"], seen.append), *sys.meta_path])
    import colorsys

    assert seen == [colorsys]


class _Written:
    """Writes ranges beside what the recorder does."""

    def __init__(self, done: list[str]) -> None:
        self.done = done

    def begin(self, name: str) -> str:
        self.done.append(name)
        return name

    def end(self, begun: str) -> None:
        self.done.append(f"end of {begun}")


def _keras(backend: str = "tensorflow") -> ModuleType:
    """The parts of Keras that are watched."""
    keras = ModuleType("keras")

    class CallbackList:
        def on_train_begin(self, logs: object = None) -> str:
            return "own"

        def on_train_batch_begin(self, batch: int, logs: object = None) -> int:
            return batch

        def on_epoch_end(self, epoch: int, logs: object = None) -> None: ...
        def on_train_end(self, logs: object = None) -> None: ...
        def on_test_begin(self, logs: object = None) -> None: ...

    class Model:
        def train_on_batch(self, x: object) -> object:
            return x

    keras.callbacks, keras.Model = ModuleType("callbacks"), Model  # type: ignore[attr-defined]
    keras.callbacks.CallbackList = CallbackList  # type: ignore[attr-defined]
    keras.backend = SimpleNamespace(backend=lambda: backend)  # type: ignore[attr-defined]
    keras.optimizers = SimpleNamespace(Optimizer=type("Optimizer", (), {"apply": lambda *_: "own"}))  # type: ignore[attr-defined]
    return keras


def _marked(told: Told) -> list[str]:
    return [one for one in told.done if one.startswith("step ")]


def test_each_batch_of_keras_is_a_step_with_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    keras, told = _keras(), Told()
    monkeypatch.setattr(ranges, "_kept", _Written(told.done))
    watch(keras, Steps(told.recorder, within=True))
    listed = keras.callbacks.CallbackList()
    assert not told.recorder.expects_steps
    assert listed.on_train_begin() == "own" and told.recorder.expects_steps
    for epoch in range(2):
        assert [listed.on_train_batch_begin(batch) for batch in range(3)] == [0, 1, 2]
        listed.on_test_begin()
        listed.on_epoch_end(epoch)
        assert told.done[-1] == f"end of step {3 * epoch + 2}"
    assert _marked(told) == [f"step {number}" for number in range(6)] and told.recorder.number == 6
    assert keras.Model().train_on_batch(7) == 7 and told.done[-1] == "step 6"


@pytest.mark.parametrize("by", ["Keras", "Keras's optimizer", "PyTorch"])
def test_a_recording_holds_the_whole_mark_of_each_of_its_steps(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(steps=3)
    monkeypatch.setattr(ranges, "_kept", _Written(told.done))
    steps = Steps(told.recorder, within=True)
    hooks: list[Any] = []
    if by == "Keras":
        keras = _keras()
        watch(keras, steps)
        step = keras.callbacks.CallbackList().on_train_batch_begin
    elif by == "Keras's optimizer":
        keras = _keras("torch")
        watch(keras, steps)
        step = keras.optimizers.Optimizer().apply
    else:
        made = type("Optimizer", (), {})
        optimizers = SimpleNamespace(register_optimizer_step_post_hook=hooks.append, Optimizer=made)
        watch_optimizers(optimizers, steps)  # type: ignore[arg-type]
        step = hooks[0]
        assert not told.recorder.awaits_steps and made() and told.recorder.awaits_steps
    optimizer = object()
    for _ in range(25):
        step(optimizer)
        told.now_s += 1.0
    held = told.done[told.done.index("begins") + 1 : told.done.index("ends")]
    assert held == [one for number in (20, 21, 22) for one in (f"step {number}", f"end of step {number}")]


def test_a_step_of_deepspeed_is_one_however_many_steps_of_optimizers_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZeRO steps the optimizer once for each group of weights, and the engine only after all parts of a batch."""
    told, hooks = Told(steps=3), []
    monkeypatch.setattr(ranges, "_kept", _Written(told.done))

    class Engine:
        calls = global_steps = 0

        def step(self) -> str:
            self.calls += 1
            if self.calls % 2 == 0:
                hooks[0](self), hooks[0](self)
                self.global_steps += 1
            return "own"

        train_batch = step

    class Pipeline(Engine):
        pass

    optimizers = SimpleNamespace(register_optimizer_step_post_hook=hooks.append, Optimizer=type("Optimizer", (), {}))
    library = SimpleNamespace(initialize=lambda engine: engine, DeepSpeedEngine=Engine, PipelineEngine=Pipeline)
    steps = Steps(told.recorder, within=True)
    watch_optimizers(optimizers, steps)  # type: ignore[arg-type]
    watch_deepspeed(library, steps)
    engine, other, pipeline = library.initialize(Engine()), Engine(), Pipeline()
    assert told.recorder.expects_steps
    for _ in range(12):
        assert engine.step() == other.step() == "own"
    assert engine.global_steps == 6 and _marked(told) == [f"step {number}" for number in range(6)]
    before = told.recorder.number
    assert pipeline.train_batch() == pipeline.train_batch() == "own" and told.recorder.number == before


@pytest.mark.parametrize("workers", [1, 500])
def test_more_loaders_than_cores_are_told_before_the_training(
    workers: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class PyDatasetAdapter:
        def __init__(self, data: SimpleNamespace) -> None:
            self.data = data

    monkeypatch.setenv("HOROVOD_LOCAL_SIZE", "2")
    monkeypatch.delitem(sys.modules, "ringscope.ring", raising=False)
    adapters = ModuleType("adapters")
    adapters.PyDatasetAdapter = PyDatasetAdapter  # type: ignore[attr-defined]
    say_loaders(adapters)
    data = SimpleNamespace(workers=workers)
    assert [PyDatasetAdapter(data).data for _ in range(2)] == [data, data]
    told = capsys.readouterr().err
    assert told.count("2 ranks of this host with 500 data-loading workers each") == told.count("\n") == (workers > 1)


@pytest.mark.parametrize("count", [1, 5])
def test_several_steps_in_one_execution_are_told_once(
    count: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "ringscope.ring", raising=False)
    keras = _keras()
    say_executions(keras)
    keras.callbacks.CallbackList.model = SimpleNamespace(steps_per_execution=count)
    assert [keras.callbacks.CallbackList().on_train_begin() for _ in range(2)] == ["own", "own"]
    told = capsys.readouterr().err
    assert told.count("execution of 5 steps") == told.count("\n") == (count > 1)


def test_an_execution_of_several_steps_is_numbered_by_its_first(monkeypatch: pytest.MonkeyPatch) -> None:
    keras, told = _keras(), Told()
    monkeypatch.setattr(ranges, "_kept", _Written(told.done))
    watch(keras, Steps(told.recorder, within=True))
    listed = keras.callbacks.CallbackList()
    listed.model = SimpleNamespace(steps_per_execution=5)
    for batch in range(0, 15, 5):
        listed.on_train_batch_begin(batch)
    assert _marked(told) == ["step 0", "step 5", "step 10"] and told.recorder.number == 2


def test_a_checkpoint_every_ten_steps_is_steady() -> None:
    told = Told()
    told.take(200.0 if step % 10 == 0 else 1.0 if step % 10 < 5 else 18.0 for step in range(30))
    assert told.recorder.opened_at == 20
