"""Check what is here, whether it works, and whether the ranks really train together."""
