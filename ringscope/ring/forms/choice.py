"""Forms that are left out: those that the user names, to see what one of them does to a model's numbers or its speed,
and those that this Keras or TensorFlow does not take."""

from __future__ import annotations

import os

from .. import say
from ..internals.seam_table import FORM
from ..internals.seams import missing

WITHOUT = "RINGSCOPE_WITHOUT_FORMS"  # an environment variable: names of forms, with commas between them

dropped: dict[str, str] = {}  # by form: what it raised


def wanted(name: str) -> bool:
    """True if a form of that name is taken."""
    if name in os.environ.get(WITHOUT, "").split(",") or name in dropped:
        return False
    if (lacking := missing(name, FORM)) is not None:
        say.once(lacking.line)
        return False
    return True
