"""The models by name, and the shape of their input."""

from .catalogue import MODELS, Spec, build, compile_model, loss_for, of_cell, optimizer

__all__ = ["MODELS", "Spec", "build", "compile_model", "loss_for", "of_cell", "optimizer"]
