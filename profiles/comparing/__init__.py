"""Two sets of measures beside each other: what changed, and where the time went."""
