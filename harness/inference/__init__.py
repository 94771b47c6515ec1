"""Runs models for inference: timed on each device, as replicas, and as a server under a load of requests."""

from __future__ import annotations


def is_file(model: str) -> bool:
    """True if a model is given as a file, not by name."""
    return model.endswith((".keras", ".h5"))
