"""The training in each rank: models, feeds, strategies and the timed window."""
