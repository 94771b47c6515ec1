"""`python scripts/plain_words.py` names sentences that people have to read twice, in errors, findings, doubts and help.

It looks for five shapes that readers stumbled over, and for a value that an f-string without its f does not fill in, in
each string of five words or more that is no docstring; and in docstrings for a first word that makes a clause or a
question of the subject.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHAPES = {
    "name the thing, not `those of`": re.compile(r"\bthose (of|that|which|with|in|on)\b", re.IGNORECASE),
    "give the number or name it, not `so many`": re.compile(r"\bso (many|much|few)\b(?! (as|that))", re.IGNORECASE),
    "begin with the subject, not with `Of a ...:`": re.compile(r"^Of (a|an|the|each|all|several)\b"),
    "begin with `For example`, not `Such as`": re.compile(r"^Such as\b"),
    "say `because of`, `the one that`, `anybody who`": re.compile(r"\bfor want of\b|\bthat which\b|\bwhoever\b"),
    "begin the string with f, or fill in the value": re.compile(
        r"\{[a-z_][\w.]*(\[['\"]|\(| [-+*/] |:[.,]?\d*[defgs%]\})"
    ),
}

CLAUSE = re.compile(r"(What|Whether|Where|How|Which|Who|Why|When|Is|Are|Does|Has|Have|Of|Those|From now)\b")
SUBJECT_FIRST = "begin with `True if` (a bool), with a noun (a value) or with a verb (an action)"


def texts(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each string of a module that is no docstring; of an f-string its constant parts."""
    tree = ast.parse(source)
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (alone | parts):
            yield node.lineno, node.value


def clauses(source: str) -> Iterator[tuple[int, str]]:
    """(line, first line) of each docstring that begins with a clause."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node)
        if text and CLAUSE.match(text):
            yield node.body[0].lineno, text.splitlines()[0]


def found() -> list[str]:
    """`file:line: what to do: text` of each text that has one of the shapes."""
    of_docstrings = [
        f"{path.relative_to(ROOT)}:{line}: {SUBJECT_FIRST}: {text}"
        for top in ("harness", "profiles", "ringscope")
        for path in sorted((ROOT / top).rglob("*.py"))
        for line, text in clauses(path.read_text())
    ]
    return of_docstrings + [
        f"{path.relative_to(ROOT)}:{line}: {remedy}: {' '.join(text.split())}"
        for top in ("harness", "profiles", "ringscope")
        for path in sorted((ROOT / top).rglob("*.py"))
        for line, text in texts(path.read_text())
        if len(text.split()) >= 5
        for remedy, shape in SHAPES.items()
        if shape.search(text.strip())
    ]


if __name__ == "__main__":
    sys.exit("\n".join(found()) or 0)
