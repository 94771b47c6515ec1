"""Restart the script, in its process, once a rank is lost."""
