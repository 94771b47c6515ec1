"""One setting of a cell: its help, choices and words. cell.py has the table of all settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """All facts about one field of a cell."""

    help: str  # of its option; the choices are added
    choices: tuple[str, ...] = ()  # every value there is; empty: any word, or any number from `least` on
    least: int | None = None  # of a number
    axis: bool = False  # bench takes a list of it, and makes a cell of each value
    option: str = ""  # of bench where it takes a list, if it is not the field's name
    fits: bool = False  # its default depends on the model and the machine
    title: str = ""  # over its column in a page, if it is not the field's name
    words: str = "{}"  # a value where it stands alone
    one: str = ""  # 1 where it stands alone, if it is said otherwise
    unsaid: bool = False  # at its default it is not worth a word
    column: str = "last"  # of results.csv: first (before the numbers), last, or none
    exchangeable: bool = False  # another value of it trains the same model: worth advice
    derived: bool = False  # made from other options: none of its own
    digested: bool = True  # part of every cell's id; else only where it differs from the default
    name: str = ""  # of the field
    default: Any = None

    @property
    def is_number(self) -> bool:
        return self.least is not None

    def said(self, value: Any) -> str:
        """A value where it stands alone, such as `8 per rank`; empty for a default that is not worth a word."""
        if self.unsaid and value == self.default:
            return ""
        return self.one if self.one and value == 1 else self.words.format(value)

    @property
    def list_option(self) -> str:
        """Its name on the command line of bench, without the dashes."""
        return self.option or self.single_option

    @property
    def single_option(self) -> str:
        """The same of train and record."""
        return self.name.replace("_", "-")
