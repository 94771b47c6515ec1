"""One setting of a cell: help, choices and words for its values. cell.py has the table of all settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """All facts about one field of a cell."""

    help: str  # help text of its option; the choices are appended
    choices: tuple[str, ...] = ()  # every value there is; empty: any word, or any number from `least` on
    least: int | None = None  # the smallest value; None if the setting is not a number
    axis: bool = False  # bench takes a list of values, and makes a cell for each
    option: str = ""  # name of bench's list option, if it is not the field's name
    fits: bool = False  # its default depends on the model and the machine
    title: str = ""  # heading of its column in a page, if not the field's name
    words: str = "{}"  # format of a value outside a table
    one: str = ""  # words for the value 1 outside a table, if `words` does not fit
    unsaid: bool = False  # True: its default is not mentioned
    column: str = "last"  # of results.csv: first (before the numbers), last, or none
    exchangeable: bool = False  # another value of it trains the same model: worth advice
    derived: bool = False  # True: computed from other options; has no option of its own
    digested: bool = True  # True: part of every cell's id; False: only if not the default
    name: str = ""  # the field's name
    default: Any = None

    @property
    def is_number(self) -> bool:
        return self.least is not None

    def said(self, value: Any) -> str:
        """Words for a value outside a table, such as `8 per rank`; empty for a default that is not mentioned."""
        if self.unsaid and value == self.default:
            return ""
        return self.one if self.one and value == 1 else self.words.format(value)

    @property
    def list_option(self) -> str:
        """The option's name on the command line of bench, without the dashes."""
        return self.option or self.single_option

    @property
    def single_option(self) -> str:
        """The option's name on the command lines of train and record, without the dashes."""
        return self.name.replace("_", "-")
