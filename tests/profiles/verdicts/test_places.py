"""A place that keeps the GPU waiting is told by its line, with the remedy for what it does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiles import analyse
from profiles.model import marks
from profiles.model.places import Line, Place
from profiles.verdicts import places
from tests.made.build import Build
from tests.profiles.verdicts.test_people import MS, US, findings


def training(gap_ns: int, *, kernels: int = 24, steps: int = 12, lasts: int = 100 * US) -> Build:
    """Steps of Keras on one thread, launched so much after the step before; a place is open meanwhile."""
    made, now = Build(), 10 * MS
    for number in range(steps):
        made.mark(f"step {number}", now, now + gap_ns + kernels * lasts)
        now += gap_ns
        for _ in range(kernels):
            made.kernel(now, now + lasts, "sm90_xmma_fprop", call=(now - 10 * US, now - 9 * US))
            now += lasts
    return made


def under(made: Build, kind: str, name: str, line: int, *, tid: int = 1) -> Build:
    for row in [one for one in made.rows["marks"] if one["name"].startswith("step ")]:
        until = next(one["start_ns"] for one in made.rows["kernels"] if one["start_ns"] > row["start_ns"])
        made.mark(marks.place(kind, name, "my_train.py", line), row["start_ns"], until - 20 * US, tid=tid)
    return made


def test_a_callback_is_told_by_its_line_in_the_place_of_python_in_the_loop() -> None:
    bare = findings(training(MS))
    assert "python-in-the-loop" in bare or "launch-bound" in bare
    found = findings(under(training(MS), "callback", "Norms.on_train_batch_end", 41))
    one = found["slow-callback"]
    assert (one.evidence["file"], one.evidence["line"]) == ("my_train.py", 41)
    assert "my_train.py:41" in one.text and set(found) & places.GENERAL == set()
    assert set(one.evidence["in_place_of"]) <= places.GENERAL
    assert next(iter(found)) == "slow-callback"
    assert one.saved_ns == {"idle_launch": 11 * 980 * US}


def test_a_callback_that_keeps_a_small_model_waiting_stands_in_the_place_of_its_small_batch() -> None:
    small = training(3 * MS, kernels=200, lasts=2 * US)
    assert "tiny-batch" in findings(small)
    found = findings(under(small, "callback", "Norms.on_train_batch_end", 41))
    assert next(iter(found)) == "slow-callback" and "tiny-batch" not in found


def test_a_general_finding_stays_where_places_explain_less_than_half_of_it() -> None:
    made = training(MS)
    for row in [one for one in made.rows["marks"] if one["name"].startswith("step ")]:
        name = marks.place("callback", "Short.on_train_batch_end", "my_train.py", 7)
        made.mark(name, row["start_ns"], row["start_ns"] + 300 * US)
    found = findings(made)
    assert "slow-callback" in found and set(found) & places.GENERAL


def test_one_place_of_two_ranks_is_one_finding_and_of_one_rank_names_it() -> None:
    slow = [under(training(MS), "callback", "Both", 5) for _ in range(2)]
    assert findings(*slow)["slow-callback"].gpu is None
    mixed = [training(MS), under(training(MS), "callback", "One", 5)]
    assert findings(*mixed)["slow-callback"].gpu == 1


def test_a_general_finding_on_one_gpu_gives_way_to_the_place_on_that_gpu() -> None:
    """The place is one finding on both, told with the numbers of the other GPU, which waits for something else."""
    more, less = (under(training(gap), "callback", "Both", 5) for gap in (3 * MS, MS))
    for kernel in more.rows["kernels"][::24]:  # after a wait of the host's
        more.api("cudaStreamSynchronize_v3020", kernel["start_ns"] - 3 * MS - 50 * US, kernel["start_ns"] - 2_990 * US)
    found = findings(more, less)
    assert found["slow-callback"].gpu is None and not set(found) & places.GENERAL


def test_an_eager_step_stands_before_what_it_brings_with_it() -> None:
    found = findings(under(training(4 * MS), "eager", "Sequential.train_step", 12))
    assert next(iter(found)) == "eager-step"
    assert not set(found) & (places.GENERAL | places.OF_EAGER)


@pytest.mark.parametrize(
    ("source", "via", "what"),
    [
        ("import torch, torch.nn as nn, deepspeed", "", "import"),
        ("    from torch.utils import data", "torch.load", "import"),
        ("with self.lock:", "", "lock"),
        ("item = replies.get()", "queue.Queue.get", "lock"),
        ("time.sleep(0.01)", "", "sleep"),
        ("with urllib.request.urlopen(request) as answer:", "", "network"),
        ("answers = self.model.predict(self.inputs, verbose=0)", "keras.Model.predict", "predict"),
        ("plt.savefig(path)", "matplotlib.savefig", "draw"),
        ("image.save(path)", "PIL.Image.save", "draw"),
        ("self.session.post(self.url, json=logs)", "requests.Session.post", "network"),
        ("model.save_weights(path)", "keras.Model.save_weights", "save"),
        ("pickle.dump(self.model.get_weights(), file)", "", "save"),
        ("json.dump(self.seen, file)", "", "write"),
        ("file.write(f'{batch},{loss}')", "", "write"),
        ("sys.stdout.write(text)", "", "print"),
        ("print(batch, logs)", "", "print"),
        ("w = self.model.get_weights()", "keras.Layer.get_weights", "fetch"),
        ("loss.item()", "", "fetch"),
        ("norm = np.linalg.norm(w)", "numpy.norm", "numpy"),
        ("for image in batch:", "", "loop"),
        ("total += weight", "", "python"),
    ],
)
def test_what_a_place_does_is_read_from_the_line_seen_longest(source: str, via: str, what: str) -> None:
    line = Line("my_train.py", 3, "f", via, source, 100)
    assert places.does(Place("python", "f", "my_train.py", 3, {"idle_launch": 100}, [line])) == what


def test_a_callback_of_kerass_own_is_told_by_its_options() -> None:
    board = Place("callback", "TensorBoard.on_train_batch_end", "my_train.py", 3, {"idle_launch": 100})
    assert "update_freq" in places.remedy(board)
    assert "update_freq" not in places.remedy(replace(board, name="Board.on_train_batch_end"))


def test_launches_of_a_framework_are_no_fault_of_the_line_that_calls_it() -> None:
    row = Place("call", "main", "my_train.py", 3, {"idle_launch": 100, "idle_sync": 40, "idle_peers": 7})
    assert places.saved(row) == {"idle_sync": 40}
    assert places.saved(replace(row, kind="python")) == {"idle_launch": 100, "idle_sync": 40}


@pytest.mark.parametrize(
    ("function", "source", "told"),
    [
        ("Net.forward", "return self.net(x)", False),
        ("Net.forward", "return torch.relu(x @ self.w)", False),
        ("Model.train_step", "y = self(x, training=True)", False),
        ("Net.forward", "print(x.mean())", True),
        ("Net.forward", "for row in x:", True),
        ("log_forward", "total += weight", True),
        ("main", "total += weight", True),
    ],
)
def test_a_line_that_computes_the_model_is_no_slow_line(function: str, source: str, *, told: bool) -> None:
    """The general finding then says what to do: to compile the step, for instance."""
    made = training(MS)
    for row in [one for one in made.rows["marks"] if one["name"].startswith("step ")]:
        made.sample(row["start_ns"], row["start_ns"] + 900 * US, function, 7, source=source)
    found = findings(made)
    assert ("slow-line" in found) == told
    assert told or set(found) & {"python-in-the-loop", "launch-bound"}


def test_what_only_makes_the_gpu_wait_for_its_input_makes_batches() -> None:
    row = Place("python", "batches", "my_train.py", 3, {"idle_launch": 40, "idle_feed": 100})
    assert places.code_of(row) == "slow-batches"
    assert places.code_of(replace(row, ns={"idle_launch": 100})) == "slow-line"


def test_the_line_seen_longest_is_told_with_its_own_file() -> None:
    made = under(training(MS), "callback", "Norms.on_train_batch_end", 41)
    for row in [one for one in made.rows["marks"] if one["name"].startswith("step ")]:
        made.sample(row["start_ns"], row["start_ns"] + 900 * US, "norm", 7, file="helpers/norms.py")
    one = findings(made)["slow-callback"]
    assert (one.evidence["file"], one.evidence["line"]) == ("my_train.py", 41)
    assert (one.evidence["seen_at_file"], one.evidence["seen_at_line"]) == ("helpers/norms.py", 7)
    assert "helpers/norms.py:7" in one.text


@pytest.mark.parametrize(("kind", "line"), [("map", 17), ("parallel-map", 17), ("loader-wait", 22), ("loader", 22)])
def test_what_makes_batches_elsewhere_is_told_by_its_line(kind: str, line: int) -> None:
    made = training(3 * MS)
    last = max(one["end_ns"] for one in made.rows["marks"])
    for row in [one for one in made.rows["marks"] if one["name"].startswith("step ")]:
        made.mark("wait input", row["start_ns"], row["start_ns"] + 3 * MS - 20 * US)
    bare = findings(made)
    assert set(bare) & {"input-pipeline-slow", "no-prefetch"}
    made.mark(marks.place(kind, "Dataset.map of distort", "data.py", line), 5 * MS, last, tid=9)
    found = findings(made)
    one = found["slow-batches"]
    assert (one.evidence["file"], one.evidence["line"]) == ("data.py", line)
    assert not set(found) & {"input-pipeline-slow", "no-prefetch"}
    assert ("num_parallel_calls" in one.change) == (kind == "map")
    assert ("num_workers" in one.change) == kind.startswith("loader")


def stopped(
    every: int, *, kernels: int = 0, idle_ns: int = 0, kind: str = "validation", name: str, steps: int = 30
) -> Build:
    """Steps of 2.4 ms; in each `every`th a part of the script runs more kernels of 100 us, and waits for `idle_ns`."""
    made, now = Build(), 10 * MS
    for number in range(steps):
        began = now
        for _ in range(24):
            made.kernel(now, now + 100 * US, "sm90_xmma_fprop", call=(now - 10 * US, now - 9 * US))
            now += 100 * US
        if number % every == every - 1:
            start, now = now, now + idle_ns
            for _ in range(kernels):
                made.kernel(now, now + 100 * US, "sm90_xmma_fprop", call=(now - 10 * US, now - 9 * US))
                now += 100 * US
            made.mark(marks.place(kind, name, "my_train.py", 9), start - 20 * US, now)
        made.mark(f"step {number}", began, now)
    return made


@pytest.mark.parametrize(("kernels", "idle_ns"), [(100, MS), (0, 11 * MS), (30, 8 * MS)])
def test_a_part_that_stops_the_training_every_tenth_batch_comes_first_by_its_line(kernels: int, idle_ns: int) -> None:
    name = "Validate.on_train_batch_end"
    found = findings(stopped(10, kernels=kernels, idle_ns=idle_ns, name=name))
    one = next(iter(found.values()))
    assert (one.code, one.evidence["file"], one.evidence["line"]) == ("slow-callback", "my_train.py", 9)
    assert one.evidence["breaks"] == 3
    step, stop = 24 * 100 * US, kernels * 100 * US + idle_ns
    lost, whole = 3 * stop, 30 * step + 3 * stop
    assert one.at_most_gain == pytest.approx(whole / (whole - lost) - 1, rel=0.05)
    assert "my_train.py:9" in one.text and "validate less often" in one.change


def test_one_end_of_an_epoch_in_a_recording_is_no_finding() -> None:
    once = dict(kernels=100, idle_ns=MS, steps=30)
    assert "slow-callback" not in findings(stopped(17, name="Model.evaluate", **once))
    assert "slow-callback" in findings(stopped(17, name="Validate.on_train_batch_end", **once))


def test_weights_that_a_callback_reads_now_and_then_are_no_checkpoint() -> None:
    made = stopped(10, idle_ns=20 * MS, kind="callback", name="Norms.on_train_batch_end")
    for row in [one for one in made.rows["marks"] if "Norms" in one["name"]]:
        for at in range(40):
            start = row["start_ns"] + at * 100 * US + 30 * US
            made.copy("d2h", start, start + 20 * US, 1 << 20, call=(start - US, start + 21 * US))
        made.sample(row["start_ns"], row["end_ns"], "norms", 4, source="w = self.model.get_weights()")
    one = next(iter(findings(made).values()))
    assert (one.code, one.evidence["line"]) == ("slow-callback", 9) and one.evidence["seen_at_line"] == 4


def test_a_checkpoint_that_breaks_the_training_is_told_by_its_line() -> None:
    made, now = Build(), 10 * MS
    for number in range(30):
        began = now
        if number == 20:
            for _ in range(40):  # tensors
                made.copy("d2h", now, now + 20 * US, 1 << 20, call=(now - US, now + 21 * US))
                now += 25 * US
            made.mark(marks.place("saving", "ModelCheckpoint.on_train_batch_end", "my_train.py", 9), now, now + 30 * MS)
            now += 30 * MS
        for _ in range(24):
            made.kernel(now, now + 100 * US, "sm90_xmma_fprop", call=(now - 10 * US, now - 9 * US))
            now += 100 * US
        made.mark(f"step {number}", began, now)
    measures = analyse([made.timeline()]).measures
    one = next(one for one in measures.findings if one.code == "checkpoint-in-the-loop")
    assert (one.evidence["file"], one.evidence["line"]) == ("my_train.py", 9)
    assert "my_train.py:9" in measures.breaks[0].text


@pytest.mark.parametrize(("waits_us", "is_first"), [(4000, True), (2000, False)])
def test_a_line_comes_before_launches_in_general_that_cost_up_to_twice_as_much(waits_us: int, is_first: bool) -> None:
    """Each step makes its batch for so long, and then launches 24 kernels of 4 us, 200 us apart."""
    made, now = Build(), 10 * MS
    for number in range(12):
        began = now
        made.mark(marks.place("generator", "batches", "augment.py", 19), now, now + waits_us * US)
        made.mark(marks.WAIT_INPUT, now, now + waits_us * US)
        now += waits_us * US
        for _ in range(24):
            made.kernel(now, now + 4 * US, "sm90_xmma_fprop", call=(now - 10 * US, now - 9 * US))
            now += 200 * US
        made.mark(f"step {number}", began, now)
    found = findings(made)
    shares = {code: one.at_most_gain / (1 + one.at_most_gain) for code, one in found.items() if one.at_most_gain}
    general = max(shares[code] for code in ("tiny-batch", "python-in-the-loop") if code in shares)
    assert shares["slow-batches"] < general and (shares["slow-batches"] >= general / 2) is is_first
    assert (next(iter(found)) == "slow-batches") is is_first
