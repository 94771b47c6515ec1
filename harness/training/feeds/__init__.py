"""Feeds, which bring batches to the device, and the sources of the samples."""

from .to_device import FEEDS, make_source

__all__ = ["FEEDS", "make_source"]
