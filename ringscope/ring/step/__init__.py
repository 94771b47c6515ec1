"""How one step is taken: compiled or not, its gradients exchanged and applied."""
