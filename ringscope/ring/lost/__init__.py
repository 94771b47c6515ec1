"""Restart the script, in the same process, once a rank is lost."""
