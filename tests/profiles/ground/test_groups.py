"""Groups of equal values against a search for each value."""

from __future__ import annotations

import numpy as np
import pytest

from profiles.ground.groups import by_value


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64])
def test_each_value_has_the_places_at_which_it_stands(kind: type) -> None:
    values = np.random.default_rng(7).integers(-50, 50, 3_000).astype(kind)
    found = dict(by_value(values))
    assert list(found) == sorted(set(values.tolist()))
    for value, rows in found.items():
        assert rows.tolist() == [place for place, one in enumerate(values.tolist()) if one == value]


def test_nothing_has_no_groups() -> None:
    assert not list(by_value(np.empty(0, np.int32)))
