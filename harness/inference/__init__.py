"""Runs models for their answers alone: timed on each device, as replicas, and served to a load of requests."""

from __future__ import annotations


def is_file(model: str) -> bool:
    """True if a model is given as a file of its own, not by name."""
    return model.endswith((".keras", ".h5"))
