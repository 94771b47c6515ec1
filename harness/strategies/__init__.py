"""Other ways to spread the work, for comparison."""
