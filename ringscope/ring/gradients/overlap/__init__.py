"""Exchange gradients while the program that computes them still runs."""
