"""`ringscope.ring` by its earlier name, for scripts that import it."""

from ringscope.ring import *  # noqa: F403
