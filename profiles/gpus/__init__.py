"""Collect the operations and launch calls of each physical GPU from a set of recordings, on a common clock."""
