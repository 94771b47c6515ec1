"""What ring knows of TensorFlow's, Keras's and Horovod's insides."""
