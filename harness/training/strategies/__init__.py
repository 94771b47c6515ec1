"""Strategies to spread a training over GPUs, a module for each; `trainers` chooses by the strategy's name."""

from .trainers import Trainer, Unsupported, trainer

__all__ = ["Trainer", "Unsupported", "trainer"]
