"""Measure what inference costs: CPU against GPU, replicas against one model, requests gathered into batches."""
