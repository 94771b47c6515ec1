"""`ringscope.ring` under its earlier name, for scripts that still import that."""

from ringscope.ring import *  # noqa: F403
