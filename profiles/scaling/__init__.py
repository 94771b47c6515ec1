"""A sweep's run records become throughput and efficiency with their errors."""
