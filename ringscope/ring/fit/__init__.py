"""`fit`, `evaluate` and `predict` over all ranks, as Keras defines them: the training loop, callbacks and logs."""
