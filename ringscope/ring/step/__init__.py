"""Run one step: compiled or not, with its gradients exchanged and applied."""
