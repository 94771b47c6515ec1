"""Checks what is installed here, whether it works, and whether the ranks really train together."""
