"""The models by name, and the shape of their input."""

from .catalogue import MODELS, Spec, build, compile_model, loss_for, optimizer

__all__ = ["MODELS", "Spec", "build", "compile_model", "loss_for", "optimizer"]
