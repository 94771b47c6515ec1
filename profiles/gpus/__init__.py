"""The physical GPUs of a set of recordings: on one clock, each with all that it did, joined with the calls."""
