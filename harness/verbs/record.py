"""`ringscope record`: records a cell, or any command, under a profiler."""

from __future__ import annotations

from typing import Any

import click

from profiles.ground.errors import RingscopeError

from . import launch_options, options


@click.command(
    epilog="""\b
Examples:
  ringscope record --model mlp    # a cell of ringscope's own
  ringscope record --model resnet50 -np 4 --feed pinned --step compiled
  # 20 steady steps of your own script
  ringscope record -np 4 -- python my_train.py --epochs 3
  ringscope record -np 4 --steps 50 -- python my_train.py
  # end the training when it is recorded
  ringscope record -np 4 --then stop -- python my_train.py
  ringscope record -np 16 --hosts a:8,b:8 --record-ranks first-per-host \\
      -- python my_train.py
  # each rank that torchrun starts, or srun inside an allocation
  ringscope record -- torchrun --nproc_per_node 4 my_train.py
  ringscope record -- srun -n 8 python my_train.py
  # any command, by time
  ringscope record -np 2 --delay 60 --duration 5 -- ./train.sh
  # which settings around the script make it faster?
  ringscope record -np 2 --apply -- python my_train.py
"""
)
@click.argument("command_line", metavar="[-- COMMAND ...]", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--delay",
    type=options.Number(0),
    default=30,
    show_default=True,
    help="If no step of a command is seen: seconds to wait before recording.",
)
@click.option(
    "--duration", type=options.Number(0.1), default=10, show_default=True, help="If no step is seen: seconds to record."
)
@click.option(
    "--profiler",
    type=click.Choice(["nsys", "nvprof", "framework", "tensorflow"]),
    help="The profiler to record with.  [default: the first that is found]",
)
@click.option(
    "--nsys-args",
    default="",
    help="More options of `nsys profile`, for example --gpu-metrics-devices=all.",
)
@click.option(
    "--keep",
    type=click.Choice(["recordings", "measures"]),
    default="recordings",
    show_default=True,
    help="What to keep; measures: delete the recordings once they are measured.",
)
@click.option(
    "--record-ranks",
    metavar="RANKS",
    default="all",
    show_default=True,
    help="Ranks to record: all, first-per-host, or numbers such as 0,8,16. The other ranks train without a recording.",
)
@click.option(
    "--then",
    type=click.Choice(["train", "stop"]),
    default="train",
    show_default=True,
    help="Once the steps of a command are recorded: train on, or stop it.",
)
@click.option("--apply", is_flag=True, help="Try settings that may make a Python command faster and change no result.")
@options.of_one_cell(steps=12, least_steps=3)
@launch_options.of_a_launch("horovodrun", "mpirun", "single")
@click.pass_context
def command(context: click.Context, /, **chosen: Any) -> None:
    """Record a cell, or any command of yours, one recording per rank, and measure it.

    The profiler is Nsight Systems if it is here, else nvprof, else that of the framework that trains (PyTorch's or
    TensorFlow's). A cell records its timed steps. A Python command that trains by Keras, or by an optimizer of PyTorch,
    is recorded for 20 steady steps (--steps). Any other command is recorded after --delay, for --duration; so is every
    command if you give these without --steps.

    If the command is a launcher itself (torchrun, accelerate launch, deepspeed, srun, mpirun, horovodrun, or a shell
    script that calls one), that launcher starts the ranks, and each of them is recorded. So are ranks that the
    script starts itself (PyTorch: mp.spawn, notebook_launcher, Lightning; JAX: jax.distributed).

    The report is printed when the recording is done; the command then goes on to its own end, or --then stop ends it.

    With --apply nothing is recorded: the script is started many times in a copy of the working directory, by turns
    unchanged and with one setting changed: XLA's flags, variables of NCCL and Horovod, threads, steps_per_execution,
    prefetch or workers. A setting whose gain is larger than the difference between turns, and that trains the same, is
    printed as lines to paste.

    Exit code 0: recorded; 1: the training failed, also after the report; 2: bad input, or nothing was recorded; 130:
    interrupted.
    """
    from harness.doctor import workspace
    from harness.jobs import apply, record
    from harness.jobs.options import Record
    from harness.launch.profilers import Span

    argv = chosen["command_line"]
    what = "a cell (--model resnet50 ...) or a command of yours (-- python my_train.py)"
    if argv and chosen["model"]:
        raise RingscopeError(f"give {what}, not both")
    if not argv and not chosen["model"]:
        raise RingscopeError(f"nothing to record; give {what}")
    options.refuse_ignored(context, [*rules(chosen), *options.of_learning(chosen), *launch_options.rules(chosen)])
    asked = Record(
        launch=launch_options.launch(chosen, options.given(context)),
        choices=None if argv else options.choices(chosen),
        command=argv,
        ranks=chosen["ranks"][0],
        span=Span(chosen["delay"], chosen["duration"], chosen["steps"] if "steps" in options.given(context) else None),
        profiler=chosen["profiler"],
        nsys_args=chosen["nsys_args"],
        keep=chosen["keep"],
        recorded=chosen["record_ranks"],
        stops=chosen["then"] == "stop",
    )
    context.exit(apply.main(asked, workspace.copied) if chosen["apply"] else record.main(asked))


def rules(chosen: dict[str, Any]) -> list[options.Rule]:
    """Refusals of options that would have no effect."""
    is_command = bool(chosen["command_line"])
    return [
        (is_command, options.OF_A_CELL - {"ranks", "steps"}, "is a setting of a cell, not of a command; leave it out"),
        (is_command, ("time_limit", "stall_limit"), "has no effect on a command, which runs to its end; leave it out"),
        (
            not is_command,
            ("delay", "duration", "then"),
            "is for a command; a cell records its timed --steps; leave it out",
        ),
        (not is_command, ("apply",), "is for a command; for a cell: ringscope bench --apply FINDING --of LAUNCH"),
        (
            chosen["apply"],
            (
                "delay",
                "duration",
                "then",
                "profiler",
                "nsys_args",
                "keep",
                "record_ranks",
                "hosts",
                "hostfile",
                "container",
            ),
            "has no effect with --apply, which times steps on this machine; leave it out",
        ),
    ]
