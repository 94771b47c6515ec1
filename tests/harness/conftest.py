"""What tests of launches share."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.harness.running import kill_all


@pytest.fixture
def mark() -> Iterator[str]:
    """For the variable RINGSCOPE_TEST of a sweep, by which all its processes are found; survivors end with the test."""
    mark = uuid.uuid4().hex
    yield mark
    kill_all(mark)
