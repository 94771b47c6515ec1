"""Forms that are left out, to see what one of them does to a model's numbers or its speed."""

from __future__ import annotations

import os

WITHOUT = "RINGSCOPE_WITHOUT_FORMS"  # an environment variable: names of forms, with commas between them


def wanted(name: str) -> bool:
    """Whether a form of that name is taken."""
    return name not in os.environ.get(WITHOUT, "").split(",")
