"""Train, as each rank does: models, feeds, strategies and the timed window."""
