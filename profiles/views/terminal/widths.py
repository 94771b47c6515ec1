"""Tables and running text on a terminal of any width.

Lines are broken at spaces, never between a number and its unit. Columns that do not fit side by side move to a further
table below, which repeats the key columns (columns that name a row). A key that is too wide has a line of its own above
the row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, TypeAlias

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ...ground import terminals

WHOLE: Final = 18  # lines of a cell up to this width are not broken to make room for other columns
NAMES: Final = 20  # least width of the column that names the rows; with less room columns move to further tables
GAPS: Final = (2, 1)  # spaces between columns: 2, or 1 if only then all columns fit side by side
# A line is not broken between a number and the word after it: `4.712 ms`, `98.1 %`, `2 ranks`.
_NUMBER: Final = re.compile(r"[(\[]?[-+±~<>]*\d[\d.,]*(?<![.,])")
_WORD: Final = re.compile(r"\S+")
# Indent and list mark; continued lines start below the text after them.
_LEAD: Final = re.compile(r" *(?:(?:[•·→-]|->|\d+\.) )?")

Cell: TypeAlias = "str | Text"
Row: TypeAlias = "Sequence[Cell] | Text"


@dataclass(frozen=True, slots=True)
class Column:
    title: str = ""
    right: bool = False  # align right, for numbers


class Prose:
    """Running text, broken into lines that begin `indent` columns from the left. If there are more than `most` lines,
    the first `most` are shown, with … at the end."""

    def __init__(self, text: Cell, style: str = "", *, most: int | None = None, indent: int = 0) -> None:
        self._text = Text(text, style=style) if isinstance(text, str) else text
        self._most = most
        self._indent = indent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        short = terminals.shortened(self._text.plain) if console.is_terminal else self._text.plain
        text = self._text if short == self._text.plain else Text(short, style=self._text.style)
        width = max(options.max_width - self._indent, 1)
        lines = list(broken(text, width))
        if self._most is not None and len(lines) > self._most:
            last = lines[self._most - 1]
            last.truncate(max(0, width - 2))
            lines[self._most - 1 :] = [last.append(" …")]
        for line in lines:
            yield Text(" " * self._indent).append_text(line)


def indented(text: Cell, style: str = "", *, most: int | None = None) -> Prose:
    """Prose that is two columns further right."""
    return Prose(text, style, most=most, indent=2)


class Fitted:
    """A table. Its first `keys` columns name the row; a Text in place of a row spans all columns."""

    def __init__(self, columns: Sequence[Column], rows: Sequence[Row], *, keys: int = 1, style: str = "") -> None:
        self._columns = columns
        self._titles = [Text(column.title, style=style) for column in columns]
        self._rows = [row if isinstance(row, Text) else [_text(cell) for cell in row] for row in rows]
        self._keys = keys
        self._sizes = [self._sized(place) for place in range(len(columns))]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, places = options.max_width, range(len(self._columns))
        for gap in GAPS:
            if self._least(places, gap) <= width:
                yield from self._lines(places, width, gap, self._sizes)
                return
        room = width - self._least(places[1:]) - GAPS[0]
        if self._keys == 1 and room >= NAMES:  # wider names stand above their rows
            yield from self._lines(places, width, GAPS[0], [self._sized(0, room), *self._sizes[1:]])
            return
        for nth, some in enumerate(self._tables(width)):
            if nth:
                yield Text()
            yield from self._lines(some, width, GAPS[0], self._sizes)

    def _tables(self, width: int) -> Iterator[list[int]]:
        """The columns of each table, so that each table fits `width`. Keys wider than half of `width` are in no table:
        they stand above their rows."""
        places = range(len(self._columns))
        keys = places[: self._keys]
        beside = [*keys] if self._least(keys) <= width // 2 else []
        shown: list[int] = []
        for place in places[self._keys :]:
            if shown and self._least([*beside, *shown, place]) > width:
                yield beside + shown
                shown = []
            shown.append(place)
        yield beside + shown

    def _least(self, places: Sequence[int], gap: int = GAPS[0]) -> int:
        return sum(self._sizes[place][0] for place in places) + gap * (len(places) - 1)

    def _sized(self, place: int, at_most: int | None = None) -> tuple[int, int]:
        """The least and the full width of a column. Cells that need more than `at_most` do not count."""
        cells = [row[place] for row in self._rows if not isinstance(row, Text)]
        fitting = [cell for cell in cells if at_most is None or _needs(cell) <= at_most]
        title = self._titles[place]
        most = max([title.cell_len, *(max(cell_len(line) for line in cell.plain.split("\n")) for cell in fitting)])
        least = max([_longest(title), *map(_needs, fitting)])
        return least, most if at_most is None else min(most, max(at_most, least))

    def _lines(
        self, places: Sequence[int], width: int, gap: int, all_sizes: Sequence[tuple[int, int]]
    ) -> Iterator[Text]:
        sizes = _shared([all_sizes[place] for place in places], width - gap * (len(places) - 1))
        columns = [self._columns[place] for place in places]
        if any(column.title for column in self._columns):
            if 0 not in places and self._named(self._titles):
                yield from broken(self._named(self._titles), width)
            yield from _beside([self._titles[place] for place in places], columns, sizes, gap, bottom=True)
        for row in self._rows:
            if isinstance(row, Text):
                yield from broken(row, width)
                continue
            cells = [row[place] for place in places]
            if 0 not in places:
                yield from broken(self._named(row), width)
            elif _needs(cells[0]) > sizes[0]:
                yield from broken(cells[0], width)
                cells[0] = Text()
            yield from _beside(cells, columns, sizes, gap)

    def _named(self, row: Sequence[Text]) -> Text:
        return Text(" " * GAPS[0]).join(cell for cell in row[: self._keys] if cell.plain.strip())


def broken(text: Text, width: int) -> Iterator[Text]:
    """Break a text into lines of at most `width`. Continued lines begin below the text after a list mark; too long
    words are cut."""
    if text.cell_len <= width and "\n" not in text.plain:  # the usual case, kept fast
        yield text
        return
    for line in text.split("\n", allow_blank=True):
        indent = _indent(line)
        indent = indent if indent <= width // 2 else 0
        starts: list[int] = []
        room_from = 0
        for first, last in _pieces(line.plain):
            if last - room_from > width - (indent if starts else 0) and first > indent:
                starts.append(first)
                room_from = first
        for nth, part in enumerate(line.divide(starts)):
            part.rstrip()
            yield from _cut(Text(" " * indent).append_text(part) if nth else part, width, indent)


def _cut(line: Text, width: int, indent: int) -> Iterator[Text]:
    """The line in pieces of at most `width`, if one word is longer than that; later pieces have the same indent."""
    if line.cell_len <= width:
        yield line
        return
    first, *rest = line.divide(range(width, line.cell_len, width - indent))
    yield first
    yield from (Text(" " * indent).append_text(piece) for piece in rest)


def _pieces(line: str) -> Iterator[tuple[int, int]]:
    """Start and end of each piece that is not broken: a word with the numbers before it."""
    first = None
    for word in _WORD.finditer(line):
        first = word.start() if first is None else first
        if not _NUMBER.fullmatch(word.group()):
            yield first, word.end()
            first = None
    if first is not None:
        yield first, len(line.rstrip())


def _needs(cell: Text) -> int:
    """The width that a cell needs if no word, and no line of up to WHOLE characters, is broken."""
    lines = cell.split("\n") if "\n" in cell.plain else [cell]
    return max((_longest(line) if line.cell_len > WHOLE else line.cell_len for line in lines), default=0)


def _longest(line: Text) -> int:
    """The width of the line's indent and its widest unbreakable piece."""
    return _indent(line) + max((last - first for first, last in _pieces(line.plain)), default=0)


