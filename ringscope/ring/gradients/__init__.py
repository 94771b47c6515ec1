"""How gradients are sent between the ranks and joined."""
