"""What the product says of recordings is what a program says that reads their SQL or JSON by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from profiles import analyse
from tests.independent import survey
from tests.independent.program import causes, recorded, totals
from tests.recordings import DATA, SHARED
from tests.tiers import few

NSYS = (
    *("resnet50-2gpu-pinned.rank0", "resnet50-2gpu-in-stream.rank1", "vgg16-2gpu-pinned.rank0", "gru-1gpu.rank0"),
    *(
        "dense41m-2gpu-pinned.rank1",
        "dense41m-1gpu-pinned-float32.rank0",
        "cnn-1gpu-graph.rank0",
        "made/shuf",
        "made/v2",
    ),
)
HERE = [
    *(DATA / f"{name}.sqlite.xz" for name in NSYS),
    *(DATA / "made" / f"{name}.json.gz" for name in ("k_plain", "k_custom", "k_sym", "k_xla", "k_drop", "k_hipgraph")),
]
THIRD = SHARED / "third"
THERE = [
    THIRD / "made" / "k_zero.json.gz",
    *(THIRD / "planted" / f"{name}.sqlite.xz" for name in ("big_dense.rank0", "big_dense.rank1")),
    *(THIRD / "public" / f"{name}.json.gz" for name in ("b200-multimem", "bert-marked-step", "image-classifier")),
]


@pytest.mark.parametrize("path", few(HERE + THERE, 2), ids=lambda path: path.name)
def test_busy_exposed_and_idle_by_cause_are_those_of_a_program_that_shares_no_code(path: Path) -> None:
    if not path.exists():
        pytest.skip(f"no {path}: recordings of others are not here")
    (gpu,) = analyse([path], window="capture").measures.gpus
    recording = recorded(path)
    busy, exposed, idle = totals(recording)
    ledger = gpu.ledger_ns
    assert gpu.busy_ns == busy and {name: ledger[name] for name in busy} == exposed
    told = {name: ns for name, ns in ledger.items() if name.startswith("idle_") and ns is not None}
    assert sum(told.values()) == idle
    if gpu.told:
        expected = causes(recording)
        assert told == {name: expected.get(name, 0) for name in told}
    else:
        assert told == {"idle_unknown": idle} | {name: 0 for name in told if name != "idle_unknown"}


def frames(count: int, late_us: int) -> dict[str, list[dict[str, Any]]]:
    """Frames of a camera without marks: the host waits for one, copies it, and launches four kernels."""
    events: list[dict[str, Any]] = []

    def add(at: int, lasts: int, call: int, name: str, **more: object) -> None:
        number = len(events)
        host = {"pid": 1, "tid": 1, "cat": "cuda_runtime", "name": call_of[name], "ts": call, "dur": 5}
        args = {"device": 0, "context": 1, "stream": 7, "correlation": number, **more}
        gpu = {"pid": 0, "tid": 7, "cat": "gpu_memcpy" if more else "kernel", "name": name, "ts": at, "dur": lasts}
        events.extend({"ph": "X", **one, "args": args} for one in (host, gpu))

    copy, kernels = "Memcpy HtoD (Pinned -> Device)", ("decode", "convert", "histogram", "draw")
    call_of = {copy: "cudaMemcpyAsync", **dict.fromkeys(kernels, "cudaLaunchKernel")}
    for frame in range(count):
        begins = frame * 20_000 + late_us * (frame % 3)
        add(begins, 300, begins - 10, copy, bytes=3 << 20)
        for place, name in enumerate(kernels):
            at = begins + 310 + 510 * place
            add(at, 500, begins + 20 + 10 * place, name)
    return {"traceEvents": events}


@pytest.mark.parametrize("late_us", [0, 700])
def test_so_they_are_where_steps_come_by_period(late_us: int, tmp_path: Path) -> None:
    path = tmp_path / "frames.json"
    path.write_text(json.dumps(frames(12, late_us)))
    (gpu,) = analyse([path], window="capture").measures.gpus
    assert gpu.steps.source == "period"
    expected = causes(recorded(path))
    told = {name: ns for name, ns in gpu.ledger_ns.items() if name.startswith("idle_") and ns is not None}
    assert told == {name: expected.get(name, 0) for name in told} and told["idle_feed"] > 0


def test_what_was_said_of_one_finding_is_not_said_of_another() -> None:
    path = DATA / "dense41m-1gpu-pinned-float32.rank0.sqlite.xz"
    (first, *_) = analyse([path]).measures.findings
    key = survey.digest(path)
    told = [next(survey.rows(path, {(key, code): "right"}))["judged"] for code in (first.code, "another")]
    assert told == ["right", ""]
