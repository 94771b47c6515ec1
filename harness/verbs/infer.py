"""`ringscope infer`: measures the cost of inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from profiles.ground.errors import RingscopeError

from . import options

PARTS = ("devices", "replicas", "batching")
_FILE = options.Named()


def _listed(
    convert: Callable[[str], Any], least: float, example: str
) -> Callable[[click.Context, click.Parameter, str | None], tuple[Any, ...]]:
    """A click callback that reads numbers: `1,2` -> (1, 2), each at least `least`; () if the option is not given.
    example: a valid value, for the error."""

    def read(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[Any, ...]:
        try:
            found = tuple(dict.fromkeys(convert(word) for word in value.split(","))) if value is not None else ()
        except ValueError:
            found = (least - 1,)
        if any(not least <= one < float("inf") for one in found):
            raise RingscopeError(f"{parameter.opts[-1]} {value}: write numbers from {least:g} up, such as {example}")
        return found

    return read


def _words(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in value.split(",") if word.strip())) if value else ()


def _models(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    if value == "help":
        from ..training.models import MODELS

        click.echo("\n".join(MODELS))
        context.exit()
    return _words(context, parameter, value)


def _parts(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    found = _words(context, parameter, value)
    if not found or set(found) - set(PARTS):
        raise RingscopeError(f"--parts {value}: choose from {', '.join(PARTS)}")
    return found


@click.command(
    cls=options.Verb,
    epilog="""\b
Examples:
  ringscope infer                      # all three parts, small
  ringscope infer --html infer.html    # and a page of it
  ringscope infer --parts devices --models dense2,resnet50 --batches 1,10,100
  ringscope infer --parts replicas --models my_model.keras --replicas 4
  ringscope infer --parts batching --models my_model.keras --rates 50,200 \\
      --max-batch 1,8,32 --wait-ms 1,2,5,10
  ringscope infer --parts batching --instance sample.json --rates 100 \\
      --url http://host:8501/v1/models/m:predict
""",
)
@click.option("--parts", default=",".join(PARTS), show_default=True, callback=_parts, help="What to measure.")
@click.option(
    "--models",
    metavar="NAME,...",
    callback=_models,
    help=(
        "Models: names (`help` lists them), or .keras files of yours.  [default: names that fit the machine and the "
        "part]"
    ),
)
@click.option(
    "--batches",
    metavar="N,...",
    callback=_listed(int, 1, "--batches 1,10,100"),
    help="Samples in a call; the part replicas uses the largest.  [default: 1,10,100,1000; replicas 32, on GPUs 256]",
)
@click.option(
    "--replicas",
    type=click.IntRange(2),
    help="Number of replicas, and of devices of the one synchronous model.  [default: the GPUs, or 2]",
)
@click.option(
    "--rates",
    metavar="R,...",
    callback=_listed(float, 0.01, "--rates 50,200"),
    help="Requests per second that are sent.  [default: 50]",
)
@click.option(
    "--max-batch",
    "most",
    metavar="N,...",
    callback=_listed(int, 1, "--max-batch 1,8,32"),
    help="Most requests that are computed together in one batch.  [default: 1,8]",
)
@click.option(
    "--wait-ms",
    metavar="T,...",
    callback=_listed(float, 0, "--wait-ms 1,2,5"),
    help="How long a batch waits for more requests, ms.  [default: 1,5]",
)
@click.option(
    "--seconds",
    type=options.Number(0.1),
    default=10.0,
    show_default=True,
    help="Seconds to measure each load and each number of replicas.",
)
@click.option(
    "--server",
    type=click.Choice(["litserve", "tfserving"]),
    default="litserve",
    show_default=True,
    help="The server of the model: LitServe, or TensorFlow Serving where it is installed.",
)
@click.option(
    "--url", help='Use a server that runs already: POST of {"instances": [...]} gives {"predictions": [...]}.'
)
@click.option("--instance", type=_FILE, help="With --url: a JSON file with the sample to send.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed for request arrival times.")
@click.option("--out", type=_FILE, help="A folder for results and logs.  [default: runs/<date>-<host>-infer]")
@click.option("--json", type=options.Output(stdout=True), help="Write JSON; - is stdout.")
@click.option("--html", type=options.Output(), help="Write a page: one file.")
@click.option("--charts", type=options.Output(folder=True), help="Write charts as SVG and PNG.")
@click.pass_context
def command(context: click.Context, /, **chosen: Any) -> None:
    """Measure the cost of a model's inference, and find the best way to serve it here.

    \b
      devices   CPU against GPU over models and batches: from which batch on
                the GPU is faster, and why
      replicas  one independent process per device against one model that
                divides its batch over all devices
      batching  a server that gathers requests into a batch, up to a number
                and a waiting time; requests come at planned times, whether or
                not earlier ones are answered: latency from the planned
                arrival (p50, p99), throughput, and the best limits for each
                rate

    Exit code 0: all measured, no request lost; 1: something failed, or a request was lost or answered wrong; 2: bad
    input; 130: interrupted.
    """
    from ..jobs import infer
    from ..jobs.options import Infer

    options.refuse_ignored(context, rules(chosen))
    if chosen["url"] and chosen["instance"] is None:
        raise RingscopeError("--url needs a sample to send; add --instance FILE, which holds one as JSON")
    context.exit(infer.main(Infer(**chosen)))


def rules(chosen: dict[str, Any]) -> list[options.Rule]:
    """Refusals of options that would have no effect."""
    parts, url = chosen["parts"], chosen["url"]
    of_loads = ("rates", "most", "wait_ms", "server", "url", "instance", "seed")
    return [
        ("batching" not in parts, of_loads, "is for --parts batching; add that, or leave it out"),
        ("replicas" not in parts, ("replicas",), "is for --parts replicas; add that, or leave it out"),
        (parts == ("batching",), ("batches",), "is for the parts devices and replicas; for batching use --max-batch"),
        (parts == ("devices",), ("seconds",), "is for the parts replicas and batching; leave it out"),
        (
            bool(url),
            ("most", "wait_ms", "server"),
            "is for a server that ringscope starts; leave it out with --url",
        ),
        (
            bool(url) and parts == ("batching",),
            ("models",),
            "has no effect with --url, because that server has its own model; leave it out",
        ),
        (not url, ("instance",), "works only with --url; add that, or leave it out"),
        (
            chosen["most"] == (1,),
            ("wait_ms",),
            "has no effect with --max-batch 1: a batch of one waits for nobody; leave it out",
        ),
    ]
