"""Every `--help` fits a terminal of 80 columns, and its examples can be pasted into a shell."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from harness.verbs import VERBS as HARNESS_VERBS
from harness.verbs.cli import HELP
from profiles.ground.lazy import LazyGroup
from profiles.verbs import VERBS as PROFILES_VERBS

GROUP = LazyGroup(name="ringscope", verbs={**HARNESS_VERBS, **PROFILES_VERBS}, help=HELP)
EXAMPLE = re.compile(r"^ +(?:mpirun -np \d+ )?ringscope (\w+) ?(.*)$", re.M)


def shown(verb: str | None) -> str:
    context = click.Context(GROUP, info_name="ringscope", terminal_width=80)
    if verb is None:
        return GROUP.get_help(context)
    command = GROUP.get_command(context, verb)
    assert command is not None
    return command.get_help(click.Context(command, context, verb, terminal_width=80))


@pytest.mark.parametrize("verb", [None, *GROUP.verbs])
def test_a_help_is_no_wider_than_80_columns(verb: str | None) -> None:
    assert not [line for line in shown(verb).splitlines() if len(line) > 80]


@pytest.mark.parametrize("verb", [None, *GROUP.verbs])
def test_a_help_has_examples_that_can_be_pasted_as_they_stand(verb: str | None) -> None:
    """The verb takes all words before `#`; words of explanation without `#` would go to the user's script."""
    examples = EXAMPLE.findall(re.sub(r" *\\\n *", " ", shown(verb)))
    assert examples
    for name, rest in examples:
        command = GROUP.get_command(click.Context(GROUP), name)
        assert command is not None
        assert "  " not in rest.partition("#")[0].strip(), rest
        command.make_context(name, shlex.split(rest, comments=True))