def _indent(line: Text) -> int:
    found = _LEAD.match(line.plain)
    return len(found.group()) if found else 0


def _shared(sizes: Sequence[tuple[int, int]], width: int) -> list[int]:
    """Divide `width` among columns of (least, full) widths: each gets its least width, then those that lack least are
    filled first."""
    given = [least for least, _ in sizes]
    room = width - sum(given)
    wanting = sorted(range(len(sizes)), key=lambda place: sizes[place][1] - sizes[place][0])
    for left, place in zip(range(len(wanting), 0, -1), wanting, strict=True):
        more = max(0, min(sizes[place][1] - sizes[place][0], room // left))
        given[place] += more
        room -= more
    # A single column is cut if it is wider than the terminal.
    return [min(one, width) for one in given]


def _beside(
    cells: Sequence[Text], columns: Sequence[Column], sizes: Sequence[int], gap: int, *, bottom: bool = False
) -> Iterator[Text]:
    """The lines of one row. bottom: align cells of fewer lines at the bottom (titles), not at the top."""
    parts = [list(broken(cell, size)) for cell, size in zip(cells, sizes, strict=True)]
    if bottom:
        most = max(map(len, parts))
        parts = [[Text()] * (most - len(lines)) + lines for lines in parts]
    for several in zip_longest(*parts):
        line = Text(no_wrap=True)  # it fits; looking where to wrap it takes an eighth of the time
        for place, (part, column, size) in enumerate(zip(several, columns, sizes, strict=True)):
            part = part or Text()
            space = Text(" " * max(0, size - part.cell_len))
            line.append(" " * gap if place else "")
            line.append_text(space if column.right else part).append_text(part if column.right else space)
        line.rstrip()
        yield line


def _text(cell: Cell) -> Text:
    return Text(cell) if isinstance(cell, str) else cell
