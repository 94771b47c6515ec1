"""What several verbs share: options that would be ignored are refused, JSON goes to a file or to the terminal."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import click

from ..errors import RingscopeError

# (whether it applies, parameters that would then be ignored, why and what to do)
Rule = tuple[bool, Collection[str], str]


class Number(click.FloatRange):
    """A number of a range. click lets NaN into every range, and infinities into those without an end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is no number to go by.", param, ctx)
        return found


def given(context: click.Context) -> frozenset[str]:
    """The parameters that the command line names."""
    source = click.core.ParameterSource.COMMANDLINE
    return frozenset(name for name in context.params if context.get_parameter_source(name) is source)


def refuse_ignored(context: click.Context, rules: Iterable[Rule]) -> None:
    """Raise RingscopeError for the first option on the command line that would have no effect."""
    named = given(context)
    for applies, names, why in rules:
        for parameter in context.command.params:
            if applies and parameter.name in names and parameter.name in named:
                raise RingscopeError(f"{parameter.opts[-1]} {why}")


def write_json(text: str, to: Path | str) -> None:
    """To a file, or to the terminal where it is called `-`."""
    from ..files import written_whole

    if str(to) == "-":
        click.echo(text, nl=False)
        return
    with written_whole(Path(to)) as beside:
        beside.write_text(text, encoding="utf-8")
