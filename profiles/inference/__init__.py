"""Measure what inference costs: CPU against GPU, several GPUs against one, single requests against batches."""
