"""Many GPUs in few rows, and a part of them as if there were no others."""
