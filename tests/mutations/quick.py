"""A plugin of pytest: random tests that fail are not made smaller, which takes minutes and is for people."""

from __future__ import annotations

from hypothesis import Phase, settings


def pytest_sessionstart() -> None:
    """After tests/conftest.py has chosen its profile, before any test is read."""
    settings.register_profile("quick", settings.get_profile("alike"), phases=(Phase.explicit, Phase.generate))
    settings.load_profile("quick")
