"""Reports on a terminal of any width."""
