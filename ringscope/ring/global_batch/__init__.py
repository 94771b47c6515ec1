"""Losses, metrics and statistics over the samples of all ranks in a step (the joined batch), as one process with all of
them would compute."""
