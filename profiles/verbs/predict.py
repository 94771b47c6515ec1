"""`ringscope predict`: predict the throughput of more GPUs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..ground import terminals
from ..ground.errors import RingscopeError
from .options import STDOUT, Named, Number, Output, Verb, refuse_ignored, write_json

if TYPE_CHECKING:
    from ..predicting.throughput import Hosts

_PATH = Named()
_OF_A_NETWORK = ("step_bytes", "overlap")


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the command line; None or () if an option was not given."""

    paths: tuple[Path, ...]
    ranks: str | None
    points: str | None
    network: str | None
    gpus_per_host: int | None
    step_bytes: int | None
    per_rank_batch: int | None
    overlap: float | None
    larger: Path | None
    as_json: Path | None
    charts: Path | None


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  # from a sweep on 1 and more ranks
  ringscope predict runs/20261120-101500-node1 --ranks 8,16
  # from samples/s of anything, by count of GPUs
  ringscope predict --points 1:1492,2:2935 --ranks 16
  ringscope predict --points 8:3936,16:6752 --ranks 128 --gpus-per-host 8
  ringscope predict --points 1:142,2:284,4:569 --ranks 512 \\
      --network 1x25Gb/s,30us --gpus-per-host 4 --step-bytes 95269408 \\
      --per-rank-batch 64
  # from recordings of 1 and of 2 ranks
  ringscope predict one/ two/ --ranks 4,8
  ringscope predict one/ two/ --ranks 8 --measured four/
""",
)
@click.argument("paths", metavar="[RUN | ONE TWO]", nargs=-1, type=_PATH)
@click.option(
    "--ranks", metavar="N,N", help="Numbers of GPUs to predict for.  [default: 2, 4, 8 times the largest measured]"
)
@click.option("--points", metavar="N:X,N:X", help="Samples/s over all GPUs, by count of GPUs.")
@click.option(
    "--network",
    metavar="LxS,T",
    help="Network of a host: links, speed and latency, as 8x200Gb/s,2us; or a file with the times of an all-reduce "
    "between hosts.",
)
@click.option(
    "--gpus-per-host",
    type=click.IntRange(1, 10**6),
    help="GPUs of one host; with more GPUs gradients cross the network.  [default: 8, and a doubt says so]",
)
@click.option("--step-bytes", type=click.IntRange(1, 10**15), help="With --network: bytes of gradients per step.")
@click.option(
    "--per-rank-batch", type=click.IntRange(1, 10**12), help="With --network and --points: samples per GPU and step."
)
@click.option(
    "--overlap",
    type=Number(0, 1),
    help="With --network: the share of the all-reduce that runs beside compute, 0 to 1 (`overlap` in the measures of "
    "a recording).",
)
@click.option("--measured", "larger", type=_PATH, help="With recordings: compare the prediction with this run.")
@click.option("--json", "as_json", type=Output(stdout=True), help="Write JSON; - is stdout.")
@click.option("--charts", type=Output(folder=True), help="Write the curve as SVG and PNG.")
@click.pass_context
def command(context: click.Context, /, **chosen: object) -> None:
    """Predict the throughput of more GPUs.

    RUN is a run directory of a sweep. ONE and TWO are recordings of the same training on 1 and on 2 ranks: from these
    the time per step is predicted, too. Every prediction is an interval, and says what it assumes.
    """
    options = Options(**chosen)  # type: ignore[arg-type]
    recorded = len(options.paths) == 2
    sweep = ("points", "network", "charts", "gpus_per_host", *_OF_A_NETWORK, "per_rank_batch")
    refuse_ignored(
        context,
        [
            (recorded, sweep, "has no effect with recordings; give a run directory, or --points alone"),
            (not recorded, ("larger",), "works only with recordings of 1 and of 2 ranks"),
            (
                options.network is None,
                (*_OF_A_NETWORK, "per_rank_batch"),
                "has no effect without --network; leave it out",
            ),
            (
                options.points is None,
                ("per_rank_batch",),
                "has no effect with a run directory, which knows its batch; leave it out",
            ),
        ],
    )
    if len(options.paths) > 2 or bool(options.paths) == bool(options.points):
        raise RingscopeError(
            "nothing to predict from; name a run directory, recordings of 1 and of 2 ranks, or --points 1:1492,2:2935"
        )
    if recorded:
        if options.ranks is None and options.larger is None:
            raise RingscopeError("nothing to predict; name the ranks, as --ranks 4,8, or a run with --measured")
        _of_recordings(options)
    else:
        _forecast(options)


def _of_recordings(options: Options) -> None:
    import json

    from ..measuring import subject
    from ..predicting import step_time
    from ..views.terminal import predicted_step_time as view
    from ..views.terminal import progress_bar
    from ..views.terminal import recording as terminal

    wanted = _counts(options.ranks)
    with progress_bar.stages() as progress:
        one, two = (subject.load([path], progress=progress) for path in options.paths)
        larger = subject.load([options.larger], progress=progress) if options.larger else None
    found = step_time.outlook(one, two, wanted, larger)
    if options.as_json is None:
        terminal.say(view.text(found))
    else:
        write_json(json.dumps(step_time.to_json(found), indent=1) + "\n", options.as_json)


def _forecast(options: Options) -> None:
    import json

    from ..measuring import subject
    from ..predicting import throughput
    from ..predicting.curve import Point
    from ..views.terminal import predicted_throughput as view

    wanted = _counts(options.ranks)
    hosts = _hosts(options)
    if options.points is not None:
        points = [Point(gpus, rate) for gpus, rate in _points(options.points)]
        found = [throughput.of_points("measured", points, wanted, hosts, options.gpus_per_host)]
    else:
        scaling = subject.load(options.paths).scaling
        if scaling is None:
            raise RingscopeError(f"{options.paths[0]}: no sweep there; name a run directory of ringscope bench")
        found = throughput.of_sweep(scaling, wanted, hosts, options.gpus_per_host)
    if options.charts is not None:
        from ..views.charts import chart

        chart.write([view.chart(found)], options.charts)
    if options.as_json is not None:
        write_json(json.dumps(throughput.to_json(found), indent=1) + "\n", options.as_json)
    if options.as_json != STDOUT:
        view.show(found, terminals.console())


def _hosts(options: Options) -> Hosts | None:
    if options.network is None:
        return None
    from ..predicting.network import measured, network
    from ..predicting.throughput import Hosts

    batch = options.per_rank_batch if options.points is not None else 1  # run directories say the batch of each cell
    if options.gpus_per_host is None or options.step_bytes is None or batch is None:
        needed = "--gpus-per-host, --step-bytes" + (" and --per-rank-batch" if options.points is not None else "")
        raise RingscopeError(f"--network needs {needed} as well; add what is missing")
    # `isfile` is False, and raises nothing, if the text is too long for a file name.
    is_file = os.path.isfile(options.network)
    net = measured(Path(options.network)) if is_file else network(options.network)
    return Hosts(options.gpus_per_host, net, options.step_bytes, batch, options.overlap)


def _counts(text: str | None) -> list[int]:
    try:
        return [int(part) for part in (text or "").split(",") if part.strip()]
    except ValueError:
        raise RingscopeError(f"--ranks {text}: write it as --ranks 4,8") from None


def _points(text: str) -> list[tuple[int, float]]:
    try:
        pairs = [part.split(":") for part in text.split(",")]
        return [(int(gpus), float(rate)) for gpus, rate in pairs]
    except ValueError:
        raise RingscopeError(f"--points {text}: write it as 1:1492,2:2935, samples/s by count of GPUs") from None
