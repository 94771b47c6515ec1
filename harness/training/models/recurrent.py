"""Recurrent classifiers: with a cell that cuDNN can run, or with Keras's generic cell, a loop of small kernels."""

from __future__ import annotations

from typing import Any

import keras

from . import Spec

UNITS = 256


def lstm(x: Any, spec: Spec) -> Any:
    """An LSTM, which cuDNN runs on a GPU."""
    return keras.layers.LSTM(UNITS, use_cudnn="auto")(x)


def lstm_generic(x: Any, spec: Spec) -> Any:
    """An LSTM with the generic cell on every device."""
    return keras.layers.LSTM(UNITS, use_cudnn=False)(x)


def gru(x: Any, spec: Spec) -> Any:
    """A GRU, which cuDNN runs on a GPU."""
    return keras.layers.GRU(UNITS, use_cudnn="auto")(x)


def gru_generic(x: Any, spec: Spec) -> Any:
    """A GRU with the generic cell on every device."""
    return keras.layers.GRU(UNITS, use_cudnn=False)(x)
