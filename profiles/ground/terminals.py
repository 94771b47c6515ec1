"""Print text so that a terminal shows it as it is: no control characters, only characters of its encoding.

Names of ranges, kernels, GPUs and files are data, and may hold escape sequences or markup. Everything that is
printed goes through `echo` or a `console` of this module.
"""

from __future__ import annotations

import codecs
import io
import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console

# ASCII characters in place of others, each one column wide so that tables and bars keep their shape.
_INSTEAD: Final = {
    **dict.fromkeys("█▉▊▋▌", "#"),
    **dict.fromkeys("▍▎▏", "-"),
    "░": ".",
    "·": ".",
    "•": "*",
    "→": ">",
    "✓": "+",
    "✗": "x",
    "µ": "u",
    "±": "~",
    "…": ".",
}
_NAME: Final = "ringscope"
_KEPT: Final = "\n\t"
_HALF: Final = 38  # characters kept at each end of a shortened word
_LONG: Final = re.compile(rf"\S{{{2 * _HALF + 2},}}")
_PICTURES: Final = 0x2400  # the first of Unicode's symbols for control characters


def plain(text: str) -> str:
    """The text, in which symbols replace control characters and characters that turn the direction of writing."""
    if text.isprintable():
        return text
    return "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character in _KEPT or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character
    return chr(_PICTURES + ord(character)) if ord(character) < 0x20 else "\N{SYMBOL FOR DELETE}"


def shortened(text: str) -> str:
    """The text for a terminal: words longer than a line, such as long paths, lose their middle."""
    return _LONG.sub(lambda found: f"{found[0][:_HALF]}…{found[0][-_HALF:]}", text)


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text; symbols replace control characters."""
    import click

    click.echo(plain(text), err=err, nl=nl)


@cache
def _plain_console() -> type[Console]:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class PlainConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else segment._replace(text=plain(segment.text))

    return PlainConsole


def console(**options: Any) -> Console:
    """A rich console that prints texts literally: no markup, no emoji, no control characters."""
    return _plain_console()(**{"highlight": False, "markup": False, "emoji": False, **options})


def show_everything(*streams: Any) -> None:
    """Let streams of any encoding (latin-1, ASCII) take any text: `→` becomes `>`, an unknown character `?`. In the C
    locale, Python's streams otherwise take only ASCII and the bytes of file names (`surrogateescape`)."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "backslashreplace", "surrogateescape"):
            stream.reconfigure(errors=_NAME)


def _instead(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_INSTEAD.get(character, "?") for character in lacking), error.end


codecs.register_error(_NAME, _instead)
