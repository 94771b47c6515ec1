"""Send gradients between the ranks and join them."""
