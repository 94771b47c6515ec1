"""`ringscope cut`: make a smaller recording from a larger one."""

from __future__ import annotations

from pathlib import Path

import click

from ..ground import terminals
from ..ground.errors import RingscopeError
from .options import Named, max_size, no_cache, refuse_ignored


@click.command(
    epilog="""\b
Examples:
  ringscope cut run.sqlite --steps 10:20 -o ten-steps.sqlite
  ringscope cut run.nvvp --time 12.5s:14s -o short.nvvp
  ringscope cut run.sqlite --shrink --strip-private -o share.sqlite
"""
)
@click.argument("path", type=Named())
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
@click.option("-o", "--output", metavar="NEW", required=True, type=Named(), help="The new file.")
@max_size
@no_cache
@click.pass_context
def command(
    context: click.Context,
    /,
    path: Path,
    steps: str | None,
    time: str | None,
    shrink: bool,
    strip_private: bool,
    output: Path,
    max_size: int | None,
    no_cache: bool,
) -> None:
    """Write a smaller recording to a new file.

    PATH is an SQLite recording of nsys or nvprof or, if nsys is installed, a .nsys-rep file. PATH is never changed.
    """
    refuse_ignored(context, [(time is not None, ("steps",), "and --time both say what to keep; give one")])
    if steps is None and time is None and not (shrink or strip_private):
        raise RingscopeError("nothing to leave out; give --steps, --time, --shrink or --strip-private")
    from ..measuring.cutting import of_steps
    from ..readers import cut, span
    from ..views.terminal import info as recordings
    from ..views.terminal import progress_bar

    within = span.parsed(time) if time is not None else None
    if steps is not None:
        within = of_steps(path, steps, max_bytes=max_size, cache=not no_cache)
    with progress_bar.progress("writing") as progress:
        rows = cut.write(
            path,
            output,
            within=within,
            shrink=shrink,
            strip_private=strip_private,
            max_bytes=max_size,
            cache=not no_cache,
            progress=progress,
        )
    terminals.echo(recordings.written(output, rows))
