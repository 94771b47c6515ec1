"""Chrome traces: PyTorch's Kineto, AMD's rocprof and Horovod's timeline."""
