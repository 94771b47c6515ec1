"""Summarise many GPUs in a few rows, and cut an analysis down to some of its GPUs."""
