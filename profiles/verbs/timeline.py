"""`ringscope timeline`: argument parsing and nothing else."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import click

from ..ground import terminals
from ..ground.errors import NcclLog, RingscopeError
from . import timeline_run
from .options import STDOUT, Named, Output, Rule, Verb, max_size, no_cache, refuse_ignored, strict
from .timeline_run import Options

HELP = """Measure recordings: where every nanosecond of every GPU went.

PATH is a recording of nsys, nvprof, rocprof, Horovod or the profiler of TensorFlow, JAX or PyTorch, compressed or not;
or a directory or a pattern of recordings. Several PATHs are measured together. The format is detected from the
content, not the name.

\b
  ringscope timeline rank0.sqlite rank1.sqlite
  ringscope timeline runs/ --json measures.json --per-step
  ringscope timeline run.sqlite --window capture --json -
  ringscope timeline rank*.sqlite --html page.html --perfetto trace.json.gz
  ringscope timeline runs/ --full
  ringscope timeline runs/ --show operators
  ringscope timeline runs/ --info
  mpirun -np 16 ringscope timeline runs/
  ringscope timeline /local/runs --partial host3.partial
  ringscope timeline host*.partial --html page.html
  ringscope timeline nccl-inspector-unknown-jobid/ --html page.html

Logs of NCCL's Inspector or profiler plugin hold collectives alone, which are shown as tables (also with --html,
--markdown and --json).

Many recordings are measured in processes on all cores. Under mpirun or srun all started processes measure, each the
recordings on its host. If the hosts share neither a disk nor MPI, write a partial file on each host (--partial) and
give all partial files to timeline: the result is the same as from all recordings together.
"""


_FILE, _JSON = Output(), Output(stdout=True)


@click.command(cls=Verb, help=HELP)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=Named(str))
@click.option("--json", "json_to", metavar="FILE", type=_JSON, help="Write the measures as JSON; - is stdout.")
@click.option(
    "--json-summary",
    metavar="FILE",
    type=_JSON,
    help="Write the summary of many GPUs as JSON; - is stdout.",
)
@click.option(
    "--window",
    type=click.Choice(["steps", "capture"]),
    help="What to measure: the whole steps, or the whole recording.  [default: steps if any are found, else capture]",
)
@click.option("--per-step", is_flag=True, help="Also show every step: where its time went, its gaps.")
@click.option(
    "--ranks",
    metavar="N,N",
    callback=lambda _context, _option, text: _numbers(text),
    help="Show these ranks.  [default: all, or only a summary of more than 8 GPUs]",
)
@click.option("--full", is_flag=True, help="Show every number of every GPU, on as many screens as needed.")
@click.option(
    "--show",
    "table",
    metavar="NAME",
    is_flag=False,
    flag_value="",
    is_eager=True,
    callback=lambda context, _option, name: _named(context, name),
    help="Show one table instead, such as operators or kernels; without a name, list the names.",
)
@click.option("--html", metavar="FILE", type=_FILE, help="Write a page: one file that opens anywhere.")
@click.option("--perfetto", metavar="FILE", type=_FILE, help="Write a trace (.json.gz) for ui.perfetto.dev.")
@click.option("--markdown", metavar="FILE", type=_FILE, help="Write verdicts and tables as Markdown.")
@click.option("--charts", metavar="DIR", type=Output(folder=True), help="Write each chart to DIR as SVG and PNG.")
@click.option("--parquet", metavar="FILE", type=_FILE, help="Write the per-step table.")
@click.option(
    "--info", is_flag=True, help="Show the contents of the recordings and the tables that are missing; measure nothing."
)
@max_size
@no_cache
@strict
@click.option(
    "--from-step",
    metavar="N",
    type=click.IntRange(min=0),
    default=0,
    help="Leave out the steps before step N, as warm-up. [default: the longest warm-up found on a GPU]",
)
@click.option(
    "--partial",
    metavar="FILE",
    type=_FILE,
    help="Write this host's measures as a small file; timeline combines the files of all hosts.",
)
@click.option(
    "--processes",
    metavar="N",
    type=click.IntRange(min=1),
    help="Number of processes to measure in.  [default: as many as there are cores and memory for]",
)
@click.pass_context
def command(context: click.Context, /, **options: Any) -> None:
    given = Options(**options)
    refuse_ignored(context, _rules(given))
    if given.info:
        timeline_run.info(given)
    else:
        try:
            timeline_run.measure(given)
        # The paths hold nothing but logs of NCCL; logs beside recordings cause a doubt.
        except NcclLog:
            useless = _shown() - {"html", "markdown"}
            refuse_ignored(context, [(True, useless, "has no effect with logs of NCCL; leave it out")])
            timeline_run.logged(given)


def _shown() -> set[str]:
    others = {"paths", "info", "max_size", "no_cache", "strict", "json_to"}
    return {one.name for one in fields(Options)} - others


def _rules(given: Options) -> list[Rule]:
    shown = _shown() | {"json_to"}
    return [
        (given.info, shown, "has no effect with --info, which measures nothing; leave one of them out"),
        (given.json_to == STDOUT, ("full", "table"), "has no effect with --json -; write JSON to a file"),
        (given.table is not None, ("full",), "has no effect with --show, which shows one table; leave one of them out"),
        (
            given.json_to == given.json_summary == STDOUT,
            ("json_summary",),
            "and --json cannot both go to stdout; write one of them to a file",
        ),
    ]


def _named(context: click.Context, name: str | None) -> str | None:
    """The name of the table to show. If none was given, print the names of all tables and exit."""
    if name is None:
        return None
    from ..views.terminal import named

    if name == "":
        terminals.echo(named.listed())
        context.exit()
    if name not in named.NAMES:
        raise RingscopeError(f"--show {name}: no table has this name; choose from {', '.join(named.NAMES)}")
    return name


def _numbers(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        return tuple(int(one) for one in text.split(","))
    except ValueError as error:
        raise RingscopeError(f"--ranks {text}: give ranks as whole numbers with commas between, as 37,38") from error
