"""What commands say is plain: no text has a shape that readers stumbled over."""

from __future__ import annotations

import subprocess
import sys

from scripts import plain_words
from tests.recordings import ROOT


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
"""
    seen = [
        (line, shape.pattern)
        for line, text in plain_words.texts(source)
        for shape in plain_words.SHAPES.values()
        if shape.search(text)
    ]
    assert [line for line, _ in seen] == [4, 5, 6, 7, 8]
    assert len({pattern for _, pattern in seen}) == len(plain_words.SHAPES)
