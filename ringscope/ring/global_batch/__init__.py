"""Losses, metrics and statistics over all samples of a step, as they would be on the ranks' joined batch."""
