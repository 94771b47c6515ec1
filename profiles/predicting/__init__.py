"""Predict throughput and step time on more GPUs and hosts than were measured."""
