"""Compare two sets of measures: what changed, and where the time went."""
