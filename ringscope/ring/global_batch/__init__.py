"""What depends on all samples of a step: losses, metrics and statistics, as they are of the ranks' joined batch."""
