"""Any name takes a time linear in its length: no pattern that names are looked at by goes over one again and again."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pandas as pd
import pytest

from profiles.doubts.recordings import dropped_events
from profiles.gpus import collective_kernels
from profiles.ground.errors import UnreadableRecording
from profiles.ledger import causes, peers
from profiles.metrics import framework, kernels
from profiles.model import names, timeline
from profiles.steps import content, marks
from tests.made.build import Build

from ..profiles.gpus.test_collective_kernels import EXCHANGES, LOCAL, UNKNOWN
from . import limited

# A name of one of these, again and again, makes a pattern go back from its end that has it on both sides of a word.
PARTS = [
    "a", "A", "_", "a_", "1", "_1", "a1_", ".", "a.", "::", "a::", "<", ">", "<>", "(", ")", "#", "[", "]", "/",
    "a/", "/A1", "{", "'", "=", ":", "-", "é", "jit(", "p(", "layer.1", "block", "s_1.", "N1a", "_ZN", "x.1(",
    ",step_num=1", "all_reduce", "nccl_", "ncclallreduce_", "shmem_", "sum_", "f16_", "align4", "fused_",
    "block_", "userbuffers_", "gemm", "fusion", "a2a_", "permute", "batched", "model", "generation", "_Grad/",
    "fetch_next", "Optimizer.1(", "step[", "iteration_", "[clone", " ", ", seq", "\n", "step ", "# ",
]  # fmt: skip
STARTS = [
    "_Z", "_ZN", "void ", "nccl", "jit(", "a:#", "mlx::", "triton_", "x.1(", "userbuffers_", "block_", "step ",
    "layers", "PyTorch", "shmem", "execute_", "# ", "input_", "step[", "[pl][module]", "",
]  # fmt: skip
LENGTH = 60_000  # the square of which takes a minute
LIMIT_S = 20


@pytest.mark.ci
def test_a_long_name_of_any_kind_takes_no_longer_than_others(tmp_path: Path) -> None:
    long = [
        start + (part * (LENGTH // len(part))) + str(number)
        for number, part in enumerate(PARTS)
        for start in [STARTS[number % len(STARTS)]]
    ]
    events = []
    for number, name in enumerate(long):
        at, call = 100 * number, {"correlation": number + 1}
        kernel = call | {"device": 0, "stream": 7}
        events += [
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at, "dur": 3, "tid": 1, "args": call},
            {"ph": "X", "cat": "kernel", "name": name, "ts": at + 5, "dur": 50, "tid": 7, "args": kernel},
            {"ph": "X", "cat": "cpu_op", "name": name, "ts": at - 1, "dur": 10, "tid": 1, "args": {}},
            {"ph": "X", "cat": "user_annotation", "name": name, "ts": at - 2, "dur": 12, "tid": 1, "args": {}},
        ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [{"pid": 1, **event} for event in events]}))
    with limited.started() as ringscope:
        said = ringscope.timeline(path)
    assert said.code == 0 and said.cpu_s < LIMIT_S, said


def patterns() -> dict[str, str]:
    found = {
        "waiting": causes.WAITING_FOR_INPUT,
        "synchronising": causes.SYNCHRONISING,
        "packs": peers._PACKS,
        "content": content.CONTENT_RANGE,
        "optimiser": content.OPTIMISER_KERNEL,
        "may be": collective_kernels._MAY_BE,
        "family": collective_kernels._OF_A_FAMILY,
        "no family": collective_kernels._NOT_OF_ONE,
        "sounds": collective_kernels._SOUNDS,
        "xla": framework._XLA,
    }
    found |= {f"steps {number}": pattern for number, pattern in enumerate(marks.STEPS)}
    return found | {f"group {name}": pattern for name, pattern in kernels.GROUPS.items()}


@pytest.mark.parametrize("pattern", [pytest.param(one, id=name) for name, one in patterns().items()])
def test_many_names_fit_as_each_does_by_itself(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_SHORT", 0)
    dice = random.Random(7)
    words = [*EXCHANGES, *LOCAL, *UNKNOWN, *PARTS, *STARTS, "step 7", "x#step_num=3#", "wait input", "wait input\n", ""]
    many = [*words, *("".join(dice.choices(words, k=3)) for _ in range(2000))]
    index = pd.Index(many, dtype="str")
    assert names.fitting(index, pattern).tolist() == [bool(re.search(pattern, one, re.ASCII)) for one in many]
    assert names.wholly(index, pattern).tolist() == [bool(re.fullmatch(pattern, one, re.ASCII)) for one in many]


def test_more_names_than_memory_has_room_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Build()
    for number in range(10):
        made.kernel(100 * number, 100 * number + 50, f"{number}" * 1000)
    made.timeline()
    monkeypatch.setattr(timeline, "MOST_TEXT", 9_000)
    with pytest.raises(UnreadableRecording, match="distinct names"):
        made.timeline()


def test_a_name_longer_than_any_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Build()
    for number in range(3):
        made.kernel(100 * number, 100 * number + 50, "k" * (1000 + number))
    monkeypatch.setattr(timeline, "LONGEST_NAME", 1002)
    made.timeline()
    monkeypatch.setattr(timeline, "LONGEST_NAME", 1001)
    with pytest.raises(UnreadableRecording, match="a name in the recording is longer"):
        made.timeline()


def test_what_a_recording_tells_of_itself_and_its_gpus_fits_a_line() -> None:
    long = "v" * 1_000_000
    devices = pd.DataFrame({"device": [0], "uuid": long, "bus_id": long, "name": long})
    told = timeline.Recording("a.sqlite", "nsys-sqlite", "nsys", tool_version=long, schema_version=long, host=long)
    found = timeline.make(told, {"devices": devices})
    facts = [found.recording.tool_version, found.recording.schema_version, found.recording.host]
    assert {len(one) for one in [*facts, *found.devices.iloc[0, 1:4]]} == {200}
    assert len(dropped_events(long).text) < 400
