"""Names of ranges and kernels without the folders, addresses and users that some programs write into them.

A name is kept, because measures need it. Words with a slash, a backslash, an at sign or a network address are taken
out of it, but a path's last part stays if it is the name of a file. Two kinds of names have slashes between layers of
a model, and keep them: ranges of XLA's thunks and of ONNX Runtime's operators.
"""

from __future__ import annotations

import re
from typing import Final

# SQLite's GLOB patterns: a name that fits none of them has no word to leave out.
SUSPECT: Final = (r"*[/\@]*", "*[0-9].[0-9]*.[0-9]*.[0-9]*")
LEFT_OUT: Final = "..."
_OF_LAYERS: Final = re.compile(r"Thunk:#.*#|\w+\.\d+\([\w./]*\)")
_LAYERS: Final = re.compile(r"(?![./~])[\w.()\[\]<>-]+(?:/[\w.()\[\]<>-]+)*/?")
_WORD: Final = re.compile(r"""[^\s"'`,;|=#]+""")
_FILE: Final = re.compile(r"[\w+-][\w.+-]*\.[A-Za-z]\w{0,9}(?::\d+)*", re.ASCII)
_FRACTION: Final = re.compile(r"\d+/\d+")
_ADDRESS: Final = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])")
_OF_WINDOWS: Final = re.compile(r"\?[^/\\]*")  # how Visual C++ mangles the name of a function: signs @ are part of it


def without_places(name: str) -> str:
    """The name with each word left out that tells of a folder, a host or a user; a path's last part stays if it is the
    name of a file."""
    name = name.partition("\0")[0]
    if _OF_WINDOWS.fullmatch(name):
        return name
    layers = _OF_LAYERS.fullmatch(name) is not None
    return _WORD.sub(lambda word: _told(word[0], layers), name)


def _told(word: str, layers: bool) -> str:
    if not re.search(r"[/\\@]", word):
        return _ADDRESS.sub(LEFT_OUT, word)
    place = word.lstrip("([{").rstrip(")]}:.")
    opening, _, closing = word.partition(place)
    if _FRACTION.fullmatch(place) or (layers and _LAYERS.fullmatch(word)):
        return word
    last = re.split(r"[/\\]", place)[-1]
    kept = last if "@" not in word and _FILE.fullmatch(last) else LEFT_OUT
    return f"{opening}{kept}{closing}"
