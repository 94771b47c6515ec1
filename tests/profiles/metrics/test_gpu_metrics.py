"""GPU metrics beside the ledger: counted nanosecond by nanosecond, and a real recording whose phases are known."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from profiles import analyse, measure
from profiles.ground.errors import RingscopeError
from profiles.metrics import gpu_metrics
from profiles.model import measures_json
from profiles.model.gpu_metrics import KINDS_OF_TIME, METRICS, GpuMetrics
from profiles.model.measures import GpuMeasures
from profiles.verbs.check import command as check
from profiles.verbs.timeline import command as timeline
from tests.made.build import Build
from tests.recordings import DATA, rows

REAL = DATA / "gpu-metrics" / "phases-2gpu.sqlite.xz"
FULL = {"gr_active": 50, "sm_active": 50, "tensor_active": 0, "dram_read": 0, "dram_write": 0}


def measured(made: Build, **asked: Any) -> tuple[GpuMeasures, GpuMetrics]:
    (gpu,) = measure([made.timeline()], **{"window": "capture", **asked}).gpus
    assert gpu.gpu_metrics is not None
    return gpu, gpu.gpu_metrics


# ---- nanosecond by nanosecond


def made_at_random(seed: int) -> Build:
    chance = random.Random(seed)
    made, at = Build(), 0
    for _ in range(60):
        length = chance.choice([3, 20, 90, 250])
        kind = chance.choice(["kernel", "kernel", "kernel", "nccl", "copy", "memset", "idle"])
        if kind == "copy":
            made.copy("h2d", at, at + length)
        elif kind == "memset":
            made.memset(at, at + length)
        elif kind != "idle":
            name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL" if kind == "nccl" else "matmul"
            made.kernel(at, at + length, name, stream=chance.choice([7, 8]))
        at += chance.choice([length, length // 2, length + 30])
    stamp = -150
    while stamp < at + 200:
        lasts = chance.choice([100, 100, 99, 101])
        if chance.random() < 0.9:
            made.counters(stamp, lasts, **{name: chance.choice([-1, 0, 1, 7, 30, 59, 60, 99, 100]) for name in METRICS})
        stamp += lasts
    return made


def owners_by_ns(made: Build) -> list[str]:
    """Who had the GPU in each nanosecond from the first start to the last end, by going through all operations."""
    found: dict[int, str] = {}
    classes = {"copies": "copy", "memsets": "copy"}
    spans = [(row["start_ns"], row["end_ns"], classes.get(table) or
              ("collective" if "nccl" in row["name"] else "compute"))
             for table in ("kernels", "copies", "memsets") for row in made.rows[table]]  # fmt: skip
    for kind in ("copy", "collective", "compute"):
        for start, end, own in spans:
            if own == kind:
                found.update(dict.fromkeys(range(start, end), kind))
    return [found.get(at, "idle") for at in range(min(one for one, _, _ in spans), max(one for _, one, _ in spans))]


def by_hand(own: list[str], first: int, samples: list[dict[str, int]]) -> tuple[dict[str, int], dict[Any, list[int]]]:
    """What bounds compute, and of each metric and kind of time the sum of value x ns and of ns."""
    bound = dict.fromkeys(("tensor", "memory", "latency", "unsampled"), 0)
    sums: dict[Any, list[int]] = {}
    told = 0
    for row in samples:
        start, end = row["at_ns"], row["at_ns"] + row["lasts_ns"]
        held = [own[at - first] for at in range(start, end) if 0 <= at - first < len(own)]
        for kind in held:
            for key in METRICS:
                if row[key] >= 0:
                    one = sums.setdefault((key, kind), [0, 0])
                    one[0], one[1] = one[0] + row[key], one[1] + 1
        compute, busy = held.count("compute"), len(held) - held.count("idle")
        tensor, read, write = (row[key] for key in ("tensor_active", "dram_read", "dram_write"))
        if not compute or min(tensor, read, write) < 0:
            continue
        a, b = min(tensor * len(held) / compute, 100), min((read + write) * len(held) / busy, 100)
        if compute / len(held) < 0.1:
            slack = [(a, len(held) / compute), (b, len(held) / busy)]
            if any(share - more < 60 <= share + more for share, more in slack):
                continue
        bound["latency" if max(a, b) < 60 else "tensor" if a >= b else "memory"] += compute
        told += compute
    bound["unsampled"] = own.count("compute") - told
    return bound, sums


@pytest.mark.parametrize("seed", range(12))
def test_bounds_and_means_are_those_of_a_count_of_each_nanosecond(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = made_at_random(seed)
    own = owners_by_ns(made)
    first = min(row["start_ns"] for table in ("kernels", "copies", "memsets") for row in made.rows[table])
    bound, sums = by_hand(own, first, made.rows["gpu_metrics"])
    for block in (1 << 16, 7):
        monkeypatch.setattr(gpu_metrics, "_BLOCK", block)
        gpu, found = measured(made)
        assert gpu.ledger_ns["compute"] == own.count("compute") == sum(found.bound_ns.values())
        assert found.bound_ns == bound
        for kind in KINDS_OF_TIME:
            for key in METRICS:
                percent, ns = sums.get((key, kind), (0, 0))
                assert found.means[kind][key] == (pytest.approx(percent / ns / 100) if ns else None)
        for key in METRICS:
            whole = [sums.get((key, kind), (0, 0)) for kind in KINDS_OF_TIME]
            expected = sum(one for one, _ in whole) / max(sum(ns for _, ns in whole), 1) / 100
            assert found.means["window"][key] == pytest.approx(expected)
        assert found.sampled_ns == sum(found.owner_ns.values()) <= gpu.span_ns


# ---- one by one


@pytest.mark.parametrize(
    ("compute", "tensor", "dram", "expected"),
    [
        (60, 45, 15, "tensor"),  # the example of measures.md: 75 % and 25 %
        (100, 60, 0, "tensor"),
        (100, 59, 59, "latency"),
        (100, 70, 80, "memory"),
        (100, 80, 80, "tensor"),
        (5, 0, 0, "latency"),  # one percent more would be 20 %
        (5, 3, 0, "unsampled"),  # 60 %, but one percent less would be 40 %
        (1, 0, 0, "unsampled"),  # one percent more would be 100 %
        (5, 5, 0, "tensor"),  # 100 %, and one percent less 80 %
    ],
)
def test_a_sample_with_idle_time_in_it_is_judged_by_its_compute(
    compute: int, tensor: int, dram: int, expected: str
) -> None:
    made = Build()
    made.kernel(0, compute)
    made.memset(100, 101)
    made.counters(0, 100, tensor_active=tensor, dram_read=dram, dram_write=0)
    gpu, found = measured(made)
    assert found.bound_ns == {"tensor": 0, "memory": 0, "latency": 0, "unsampled": 0} | {expected: compute}
    assert found.mixed_ns == (compute if compute < 90 and expected != "unsampled" else 0)


def test_compute_without_a_sample_is_not_sampled_and_a_set_without_a_counter_is_unknown_with_the_reason() -> None:
    made = Build()
    made.kernel(0, 1000)
    made.counters(0, 100, **FULL)
    _, found = measured(made)
    assert found.bound_ns == {"tensor": 0, "memory": 0, "latency": 100, "unsampled": 900}
    made = Build()
    made.kernel(0, 1000)
    made.counters(0, 1000, sm_active=40)
    _, found = measured(made)
    assert found.bound_ns is None and found.means["compute"]["sm_active"] == 0.4
    assert all(word in str(found.bound_unknown) for word in ("Tensor Active", "DRAM Read", "DRAM Write"))
    made = Build()
    made.kernel(0, 1000)
    made.counters(5000, 1000, **FULL)
    assert measured(made)[1].bound_unknown and measured(made)[1].bound_ns is None
    made = Build()
    made.kernel(0, 1000)
    made.counters(0, 1000, device=1, **FULL)
    _, found = measured(made)
    assert found.samples == 0 and found.period_ns is None and found.bound_ns is None and found.bound_unknown
    made = Build()
    made.kernel(0, 1000)
    assert measure([made.timeline()], window="capture").gpus[0].gpu_metrics is None


# ---- steps, doubts


def loop(shift: int = 0, *, period: int = 1000, watts: tuple[int, ...] = ()) -> Build:
    """Eight marked steps of 100 us with three kernels at uneven places; samples of `period` ns, `shift` late."""
    made, chance = Build(), random.Random(0)
    busy = np.zeros(800_000)
    for step in range(8):
        at = 100_000 * step
        made.mark(f"step {step}", at, at + 99_000)
        for place in (5_000, 30_000 + chance.randrange(30_000), 70_000 + chance.randrange(9_000)):
            made.kernel(at + place, at + place + 20_000, call=(at + place - 2_000, at + place - 1_000))
            busy[at + place : at + place + 20_000] = 1
    for at in range(0, 800_000 - period + 1, period):
        shown = int(round(100 * busy[at : at + period].mean()))
        made.counters(at + shift, period, **{**FULL, "gr_active": shown, "tensor_active": shown})
    for place, value in enumerate(watts):
        made.power(40_000 * place, value)
    return made


def codes(made: Build) -> set[str]:
    return {one.code for one in measure([made.timeline()]).doubts}


@pytest.mark.parametrize("late", [0, 1, 4, -30])
def test_counters_on_another_clock_are_doubted_and_others_are_not(late: int) -> None:
    gpu, found = measured(loop(late * 1000), window=None)
    assert gpu.window == "steps" and found.off_by == (late if abs(late) > 1 else 0)
    doubts = measure([loop(late * 1000).timeline()]).doubts
    said = [one for one in doubts if one.code == "gpu-metrics-off-clock"]
    assert len(said) == (abs(late) > 1)
    assert all(("back" if late > 0 else "ahead") in one.text for one in said)


def test_samples_longer_than_a_step_or_mixed_with_other_time_are_doubted() -> None:
    assert "gpu-metrics-coarse" not in codes(loop())
    assert "gpu-metrics-coarse" in codes(loop(period=50_000))  # most hold idle time, too
    assert "gpu-metrics-coarse" in codes(loop(period=160_000))


def test_energy_holds_each_reading_until_the_next_and_counts_steps() -> None:
    watts = tuple(range(100, 125))
    gpu, found = measured(loop(watts=watts), window=None)
    start, end = gpu.window_ns
    held = [watts[min(at // 40_000, len(watts) - 1)] for at in range(start, end)]
    assert found.energy is not None and found.energy.joules == pytest.approx(sum(held) / 1e9)
    assert found.energy.watts == pytest.approx(sum(held) / len(held))
    assert found.energy.joules_per_step == pytest.approx(sum(held) / 1e9 / gpu.steps.count) and gpu.steps.count > 3
    assert found.energy.sampled_ns == gpu.span_ns and found.energy.readings == len(set(held))
    assert "power-coarse" not in codes(loop(watts=watts))
    assert "power-coarse" in codes(loop(watts=(100, 100, 100, 200)))


def test_energy_of_a_part_of_the_window_has_no_step_and_none_has_a_reason() -> None:
    _, found = measured(loop(watts=(100, 200)), window=None)
    assert found.energy is not None and found.energy.joules_per_step is None
    assert found.energy.sampled_ns < 80_000
    assert measured(loop())[1].energy is None and measured(loop())[1].energy_unknown
    made = loop()
    made.power(10**9, 100)
    assert "in the window" in str(measured(made)[1].energy_unknown)
    made = loop()
    made.power(0, 100, device=-1)
    assert "does not say" in str(measured(made)[1].energy_unknown)


# ---- a real recording, whose program says what bounds each phase


def test_phases_of_a_known_program_are_bound_by_what_bounds_them() -> None:
    """nvjet kernels multiply matrices of 8 192 in bfloat16; the long element-wise kernels scale 1.07 GB, the short ones
    64 numbers."""
    found = measure([REAL])
    for number, gpu in enumerate(found.gpus):
        names = rows(
            REAL,
            'SELECT s.value, k.start, k."end" FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = shortName'
            f" WHERE deviceId = {number}",
        )
        window = gpu.window_ns
        took = {"tensor": 0, "memory": 0, "latency": 0}
        for name, start, end in names:
            ns = max(min(end, window[1]) - max(start, window[0]), 0)
            if "nccl" not in name:
                phase = "tensor" if name.startswith("nvjet") else "memory" if end - start > 100_000 else "latency"
                took[phase] += ns
        sampled = gpu.gpu_metrics
        assert sampled is not None and sampled.bound_ns is not None and sampled.off_by == 0
        assert sampled.period_ns == 100_000
        assert sum(sampled.bound_ns.values()) == gpu.ledger_ns["compute"] == sum(took.values())
        for phase, ns in took.items():
            assert abs(sampled.bound_ns[phase] - ns) <= 0.02 * sum(took.values()), (number, phase)
        assert sampled.energy is not None and 200 < sampled.energy.watts < 700


def test_measures_go_through_json_and_other_sums_are_refused() -> None:
    found = measure([REAL])
    data = json.loads(measures_json.dumps(found))
    assert measures_json.from_json(data) == found
    data["gpus"][0]["gpu_metrics"]["bound_ns"]["tensor"] += 1
    with pytest.raises(RingscopeError, match="bound_ns"):
        measures_json.from_json(data)
    del data["gpus"][0]["gpu_metrics"]["bound_ns"]["tensor"]
    with pytest.raises(RingscopeError, match="bound_ns"):
        measures_json.from_json(data)


def test_every_view_shows_the_gpu_metrics(tmp_path: Path) -> None:
    files = {"html": tmp_path / "p.html", "markdown": tmp_path / "p.md", "json": tmp_path / "p.json"}
    options = [text for name, path in files.items() for text in (f"--{name}", str(path))]
    run = CliRunner().invoke(timeline, [str(REAL), *options])
    assert run.exit_code == 0 and len(run.stdout.splitlines()) <= 60
    gpus = json.loads(files["json"].read_text())["gpus"]
    shares = [f"{100 * gpu['gpu_metrics']['bound_ns']['tensor'] / gpu['ledger_ns']['compute']:.1f} %" for gpu in gpus]
    (line,) = (line for line in run.stdout.splitlines() if line.strip().startswith("tensor-bound"))
    assert re.findall(r"[\d.]+ %", line) == shares
    for name in ("html", "markdown"):
        assert all(share in files[name].read_text() for share in shares)
    shown = CliRunner().invoke(timeline, [str(REAL), "--show", "gpu-metrics"])
    assert shown.exit_code == 0 and shown.stdout.count("collective") == 2
    (line,) = (line for line in run.stdout.splitlines() if line.startswith("energy"))
    read = [f"{100 * gpu['gpu_metrics']['energy']['sampled_ns'] / gpu['span_ns']:.1f} %" for gpu in gpus]
    assert re.findall(r"J in ([\d.]+ %)", line) == read  # a part of the window is read
    full = CliRunner().invoke(timeline, [str(REAL), "--full"])
    assert all(share in full.stdout for share in shares)


def test_check_trusts_the_recording_and_notes_its_power() -> None:
    run = CliRunner().invoke(check, [str(REAL), "--json", "-"])
    reasons = {one["code"]: one["weight"] for one in json.loads(run.stdout)["reasons"]}
    assert reasons["power-coarse"] == "note" and "gpu-metrics-off-clock" not in reasons


def test_without_a_recording_of_counters_no_view_tells_of_them() -> None:
    made = Build()
    made.kernel(0, 1000)
    found = analyse([made.timeline()], window="capture").measures
    assert found.gpus[0].gpu_metrics is None
    assert measures_json.from_json(measures_json.to_json(found)) == replace(found)
