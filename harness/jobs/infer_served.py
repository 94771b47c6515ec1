"""Requests in batches: start a server for each pair of batching limits, and load it at every rate from another
process."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

from profiles.ground import typed
from profiles.ground.errors import RingscopeError
from profiles.ground.files import text_of, write_whole
from profiles.inference import loads
from profiles.inference.loads import Limits
from profiles.inference.records import Inference

from ..inference import is_file, models, serving
from ..processes.helpers import Helpers
from ..training.models import MODELS
from .infer_steps import LIMIT_S, START_S, Step
from .options import Infer

MODEL = "mlp"
MOST, WAIT_MS, RATES = (1, 8), (1.0, 5.0), (50.0,)
ANSWER_S = 30.0  # seconds after which a request without an answer counts as lost
READY_S = 2.0


def steps(options: Infer, out: Path, found: Inference) -> list[Step]:
    """One step for each server that is started; a single step for a server that already runs."""
    rates = options.rates or RATES
    folder, loading_s = out / "batching", len(rates) * (options.seconds + 2)
    if options.url:
        words = f"{options.url}: {said(rates)}"
        return [
            Step(words, loading_s, partial(ask, options.url, (options.url, ""), None, rates, options, folder, found))
        ]
    return [
        Step(
            f"{model}, {loads.limits_in_words(limits.most, limits.wait_ms)}: {said(rates)}",
            START_S + loading_s,
            partial(serve, model, limits, rates, options, folder, found),
        )
        for model in (options.models or (MODEL,))
        for limits in pairs(options)
    ]


def said(rates: tuple[float, ...]) -> str:
    return f"{', '.join(f'{rate:g}' for rate in rates)} requests/s"


def pairs(options: Infer) -> list[Limits]:
    """Every limit on the batch with every waiting time; a batch of 1 never waits, so it occurs once."""
    waits = options.wait_ms or WAIT_MS
    return [Limits(most, wait) for most in options.most or MOST for wait in (waits if most > 1 else (0.0,))]


def serve(model: str, limits: Limits, rates: tuple[float, ...], options: Infer, folder: Path, found: Inference) -> None:
    """Start a server, load it at each rate, and end it. Raises RingscopeError if it does not start."""
    name = models.named(model)
    folder = folder / f"{name}-{limits.most}-{limits.wait_ms:g}ms"
    folder.mkdir(parents=True, exist_ok=True)
    server = serving.SERVERS[options.server]
    prepare(model, folder, saved=options.server == "tfserving")
    with Helpers() as helpers:
        start = server.start(model, limits, folder)
        helpers.start(start.argv, folder / "server.log")
        helpers.until(lambda: answers(start.ready_url), LIMIT_S, f"--server {options.server}")
        ask(start.url, (options.server, name), limits, rates, options, folder, found, server.rule)


def prepare(model: str, folder: Path, *, saved: bool) -> None:
    """Write made-up samples of the model's input and, if `saved`, a SavedModel. Raises RingscopeError."""
    if not saved and not is_file(model):
        spec = MODELS[model]
        write_whole(folder / "samples.json", models.instances(spec.input_shape, "float32"))
        return
    words = [model, str(folder / "model"), str(folder / "samples.json"), "saved-model" if saved else "samples"]
    with Helpers() as helpers:
        helpers.start([sys.executable, "-m", "harness.inference.export", *words], folder / "export.log")
        helpers.ended(LIMIT_S, f"{model}: Keras")


def answers(url: str) -> bool:
    """True if a server says that it is ready."""
    try:
        with urllib.request.urlopen(url, timeout=READY_S) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def ask(
    url: str,
    of: tuple[str, str],
    limits: Limits | None,
    rates: tuple[float, ...],
    options: Infer,
    folder: Path,
    found: Inference,
    rule: str | None = None,
) -> None:
    """Load a server at each rate and add the results as rows to `found`. of: names of the server and its model. limits:
    None if ringscope does not set the server's limits."""
    folder.mkdir(parents=True, exist_ok=True)
    samples = folder / "samples.json"
    if options.instance is not None:
        write_whole(samples, json.dumps({"instances": [instance(options.instance)]}))
    for rate in rates:
        plan, out = folder / f"load-{rate:g}.plan.json", folder / f"load-{rate:g}.json"
        asked = {"url": url, "per_s": rate, "seconds": options.seconds, "seed": options.seed, "limit_s": ANSWER_S}
        write_whole(plan, json.dumps(asked | json.loads(samples.read_text())))
        out.unlink(missing_ok=True)
        with Helpers() as helpers:
            argv = [sys.executable, "-m", "harness.inference.load", str(plan), str(out)]
            helpers.start(argv, folder / f"load-{rate:g}.log")
            helpers.ended(options.seconds + ANSWER_S + LIMIT_S, f"the load of {rate:g} requests/s")
        told = json.loads(out.read_text())
        row = loads.served(loads.from_json(told), server=of[0], model=of[1], limits=limits, asked_per_s=rate, rule=rule)
        found.served.append(row)
        for why, count in told["errors"].items():
            found.failures.append({"what": f"{count} of {row.requests} requests at {rate:g} a second", "why": why})


def instance(path: Path) -> object:
    """Read the sample in a file. Raises RingscopeError."""
    try:
        return typed.loads(text_of(path))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise RingscopeError(
            f"--instance {path}: does not hold one sample as JSON: {why}; write one, such as [0.1, 0.2]"
        ) from None
