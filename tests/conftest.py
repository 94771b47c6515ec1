"""What tests of both packages share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One browser for all tests: playwright starts once a process."""
    with chromium() as found:
        yield found
