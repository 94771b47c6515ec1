"""Options that several verbs share: where ranks are started, by which launcher, and where their files go."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import click

from profiles.ground.errors import RingscopeError

from .options import F, Named, Number, Rule, together

if TYPE_CHECKING:
    from ..jobs.options import Launch


def of_a_launch(*launchers: str) -> Callable[[F], F]:
    """Add options that say where and how ranks are started, their time limits, and where their files go."""
    passed_on = ", or to the batch system" if "slurm" in launchers else ""
    seconds: dict[str, Any] = {"type": Number(1), "show_default": True}
    path = Named()
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
    return lambda command: together(command, *options)


def of_a_job(command: F) -> F:
    """Add options for a batch system."""
    path = Named(dir_okay=False)
    return together(
        command,
        click.option("--gpu-nodes", is_flag=True, help="For a batch system: its nodes have GPUs, this host has none."),
        click.option("--ranks-per-node", type=click.IntRange(1), help="For a batch system: ranks on each node."),
        click.option("--cpus-per-rank", type=click.IntRange(1), help="For a batch system: cores for each rank."),
        click.option(
            "--prologue", type=path, help="For a batch system: file of bash lines to run first (module load ...)."
        ),
        click.option("--volume", metavar="CLAIM", help="For kubeflow: the volume claim that keeps the run directory."),
    )


OF_A_JOB = ("gpu_nodes", "ranks_per_node", "cpus_per_rank", "prologue", "volume")


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


def rules(chosen: Mapping[str, Any]) -> list[Rule]:
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
            OF_A_JOB[:-1],
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
