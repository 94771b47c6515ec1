"""Choose the forms that are left out: forms that the user names, to see their effect on a model's numbers or speed, and
forms that do not work with this Keras or TensorFlow."""

from __future__ import annotations

import os

from .. import say
from ..internals.seam_table import FORM
from ..internals.seams import missing

WITHOUT = "RINGSCOPE_WITHOUT_FORMS"  # environment variable with names of forms, separated by commas

dropped: dict[str, str] = {}  # name of a form that raised an error -> the error


def wanted(name: str) -> bool:
    """True if the form with this name is to be used."""
    if name in os.environ.get(WITHOUT, "").split(",") or name in dropped:
        return False
    if (lacking := missing(name, FORM)) is not None:
        say.once(lacking.line)
        return False
    return True
