"""Tables that cache their columns, for use while a recording is measured.

pandas builds a new Series at each access to a column. Measuring accesses columns some 200 times, which takes a
tenth of the time for a small recording. Only measuring holds these tables, and it never changes them, so no
cached column is out of date.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from .tables import TABLES
from .timeline import Timeline


def made_once(timeline: Timeline) -> Timeline:
    """A copy of the timeline whose tables cache their columns. The given timeline is not changed."""
    table = _table()
    tables = {name: getattr(timeline, name) for name in TABLES}
    return replace(timeline, **{name: table(each) for name, each in tables.items() if not isinstance(each, table)})


@cache
def _table() -> Any:
    import pandas as pd

    class Table(pd.DataFrame):  # type: ignore[misc]
        _internal_names = [*pd.DataFrame._internal_names, "made"]
        _internal_names_set = set(_internal_names)
        made: dict[str, Any]

        def __init__(self, table: Any) -> None:
            super().__init__(table, copy=False)
            self.made = {}

        @property
        def _constructor(self) -> Any:
            return pd.DataFrame  # selections from this table are plain tables of pandas

        def __getitem__(self, key: Any) -> Any:
            if not isinstance(key, str):
                return super().__getitem__(key)
            if key not in self.made:
                self.made[key] = super().__getitem__(key)
            return self.made[key]

    return Table
