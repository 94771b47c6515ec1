"""Options that several verbs share: the settings of a cell, made from profiles.runs.cell.SETTINGS."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from profiles.ground.errors import RingscopeError
from profiles.runs.cell import MOST, SETTINGS
from profiles.runs.setting import Setting
from profiles.verbs.options import Named as Named
from profiles.verbs.options import Number as Number
from profiles.verbs.options import Output as Output
from profiles.verbs.options import Rule as Rule
from profiles.verbs.options import Verb as Verb
from profiles.verbs.options import given as given
from profiles.verbs.options import refuse_ignored as refuse_ignored
from profiles.verbs.options import write_json as write_json

if TYPE_CHECKING:
    from ..jobs.grid import Choices

F = TypeVar("F", bound=Callable[..., Any])
FITS = "  [default: fits the machine]"
# Names of the parameters that describe a cell; a grid also has `scaling`.
OF_A_CELL = frozenset(one.name for one in SETTINGS if not one.derived)
OF_A_GRID = OF_A_CELL | {"scaling"}


def _values(
    setting: Setting, *, single: bool
) -> Callable[[click.Context, click.Parameter, Any], tuple[Any, ...] | None]:
    """A click callback that checks every value: `a,b` -> ("a", "b"), `1,2` -> (1, 2); `help` prints the known
    values. single: accept only one value, and return a tuple of it."""

    def read(context: click.Context, parameter: click.Parameter, value: Any) -> tuple[Any, ...] | None:
        if value is None:
            return None
        known, flag = choices_of(setting, listed=not single), ", ".join(parameter.opts)
        if value == "help" and known:
            click.echo("\n".join(known))
            context.exit()
        words = tuple(part.strip() for part in str(value).split(",") if part.strip())
        if single and len(words) > 1:
            raise RingscopeError(f"{flag} {value}: give one value only; ringscope bench takes lists")
        if setting.is_number:
            return _numbers(words, flag, value, setting, "4" if single else "1,2,4")
        return _names(words, flag, value, known)

    return read


def _numbers(words: tuple[str, ...], flag: str, given: object, setting: Setting, example: str) -> tuple[int, ...]:
    least = setting.least or 0
    try:
        found = tuple(map(int, words))
    except ValueError:
        found = ()
    if not found or min(found) < least:
        form = "a list of whole numbers" if "," in example else "a whole number"
        raise RingscopeError(f"{flag}: {given!r} is not {form} from {least} on; write it as {example}")
    if max(found) > MOST:  # a record with a larger number could not be read back
        raise RingscopeError(f"{flag}: {max(found)} is more than any cell has; give at most {MOST}")
    return found


def _names(words: tuple[str, ...], flag: str, given: object, known: tuple[str, ...]) -> tuple[str, ...]:
    for word in words:
        if known and word not in known:
            raise RingscopeError(f"{flag}: there is no {word!r}; choose from {', '.join(known)}")
    if not words:
        raise RingscopeError(f"{flag}: {given!r} holds no name; choose from {', '.join(known)}")
    return words


def choices_of(setting: Setting, *, listed: bool = False) -> tuple[str, ...]:
    """Every value that a setting can have, with the word for all of them if `listed`; empty if every value is
    allowed."""
    if setting.name == "model":
        from ..jobs.grid import ALL
        from ..training.models import MODELS

        return (*MODELS, *([ALL] if listed else []))
    return setting.choices


def of_a_grid(command: F) -> F:
    """Add a list option for every axis of the grid, and a single-valued option for every other setting."""
    made = [_listed(one) if one.axis else _single(one) for one in SETTINGS if not one.derived]
    scaling = click.option(
        "--scaling",
        type=click.Choice(["weak", "strong"]),
        default="weak",
        show_default=True,
        help="strong: --per-rank-batch is the batch of all ranks together.",
    )
    return together(command, *made, scaling)


def of_one_cell(
    *,
    steps: int = 40,
    least_steps: int = 2,
    warmup: int = 10,
    model_required: bool = False,
    without: Collection[str] = (),
) -> Callable[[F], F]:
    """Add a single-valued option for every setting that is not in `without`."""
    special: dict[str, dict[str, Any]] = {
        "model": {"required": model_required},
        "ranks": {"default": 1, "show_default": True},
        "steps": {"default": steps, "type": click.IntRange(least_steps)},
        "warmup": {"default": warmup},
    }
    made = [
        _single(one, **special.get(one.name, {})) for one in SETTINGS if not one.derived and one.name not in without
    ]
    return lambda command: together(command, *made)


def _listed(setting: Setting) -> Callable[[F], F]:
    return _option([f"--{setting.list_option}"], setting, single=False)


def _single(setting: Setting, **special: Any) -> Callable[[F], F]:
    flags = (["-np"] if setting.name == "ranks" else []) + [f"--{setting.single_option}"]
    if not setting.axis:
        kind = click.IntRange(setting.least) if setting.is_number else str
        plain = {"type": kind, "default": setting.default, "show_default": True}
        return click.option(*flags, setting.name, help=_help(setting), **{**plain, **special})
    return _option(flags, setting, single=True, **special)


def _option(flags: list[str], setting: Setting, *, single: bool, **special: Any) -> Callable[[F], F]:
    fits = FITS if setting.fits and setting.name != "model" else ""
    plain: dict[str, Any] = {
        "type": str,  # otherwise click would infer a number from the default, and refuse a list
        "metavar": ("NUMBER" if setting.is_number else "NAME") + ("" if single else ",..."),
        "show_default": not setting.fits and setting.default is not None,
        "callback": _values(setting, single=single),
        "help": f"{_help(setting)}{fits if single else ''}",
    }
    # with an explicit default of None, click accepts that a required option is missing
    if not setting.fits and setting.default is not None:
        plain["default"] = setting.default
    return click.option(*flags, setting.name, **(plain | special))


def _help(setting: Setting) -> str:
    if setting.name == "model":
        return "Model to train, for example resnet50; `help` lists them."
    return f"{setting.help}{': ' if setting.choices else ''}{', '.join(setting.choices)}."


def choices(chosen: Mapping[str, Any]) -> Choices:
    """The grid that the options ask for."""
    from ..jobs.grid import Choices

    values = {name: chosen[name] for name in OF_A_CELL if chosen.get(name) is not None}
    lists = {name: value if isinstance(value, tuple) else (value,) for name, value in values.items()}
    data = chosen["data"]
    if chosen.get("until"):
        _check_until(chosen["until"], data)
        data = "generated"
        lists["data"] = (data,)
    # an absolute path, since ranks on other hosts may start in another directory
    if data not in ("synthetic", "generated"):
        lists["data"] = (str(Path(data).absolute()),)
    return Choices(lists, chosen.get("scaling", "weak"))


def of_learning(chosen: Mapping[str, Any]) -> list[Rule]:
    """Refusals of options that need --until or generated data."""
    return [
        (not chosen["until"], ("max_epochs",), "works only with --until accuracy=A; add that, or leave it out"),
        (
            not chosen["until"] and chosen["data"] != "generated",
            ("epoch_samples",),
            "is for generated data; add --data generated or --until, or leave it out",
        ),
    ]


def _check_until(until: str, data: str) -> None:
    from profiles.runs.cell import Cell

    try:
        Cell("", 1, 1, until=until).accuracy_wanted  # noqa: B018
    except ValueError:
        raise RingscopeError(f"--until {until}: write it as accuracy=0.95, between 0 and 1") from None
    if data not in ("synthetic", "generated"):
        raise RingscopeError(f"--until has no validation data in {data}; leave --data out, or give --data generated")


def together(command: F, *options: Callable[[F], F]) -> F:
    for option in reversed(options):  # like decorators, the last option is applied first
        command = option(command)
    return command
