"""Peers: training on other backends of Keras than TensorFlow, a module for each."""

from .backends import train, use

__all__ = ["train", "use"]
