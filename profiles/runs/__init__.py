"""Describe a training run: its cell, the strategies, and the records that its ranks write."""
