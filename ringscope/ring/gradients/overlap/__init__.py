"""Gradients that are exchanged while the program that computes them runs."""
