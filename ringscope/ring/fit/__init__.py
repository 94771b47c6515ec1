"""`fit`, `evaluate` and `predict` with Keras's meaning, over all ranks: the training loop, callbacks and logs."""
