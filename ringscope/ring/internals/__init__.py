"""Everything in ring that depends on internals of TensorFlow, Keras and Horovod."""
