"""Tables of a recording while it is measured: each column is made once.

pandas makes a column anew whenever it is asked for one, and measuring a recording asks some 200 times: a tenth of the
time that a small one takes. Nobody else holds these tables, and none of them is changed, so no column can be old.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from .timeline import TABLES, Timeline


def made_once(timeline: Timeline) -> Timeline:
    """The same recording, in tables that only measuring sees. The timeline given stays as it is."""
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
            return pd.DataFrame  # of some rows or columns

        def __getitem__(self, key: Any) -> Any:
            if not isinstance(key, str):
                return super().__getitem__(key)
            if key not in self.made:
                self.made[key] = super().__getitem__(key)
            return self.made[key]

    return Table
