"""How one step runs: compiled or not, with its gradients exchanged and applied."""
