"""Run `infer`: options -> processes that compute predictions -> rows -> `inference.json` and the report."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from rich.console import Console

from profiles.doubts import inference as doubts
from profiles.ground import numbers
from profiles.ground.errors import RingscopeError
from profiles.ground.files import write_whole
from profiles.ground.lazy import INTERRUPTED
from profiles.inference import loads
from profiles.inference.records import Inference
from profiles.model.timeline import Doubt
from profiles.verbs.options import STDOUT, write_json
from profiles.views.charts import chart
from profiles.views.files import measured_files
from profiles.views.terminal import inference as view

from ..inference import is_file, serving
from ..machine import describe as machine
from ..machine import nvml
from ..processes.signals import stopped_by_signals
from ..training.models import MODELS
from . import infer_devices, infer_served, infer_together
from .infer_steps import Step
from .options import Infer
from .progress import Steps, told_on
from .run_directory import check_space, new_path, writing
from .sweep import check_training


def main(options: Infer) -> int:
    """Measure what the command line asks for. Returns the exit code."""
    console = told_on(options.json)
    check(options)
    gpus = len(nvml.visible_gpus())
    out = options.out or new_path().with_name(f"{new_path().name}-infer")
    check_space(out)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    found = Inference(machine=machine.describe(libraries=False))
    stopped = measure(options, gpus, out, found, console)
    found.best = loads.best(found.served)
    found.doubts = told(found, options, gpus)
    text = json.dumps(found.to_json(), indent=1) + "\n"
    write_whole(out / "inference.json", text)
    write(found, text, options, out, console)
    if stopped:
        console.print(f"\ninterrupted; the results so far are in {out / 'inference.json'}")
        return INTERRUPTED
    return 1 if found.failures or any(row.lost or row.wrong for row in found.served) else 0


def check(options: Infer) -> None:
    """Raise RingscopeError if a part cannot run here."""
    for model in options.models:
        if is_file(model) and not Path(model).is_file():
            raise RingscopeError(f"--models {model}: no such file; name a .keras file that is there, or a model")
        if not is_file(model) and model not in MODELS:
            raise RingscopeError(f"--models: no {model!r} here; name a .keras file, or one of {', '.join(MODELS)}")
    if options.instance is not None:
        infer_served.instance(options.instance)
    if set(options.parts) - {"batching"} or not options.url:
        check_training()
    if "batching" in options.parts:
        if options.url:
            serving.check_load()
        else:
            serving.check(options.server)


def measure(options: Infer, gpus: int, out: Path, found: Inference, console: Console) -> bool:
    """Run all parts, and add their rows to `found`. True if a signal stopped them."""
    steps = []
    if "devices" in options.parts:
        steps += infer_devices.steps(options, gpus, out, found)
    if "replicas" in options.parts:
        steps += infer_together.steps(options, gpus, out, found)
    if "batching" in options.parts:
        steps += infer_served.steps(options, out, found)
    took = numbers.minutes(sum(step.planned_s for step in steps))
    console.print(f"{numbers.counted(len(steps), 'measurement')}, about {took}, into {out}", soft_wrap=True)
    with Steps([step.planned_s for step in steps], console) as progress:
        try:
            with stopped_by_signals():
                for step in steps:
                    take(step, progress, found, console)
        except KeyboardInterrupt:
            return True
    return False


def take(step: Step, progress: Steps, found: Inference, console: Console) -> None:
    """Run one step. If it fails, its error is recorded and printed, and the next step still runs."""
    progress.begun(step.words)
    began = time.monotonic()
    try:
        step.run()
    except RingscopeError as error:
        found.failures.append({"what": step.words, "why": str(error)})
        console.print(f"{step.words}: {error}", style="red", soft_wrap=True)
    progress.ended(time.monotonic() - began)


def told(found: Inference, options: Infer, gpus: int) -> list[Doubt]:
    """Doubts about the measured numbers."""
    said = []
    if found.calls and not gpus:
        said.append(doubts.no_gpu())
    if any(row.devices == 1 and row.way == "replicas" for row in found.together) and not gpus:
        said.append(doubts.replicas_share_cores())
    late = [row for row in found.served if row.p99_ns is not None and row.late_p99_ns > row.p99_ns * doubts.LATE]
    if late:
        said.append(doubts.load_late(len(late), len(found.served), max(row.late_p99_ns for row in late)))
    few = [row for row in found.served if row.requests < doubts.FEW_REQUESTS]
    if few:
        said.append(doubts.few_requests(len(few), len(found.served), min(row.requests for row in few)))
    if found.served and not options.url:
        said.append(doubts.one_machine())
    return said


def write(found: Inference, text: str, options: Infer, out: Path, console: Console) -> None:
    """Print the report and write the files that the options ask for. text: the report as JSON."""
    if options.json is not None:
        write_json(text, options.json)
    if options.html is not None:
        command = ["ringscope", *sys.argv[1:]]
        measured_files.write_inference(options.html, json.loads(text), title=out.name, command=command)
    if options.charts is not None:
        chart.write(view.charts(found.to_json()), options.charts)
    if options.json != STDOUT:
        view.show(found, str(out), console)
