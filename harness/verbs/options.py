"""Options that several verbs share: the settings of a cell, made from profiles.runs.cell.SETTINGS, and of a launch."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from profiles.ground.errors import RingscopeError
from profiles.runs.cell import MOST, SETTINGS
from profiles.runs.setting import Setting
from profiles.verbs.options import Number as Number
from profiles.verbs.options import Output as Output
from profiles.verbs.options import Rule as Rule
from profiles.verbs.options import Verb as Verb
from profiles.verbs.options import given as given
from profiles.verbs.options import refuse_ignored as refuse_ignored
from profiles.verbs.options import write_json as write_json

if TYPE_CHECKING:
    from ..jobs.grid import Choices
    from ..jobs.options import Launch

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
        known, flag = choices_of(setting, listed=not single), parameter.opts[-1]
        if value == "help" and known:
            click.echo("\n".join(known))
            context.exit()
        words = tuple(part.strip() for part in str(value).split(",") if part.strip())
        if single and len(words) > 1:
            raise RingscopeError(f"{flag} {value}: give one value only; ringscope bench takes lists")
        return _numbers(words, flag, value, setting) if setting.is_number else _names(words, flag, value, known)

    return read


def _numbers(words: tuple[str, ...], flag: str, given: object, setting: Setting) -> tuple[int, ...]:
    least = setting.least or 0
    try:
        found = tuple(map(int, words))
    except ValueError:
        found = ()
    if not found or min(found) < least:
        raise RingscopeError(f"{flag}: {given!r} is not a list of whole numbers from {least} on; write it as 1,2,4")
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
    return _together(command, *made, scaling)


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
    return lambda command: _together(command, *made)


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
        lists["data"] = (str(Path(data).resolve()),)
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


def of_a_launch(*launchers: str) -> Callable[[F], F]:
    """Add options that say where and how ranks are started, their time limits, and where their files go."""
    passed_on = ", or to the batch system" if "slurm" in launchers else ""
    seconds: dict[str, Any] = {"type": Number(1), "show_default": True}
    path = click.Path(path_type=Path)
    options = (
        click.option(
            "--launcher",
            type=click.Choice(launchers),
            default=launchers[0],
            show_default=True,
            help="The program or batch system that starts the ranks.",
        ),
        click.option("--launcher-args", default="", help=f"Words passed unchanged to the launcher{passed_on}."),
        click.option("--hosts", help="Hosts and their numbers of ranks, for example a:4,b:4.  [default: this machine]"),
        click.option("--hostfile", type=path, help="Hosts from a file, one per line: a slots=4."),
        click.option("--time-limit", **seconds, default=900, help="Seconds after which a launch is ended."),
        click.option(
            "--stall-limit", **seconds, default=180, help="Seconds without a step, after which a launch is ended."
        ),
        click.option("--env", metavar="NAME", multiple=True, help="Pass this variable to ranks on other hosts, too."),
        click.option(
            "--container", metavar="IMAGE", help="Run ranks in this container: by pyxis under srun, else by Apptainer."
        ),
        click.option("--out", type=path, help="The run directory.  [default: runs/<date>-<host>]"),
    )
    return lambda command: _together(command, *options)


def of_a_job(command: F) -> F:
    """Add options for a batch system."""
    path = click.Path(path_type=Path, dir_okay=False)
    return _together(
        command,
        click.option("--ranks-per-node", type=click.IntRange(1), help="For a batch system: ranks on each node."),
        click.option("--cpus-per-rank", type=click.IntRange(1), help="For a batch system: cores for each rank."),
        click.option(
            "--prologue", type=path, help="For a batch system: file of bash lines to run first (module load ...)."
        ),
        click.option("--volume", metavar="CLAIM", help="For kubeflow: the volume claim that keeps the run directory."),
    )


OF_A_JOB = ("ranks_per_node", "cpus_per_rank", "prologue", "volume")


def launch(chosen: Mapping[str, Any], given: Collection[str]) -> Launch:
    """The launch that the options ask for. Raises RingscopeError."""
    from ..jobs.options import Job, Launch
    from ..launch import hosts
    from ..processes.supervise import Limits

    for option in {"launcher_args", "nsys_args"} & chosen.keys():
        try:
            shlex.split(chosen[option])
        except ValueError as error:
            flag = f"--{option.replace('_', '-')}"
            raise RingscopeError(f"{flag} {chosen[option]}: {error}; quote it as for a shell") from error
    if odd := [name for name in chosen["env"] if not name.isidentifier()]:
        raise RingscopeError(f"--env {odd[0]}: give the name of a variable; ranks get the value that it has here")
    found = hosts.parse(chosen["hosts"]) if chosen["hosts"] is not None else ()
    if chosen["hostfile"]:
        found = hosts.read(chosen["hostfile"])
    return Launch(
        launcher=chosen["launcher"],
        launcher_args=chosen["launcher_args"],
        hosts=found,
        limits=Limits(time_s=chosen["time_limit"], stall_s=chosen["stall_limit"]),
        out=chosen["out"],
        variables=chosen["env"],
        container=chosen["container"],
        job=Job(**{name: chosen.get(name) for name in OF_A_JOB}),
        given=frozenset(given),
    )


def of_the_launcher(chosen: Mapping[str, Any]) -> list[Rule]:
    """Refusals of options of a launch that exclude each other."""
    from ..launch import BATCH

    return [
        (bool(chosen["hostfile"]), ("hosts",), "and --hostfile both name the hosts; give one of them"),
        (
            chosen["launcher"] == "single",
            ("hosts", "hostfile", "launcher_args"),
            "is not for --launcher single, which starts one process here; leave one of them out",
        ),
        (
            chosen["launcher"] not in BATCH and not chosen.get("resume"),
            OF_A_JOB[:3],
            "is for a batch system; name it by --launcher slurm, srun, pbs, lsf or kubeflow",
        ),
        (
            chosen["launcher"] != "kubeflow" and not chosen.get("resume"),
            ("volume",),
            "is for --launcher kubeflow; leave it out",
        ),
        (
            chosen["launcher"] in ("pbs", "lsf", "kubeflow"),
            ("hosts", "hostfile"),
            "is not for a batch system, which chooses the nodes; leave it out",
        ),
        (
            chosen["launcher"] == "kubeflow",
            ("launcher_args",),
            "is not for kubeflow; edit job.json, or give kubectl its own options",
        ),
    ]


def _together(command: F, *options: Callable[[F], F]) -> F:
    for option in reversed(options):  # like decorators, the last option is applied first
        command = option(command)
    return command
