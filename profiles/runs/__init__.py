"""Describe a training run: its settings, its strategy for several GPUs, and the records that its ranks write."""
