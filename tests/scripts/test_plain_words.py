"""Texts of commands are plain: none has a shape that readers stumbled over."""

from __future__ import annotations

import subprocess
import sys

import pytest

from scripts import plain_words
from tests.recordings import ROOT


@pytest.mark.ci
def test_no_text_of_the_commands_has_to_be_read_twice() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "plain_words.py")]
    done = subprocess.run(script, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_each_shape_is_seen_in_strings_and_f_strings_and_not_in_docstrings() -> None:
    source = """
def run(ranks):
    'Of a command: those of all ranks, after so many steps of it.'
    print("Of a command: stop it after the steps")
    print(f"{ranks} ranks hold those of the others now")
    print("it ended after so many steps of training")
    print("Such as these four words")
    print("a rank whoever may have started it")
    print("so many as there are ranks here")
    print(f"{ranks} ranks at most " "{ranks / 2:.1f} ms apart")
    print("ranks that wait most: {ranks['wait']} and others")
    print("steps that were left out: {ranks.warm_up + 1}")
    print("seconds that all of them took: {ranks:.1f}")
    print("a template to fill in later: {ranks} of {count}")
"""
    seen = [
        (line, shape.pattern)
        for line, text in plain_words.texts(source)
        for shape in plain_words.SHAPES.values()
        if shape.search(text)
    ]
    assert [line for line, _ in seen] == [4, 5, 6, 7, 8, 10, 11, 12, 13]
    assert len({pattern for _, pattern in seen}) == len(plain_words.SHAPES)


def test_a_docstring_that_begins_with_a_clause_is_seen() -> None:
    source = """
'What a rank holds.'
class Rank:
    'How far a rank is.'
    def done(self) -> bool:
        'Whether it has ended.'
    def step(self) -> int:
        'Whatever step it is at.'
def ready() -> bool:
    'True if it answers. What it answers is not read.'
"""
    assert [line for line, _ in plain_words.clauses(source)] == [2, 4, 6]
