"""What each rank executes: models, feeds, strategies and the timed window."""
