"""Forms: ring's own versions of parts of a Keras model, with which the model is traced for a compiled step."""

from .all_forms import forms

__all__ = ["forms"]
