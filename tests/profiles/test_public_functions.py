"""`import profiles`: its public functions and types, for people, `dir()` and type checkers."""

from __future__ import annotations

import subprocess
import sys

import pytest

import profiles


def test_every_public_name_is_there_and_dir_shows_no_other():
    assert dir(profiles) == sorted(profiles.__all__)
    assert all(getattr(profiles, name) is not None for name in profiles.__all__)
    with pytest.raises(AttributeError, match="module 'profiles' has no attribute 'analyze'"):
        profiles.analyze  # type: ignore[attr-defined]  # noqa: B018


def test_importing_it_loads_nothing_heavy():
    heavy = "import sys, profiles; print(sorted({'numpy', 'pandas', 'pyarrow', 'click', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
