"""One setting of a cell: its help, its choices and the words for its values. cell.py has the table of all settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """All facts about one setting, which is a field of `Cell`."""

    help: str  # help text of the setting's option; the choices are appended
    choices: tuple[str, ...] = ()  # all values; empty: any word, or any number from `least` on
    least: int | None = None  # the smallest value; None if the setting is not a number
    axis: bool = False  # True if bench takes a list of values, and makes a cell for each
    option: str = ""  # name of bench's list option, if it is not the setting's name
    fits: bool = False  # True if its default depends on the model and the machine
    title: str = ""  # heading of the setting's column in a page, if not its name
    words: str = "{}"  # format of a value in text, outside tables
    one: str = ""  # text for the value 1, if `words` does not fit
    unsaid: bool = False  # True if texts do not mention the default
    column: str = "last"  # place of its column in results.csv: first (before the numbers), last, or none
    exchangeable: bool = False  # True if advice may suggest another value: it trains the same model
    derived: bool = False  # True if computed from other options; it has no option then
    digested: bool = True  # True if part of every cell's id; False: only a value other than the default
    name: str = ""  # name of the cell's field
    default: Any = None

    @property
    def is_number(self) -> bool:
        return self.least is not None

    def said(self, value: Any) -> str:
        """Text for a value outside a table, such as `8 per rank`; empty for a default that texts do not mention."""
        if self.unsaid and value == self.default:
            return ""
        return self.one if self.one and value == 1 else self.words.format(value)

    @property
    def list_option(self) -> str:
        """The setting's option on the command line of bench, without the dashes."""
        return self.option or self.single_option

    @property
    def single_option(self) -> str:
        """The setting's option on the command lines of train and record, without the dashes."""
        return self.name.replace("_", "-")
