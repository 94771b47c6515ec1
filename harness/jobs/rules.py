"""Run `rules`: measure every rule of thumb in a process of its own, both ways by turns (docs/guides/rules.md).

`<out>/<rule>/<try>/` holds the files of a rule's worker; a rule with a complete record there is not measured again.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path

from rich.console import Console

from profiles import rules
from profiles.ground import numbers
from profiles.ground.errors import RingscopeError
from profiles.ground.files import write_whole
from profiles.ground.lazy import INTERRUPTED
from profiles.rules import RULES, Found, Rule
from profiles.runs.rank_records import Damaged, read_rank
from profiles.verbs.options import STDOUT, write_json
from profiles.views.files import measured_files
from profiles.views.terminal import rules as view

from .. import launch
from ..machine import describe, nvml
from ..processes.signals import stopped_by_signals
from ..processes.supervise import Limits, Progress, supervise
from . import sweep
from .grid import suits
from .options import Rules
from .progress import told_on
from .run_directory import check_space, new_path, writing

GPU_MODEL, CPU_MODEL = "resnet50", "cnn_cifar"


def main(options: Rules) -> int:
    """Measure the rules; returns the exit code."""
    console = told_on(options.as_json)
    sweep.check_training()
    path = (options.out or new_path()).resolve()
    if (path / "rules.json").exists() and not options.resume:
        raise RingscopeError(f"{path}: holds measured rules already; go on with --resume, or name another --out")
    check_space(path)
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    found, stopped = _measure(options, path, console)
    told = rules.to_json(found, describe.describe(libraries=False))
    text = json.dumps(told, indent=1) + "\n"
    write_whole(path / "rules.json", text)
    if options.as_json != STDOUT:
        view.show(found, console)
    if options.as_json is not None:
        write_json(text, options.as_json)
    if options.html is not None:
        again = ["ringscope", "rules", *options.names, "--resume", "--out", str(path), "--html", str(options.html)]
        measured_files.write_rules(options.html, told, title=path.name, command=again)
    if stopped:
        console.print(f"\ninterrupted; continue with: ringscope rules --resume --out {path}")
        return INTERRUPTED
    return 1 if any(one.verdict == "failed" for one in found) else 0


def _measure(options: Rules, path: Path, console: Console) -> tuple[list[Found], bool]:
    """Measure each rule. Returns the findings, and True if a signal stopped the measuring."""
    gpus = len(nvml.visible_gpus())
    found: list[Found] = []
    took_s: list[float] = []
    console.print(f"{numbers.counted(len(options.names), 'rule')}, into {path}", soft_wrap=True)
    for number, name in enumerate(options.names, 1):
        rule, began = RULES[name], time.monotonic()
        if (done := _kept(path, rule)) is not None:
            found.append(done)
            continue
        if rule.needs_gpu and not gpus:
            found.append(Found(rule, "needs-gpu"))
            console.print(f"{number}/{len(options.names)} {name}: {rules.words(found[-1])}", soft_wrap=True)
            continue
        try:
            with stopped_by_signals():
                found.append(_one(rule, options, path, gpus, console))
        except KeyboardInterrupt:
            return found, True
        took_s.append(time.monotonic() - began)
        left = sum(took_s) / len(took_s) * (len(options.names) - number)
        said = f"{number}/{len(options.names)} {name}: {rules.words(found[-1])}; about {numbers.minutes(left)} left"
        console.print(said, soft_wrap=True)
    return found, False


def _kept(path: Path, rule: Rule) -> Found | None:
    """The finding on the rule that an earlier call recorded; None if there is none."""
    for record in sorted((path / rule.name).glob("*/rank0.jsonl")):
        with contextlib.suppress(Damaged):  # a damaged record is measured again
            return rules.of_record(rule, read_rank(record))
    return None


def _one(rule: Rule, options: Rules, path: Path, gpus: int, console: Console) -> Found:
    """Run a rule's process to its end."""
    number = 0
    while (folder := path / rule.name / str(number)).exists():
        number += 1
    with writing(folder):
        folder.mkdir(parents=True)
    argv = worker(rule.name, options, gpus, folder)

    def make(lifeline: str) -> launch.Job:
        environ = os.environ | {"TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2")}
        return launch.command(argv, ranks=1, launcher="single", environ=environ, lifeline=lifeline, log_dir=folder)

    limits = Limits(time_s=options.time_limit_s, stall_s=options.time_limit_s)
    with console.status(rule.name) as status:

        def moved(progress: Progress) -> None:
            status.update(f"{rule.name}: {progress}")

        outcome = supervise(make, folder, processes=1, limits=limits, on_progress=moved)
    if outcome.status != "ok":
        return Found(rule, "failed", reason=f"{outcome.status}: {outcome.reason}")
    return rules.of_record(rule, read_rank(folder / "rank0.jsonl"))


def worker(rule: str, options: Rules, gpus: int, folder: Path) -> list[str]:
    """The command that measures a rule."""
    model = options.model or (GPU_MODEL if gpus else CPU_MODEL)
    batch = options.batch or suits(model, gpus)["per_rank_batch"][0]
    words = [rule, model, str(batch), str(options.pairs), str(folder)]
    return [sys.executable, "-m", "harness.training.rules.worker", *words]
