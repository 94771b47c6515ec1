"""More GPUs and hosts than were measured: what they would do."""
