"""The tables of a report, for the page, the Markdown and the terminal: each number carries its JSON pointer.

The tables are built from the JSON document (`ringscope timeline --json`), so they show the numbers that it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...ground import numbers
from ...model.measures import Measures, gpu_titles
from ...model.measures_json import to_json

Json = Mapping[str, Any]
Format = Callable[[Any], str]
Field = tuple[str, str, Format]  # a column's title, the JSON key of its numbers, and the function that formats them


@dataclass(frozen=True, slots=True)
class Cell:
    """A table's cell. at: the JSON pointer of the number that `text` shows; of: the pointer of the divisor, or ""."""

    text: str
    value: float | int | str | None = None
    at: str = ""
    of: str = ""
    look: str = ""  # the owner whose colour views put beside the text
    code: bool = False
    when: tuple[int, int, int] | None = None  # GPU, start and end (ns) of the span to show in the timeline


@dataclass(frozen=True, slots=True)
class Table:
    id: str
    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    keys: int = 1  # number of first columns that name the row

    def numeric(self, column: int) -> bool:
        """True if a column holds a number; every view aligns the column right."""
        return any(isinstance(row[column].value, int | float) for row in self.rows)


@dataclass(frozen=True, slots=True)
class Document:
    """The JSON of a report, whose values are read by JSON pointer."""

    json: Json

    def __getitem__(self, pointer: str) -> Any:
        """The value at a JSON pointer without escapes; None if a value on the pointer's path is null. Raises KeyError
        for an unknown key."""
        value: Any = self.json
        for key in pointer.split("/")[1:]:
            if value is None:
                return None
            value = value[int(key)] if isinstance(value, list) else value[key]
        return value

    @property
    def titles(self) -> list[str]:
        return gpu_titles((gpu["rank"], gpu["device"]) for gpu in self.json["gpus"])

    @property
    def told_at(self) -> str:
        """The JSON pointer of the object that holds findings and doubts: `/summary` if the document has a summary, else
        ""."""
        return "/summary" if "summary" in self.json else ""

    def whose(self, gpu: int) -> str:
        """The title of a finding's GPU."""
        named: str = self["/summary/titles"][gpu] if self.told_at else self.titles[gpu]
        return named

    def number(self, at: str, form: Format, *, of: str = "") -> Cell:
        """The number at the pointer `at`, divided by the number at `of` if given, formatted."""
        value = self[at]
        if of:
            whole = self[of]
            value = value / whole if value is not None and whole else None
        return Cell(form(value), value, at, of)

    def numbers(self, at: str, of_row: Iterable[Field]) -> tuple[Cell, ...]:
        """The formatted numbers of a row whose JSON is at the pointer `at`."""
        return tuple(self.number(f"{at}/{key}", form) for _, key, form in of_row)


def titles(of_row: Iterable[Field]) -> tuple[str, ...]:
    return tuple(title for title, _, _ in of_row)


def document_of(measures: Measures) -> Document:
    return Document(to_json(measures))


def words(text: object, **more: Any) -> Cell:
    shown = numbers.UNKNOWN if text is None or text == "" else str(text)
    return Cell(shown, shown, **more)


def each_gpu(document: Document) -> Iterator[tuple[str, Json, Cell]]:
    """JSON pointer, JSON and name of each GPU."""
    for index, (gpu, title) in enumerate(zip(document.json["gpus"], document.titles, strict=True)):
        yield f"/gpus/{index}", gpu, words(title)
