"""Everything that depends on internals of TensorFlow, Keras and Horovod."""
