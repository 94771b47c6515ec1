"""Run one train step: compiled or not, with its gradients exchanged and applied."""
