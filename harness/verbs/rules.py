"""`ringscope rules`: measures rules of thumb."""

from __future__ import annotations

from typing import Any

import click

from profiles.ground.errors import RingscopeError
from profiles.rules import LEAST_PAIRS, RULES

from . import options


@click.command(
    cls=options.Verb,
    epilog="""\b
Examples:
  ringscope rules                  # all, 20 s each; on a GPU a minute or two
  ringscope rules help             # their names
  ringscope rules cache prefetch parallel-map --pairs 24
  ringscope rules bfloat16 --model resnet50 --per-rank-batch 256
  # a page of what DIR holds
  ringscope rules --resume --out DIR --html rules.html
""",
)
@click.argument("names", metavar="[RULE ...]", nargs=-1)
@click.option("--model", help="The model for rules that work with any model.  [default: one that fits the machine]")
@click.option(
    "--per-rank-batch", "batch", type=click.IntRange(1), help="Samples per step and rank.  [default: fits the machine]"
)
@click.option(
    "--pairs",
    type=click.IntRange(LEAST_PAIRS),
    default=12,
    show_default=True,
    help="Number of runs with the advice, and as many without it.",
)
@click.option(
    "--time-limit",
    "time_limit_s",
    type=options.Number(1),
    default=300,
    show_default=True,
    help="Seconds allowed for each rule.",
)
@click.option("--out", type=options.Named(), help="The run directory.  [default: runs/<date>-<host>]")
@click.option("--resume", is_flag=True, help="Measure only what --out does not hold yet.")
@click.option("--json", "as_json", type=options.Output(stdout=True), help="Write JSON; - is stdout.")
@click.option("--html", type=options.Output(), help="Write a page: one file.")
@click.pass_context
def command(context: click.Context, /, **chosen: Any) -> None:
    """Measure rules of thumb on this machine: does the advice hold here, and what is it worth?

    Each rule trains by turns with the advice and against it. The report gives the ratio of their samples per second
    with its interval, and says whether the advice holds here. A rule that needs a GPU is not measured without one.

    Exit code 0: measured, whatever came out; 1: a rule failed, with the reason; 2: bad input; 130: interrupted,
    continue with --resume.
    """
    from harness.jobs import rules
    from harness.jobs.options import Rules
    from harness.training.models import MODELS

    for wanted, names in (("help" in chosen["names"], RULES), (chosen["model"] == "help", MODELS)):
        if wanted:
            click.echo("\n".join(names))
            return
    for name, known, what in (
        *((name, tuple(RULES), "rule") for name in chosen["names"]),
        *((name, tuple(MODELS), "model") for name in [chosen["model"]] if name),
    ):
        if name not in known:
            raise RingscopeError(f"there is no {what} {name!r}; choose from {', '.join(known)}")
    options.refuse_ignored(
        context,
        [(not chosen["out"], ("resume",), "works only with --out DIR, the directory of the measured rules; add that")],
    )
    chosen["names"] = tuple(dict.fromkeys(chosen["names"])) or tuple(RULES)
    context.exit(rules.main(Rules(**chosen)))
