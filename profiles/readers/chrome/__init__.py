"""Chrome traces: PyTorch's Kineto and Horovod's timeline."""
