"""How gradients travel between the ranks, and come together."""
