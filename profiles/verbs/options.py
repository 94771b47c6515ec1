"""Helpers that verbs share: refuse options that would be ignored, write JSON to a file or the terminal, and never
overwrite a command's own input."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import click

from ..ground.errors import RingscopeError

STDOUT: Final = Path("-")
# Suffixes of recordings: a command that reads a directory does not overwrite such files in it.
_RECORDINGS: Final = (".sqlite", ".nsys-rep", ".qdrep", ".nvvp", ".nvprof", ".pb", ".xz", ".zst", ".tar")
# (True if the rule applies, parameters that would then have no effect, the reason and what to do)
Rule = tuple[bool, Collection[str], str]


# Options of the verbs that read recordings.
strict = click.option(
    "--strict", is_flag=True, help="Fail if any recording cannot be read; without it the others are measured."
)
max_size = click.option(
    "--max-size",
    metavar="BYTES",
    type=click.IntRange(min=1),
    help="Refuse a compressed file that unpacks to more bytes. [default: 64 GiB]",
)
no_cache = click.option("--no-cache", is_flag=True, help="Delete the SQLite export of a .nsys-rep afterwards.")


class Number(click.FloatRange):
    """A finite number in a range. click accepts NaN in every range, and infinities in ranges without an end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return found


class Named(click.Path):
    """A path as it was typed, by default a `Path`. An empty one is refused, since it would mean the working directory:
    a script's "$RUN" is empty if nothing sets RUN. Whether the path can be read is said by the code that opens it."""

    def __init__(self, path_type: type[Path] | type[str] = Path, **options: bool) -> None:
        super().__init__(path_type=path_type, readable=False, **options)

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not os.fspath(value):
            self.fail("it is empty (a variable of your shell may not be set)", param, ctx)
        return super().convert(value, param, ctx)


class Output(Named):
    """A file that a command writes, or with `folder` a directory; with `stdout`, `-` means standard output.

    A file in a directory that does not exist is refused before anything is read or trained."""

    def __init__(self, *, folder: bool = False, stdout: bool = False) -> None:
        super().__init__(file_okay=not folder, dir_okay=folder, allow_dash=stdout)
        self.stdout = stdout

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path: Path = super().convert(value, param, ctx)
        if not self.dir_okay and str(value).endswith(os.sep):
            raise RingscopeError(f"{_flag(param)} {value}: a directory; name a file")
        if path == STDOUT:
            if self.stdout:
                return path
            raise RingscopeError(f"{_flag(param)} -: only JSON can go to stdout; name a file")
        if not self.dir_okay and not path.parent.is_dir():
            raise RingscopeError(
                f"{path}: cannot be written: there is no directory {path.parent}; make it, or name another file"
            )
        return path


class Verb(click.Command):
    """A command that refuses to overwrite a file that it was given to read, or to write one file twice."""

    def invoke(self, ctx: click.Context) -> Any:
        written: dict[Path, str] = {}
        for parameter in self.params:
            named = ctx.params.get(parameter.name or "") if isinstance(parameter.type, Output) else None
            for path in named or () if parameter.multiple else (named,):
                if path not in (None, STDOUT):
                    self._refuse(ctx, parameter, path, written)
        return super().invoke(ctx)

    def _refuse(self, ctx: click.Context, parameter: click.Parameter, path: Path, written: dict[Path, str]) -> None:
        flag = _flag(parameter)
        if (other := written.get(path.resolve())) is not None:
            raise RingscopeError(f"{path}: {other} and {flag} cannot write the same file; name two files")
        written[path.resolve()] = flag
        if any(_is_read(path, word) for one in self.params if one is not parameter for word in _words(ctx, one)):
            raise RingscopeError(f"{path}: this command reads that file and does not overwrite it; name another file")


def _flag(parameter: click.Parameter | None) -> str:
    return parameter.opts[-1] if parameter else "output"


def _words(context: click.Context, parameter: click.Parameter) -> Iterator[str]:
    """The values of an option or argument that may name a file to read; none for files that are written."""
    value = context.params.get(parameter.name or "")
    if value is None or isinstance(parameter.type, Output):
        return
    for one in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(one, (str, Path)):
            yield str(one)


def _is_read(path: Path, word: str) -> bool:
    """True if `path` is the file that `word` names, or a recording or record in the directory that it names."""
    from ..runs import written

    try:
        if not path.is_file():
            return False
        if os.path.isdir(word):
            kept = path.suffix in _RECORDINGS or (written.of_a_run(path) and path.name != "measures.json")
            return kept and path.resolve().is_relative_to(Path(word).resolve())
        return os.path.samefile(path, word)
    except (OSError, ValueError):  # `word` is no path, or is too long for one
        return False


def given(context: click.Context) -> frozenset[str]:
    """Names of the parameters that were given on the command line."""
    source = click.core.ParameterSource.COMMANDLINE
    return frozenset(name for name in context.params if context.get_parameter_source(name) is source)


def refuse_ignored(context: click.Context, rules: Iterable[Rule]) -> None:
    """Raise RingscopeError for the first option on the command line that would have no effect."""
    named = given(context)
    for applies, names, why in rules:
        for parameter in context.command.params:
            if applies and parameter.name in names and parameter.name in named:
                raise RingscopeError(f"{parameter.opts[-1]} {why}")


def write_json(text: str, to: Path) -> None:
    """Write JSON to a file, or to the terminal if the path is `-`."""
    from ..ground.files import write_named

    if to == STDOUT:
        click.echo(text, nl=False)
    else:
        write_named(to, text)
