"""What is here, does it work, and do the ranks really train together."""
