"""`fit`, `evaluate` and `predict` as Keras has them, over all ranks: steps one after the other, callbacks, logs."""
