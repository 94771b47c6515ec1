"""Write docs/reference/command-line.md from the commands themselves: `python scripts/command_line_page.py`.

A test compares the page with what this would write.
"""

from __future__ import annotations

import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "command-line.md"
HEAD = """# Command line

<!-- Written by scripts/command_line_page.py from the commands themselves: change their help, not this page. -->

`ringscope VERB --help` shows the same. `ringscope --version` shows the versions of ringscope, Python and the platform.
`python -m harness` is the same command. `python -m profiles` has only the verbs that read, and needs no TensorFlow.

An error is one line on stderr that says what is wrong, where, and what to do. Its exit code is 2, never 1: some verbs
give 1 a meaning of their own. A pipe that nobody reads any more (`| head -1`) ends a verb quietly, with 141.
"""


def page() -> str:
    """The page's text."""
    from harness.verbs import VERBS as HARNESS
    from profiles.ground.lazy import LazyGroup
    from profiles.verbs import VERBS as PROFILES

    group = LazyGroup(name="ringscope", verbs={**HARNESS, **PROFILES})
    context = click.Context(group, info_name="ringscope")
    verbs = [(name, group.get_command(context, name)) for name in group.list_commands(context)]
    rows = [f"| [`{name}`](#{name}) | {_cell(group.verbs[name][1])} |" for name, _ in verbs]
    index = "\n".join(["| verb | does |", "|---|---|", *rows])
    return "\n".join([HEAD, index, *(_verb(name, verb, context) for name, verb in verbs if verb), ""])


def _verb(name: str, verb: click.Command, parent: click.Context) -> str:
    context = click.Context(verb, info_name=name, parent=parent)
    usage = " ".join(["ringscope", name, *verb.collect_usage_pieces(context)])
    options = [one for one in verb.get_params(context) if isinstance(one, click.Option) and not one.hidden]
    rows = [_row(option, context) for option in options if "--help" not in option.opts]
    table = ["| option | default | does |", "|---|---|---|", *rows, ""] if rows else []
    told = [*_paragraphs(verb.help or ""), *table, *_paragraphs(verb.epilog or "")]
    return "\n".join([f"\n## {name}\n", f"    {usage}\n", *told]).rstrip()


def _row(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    assert record is not None
    text = record[1]
    default = ""
    if found := re.search(r"(\s*\[[^\]]*\])+$", text):
        parts = [part for group in re.findall(r"\[([^\]]*)\]", found[0]) for part in group.split("; ")]
        default = next((part.removeprefix("default: ") for part in parts if part.startswith("default: ")), "")
        rest = [part.replace("x>=", "from ") for part in parts if not part.startswith("default: ")]
        text = text[: found.start()].rstrip() + (f" ({'; '.join(rest)})" if rest else "")
    names = ", ".join(f"`{name}`" for name in _value_named(record[0]).split(", "))
    return f"| {names} | {_cell(default)} | {_cell(text)} |"


def _value_named(option: str) -> str:
    """`--steps INTEGER RANGE` as `--steps N`, `--scaling [weak|strong]` as `--scaling {weak/strong}`: a bar would
    end the cell of the table."""
    option = re.sub(r"INTEGER( RANGE)?|FLOAT( RANGE)?", "N", option)
    return re.sub(r"\[([^\]]*\|[^\]]*)\]", lambda found: "{" + found[1].replace("|", "/") + "}", option)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _paragraphs(text: str) -> Iterator[str]:
    r"""Help as Markdown: a paragraph after `\b` keeps its lines, and indented ones are code."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        lines = paragraph.splitlines()
        if lines[:1] != ["\b"]:
            yield _cell(" ".join(line.strip() for line in lines)) + "\n"
            continue
        for indented, group in itertools.groupby(lines[1:], key=lambda line: line.startswith(" ")):
            kept = textwrap.dedent("\n".join(group))
            yield textwrap.indent(kept, "    ") + "\n" if indented else _cell(" ".join(kept.splitlines())) + "\n"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(page())
