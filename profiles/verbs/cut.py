"""`ringscope cut`: make a smaller recording from a larger one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ..ground import terminals
from ..ground.errors import RingscopeError
from .options import refuse_ignored


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the command line."""

    path: Path
    output: Path
    steps: str | None = None
    time: str | None = None
    shrink: bool = False
    strip_private: bool = False
    max_size: int | None = None
    no_cache: bool = False


@click.command(
    epilog="""\b
Examples:
  ringscope cut run.sqlite --steps 10:20 -o ten-steps.sqlite
  ringscope cut run.nvvp --time 12.5s:14s -o short.nvvp
  ringscope cut run.sqlite --shrink --strip-private -o share.sqlite
"""
)
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--steps",
    metavar="A:B",
    help="Keep the steps from A up to B, without B; A: goes to the end, :B starts at the beginning.",
)
@click.option(
    "--time", metavar="A:B", help="Keep the time from A to B: 12.5s:14s, or 300ms: (times as in timeline --info)."
)
@click.option("--shrink", is_flag=True, help="Keep only the tables that the measures need.")
@click.option(
    "--strip-private",
    is_flag=True,
    help="Keep only numbers, what GPUs are called, and names of kernels, calls and NVTX ranges, without the folders, "
    "users and addresses in them. Read the names before you publish them.",
)
@click.option("-o", "--output", metavar="NEW", required=True, type=click.Path(path_type=Path), help="The new file.")
@click.option(
    "--max-size",
    metavar="BYTES",
    type=int,
    help="Refuse a compressed file that unpacks to more bytes. [default: 64 GiB]",
)
@click.option("--no-cache", is_flag=True, help="Delete the SQLite export of a .nsys-rep afterwards.")
@click.pass_context
def command(context: click.Context, /, **options: Any) -> None:
    """Write a smaller recording to a new file.

    PATH is an SQLite recording of nsys or nvprof or, if nsys is installed, a .nsys-rep file. PATH is never changed.
    """
    refuse_ignored(context, [(options["time"] is not None, ("steps",), "and --time both say what to keep; give one")])
    write(Options(**options))


def write(given: Options) -> None:
    """Cut one recording into one new file."""
    if given.steps is None and given.time is None and not (given.shrink or given.strip_private):
        raise RingscopeError("nothing to leave out; give --steps, --time, --shrink or --strip-private")
    from ..measuring.cutting import of_steps
    from ..readers import cut, span
    from ..views.terminal import info as recordings
    from ..views.terminal import waiting

    reading: dict[str, Any] = {"max_bytes": given.max_size, "cache": not given.no_cache}
    within = span.parsed(given.time) if given.time is not None else None
    if given.steps is not None:
        within = of_steps(given.path, given.steps, **reading)
    with waiting.progress("writing") as progress:
        rows = cut.write(
            given.path,
            given.output,
            within=within,
            shrink=given.shrink,
            strip_private=given.strip_private,
            progress=progress,
            **reading,
        )
    terminals.echo(recordings.written(given.output, rows))
