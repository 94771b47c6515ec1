"""The version of ringscope; setup.cfg reads it from here."""

from __future__ import annotations

VERSION = "0.1.0"


def line() -> str:
    """The versions of ringscope and Python, and the platform: what `--version` prints."""
    import platform

    return f"ringscope {VERSION}, Python {platform.python_version()}, {platform.platform()}"
