"""Benchmarks of ringscope itself, and generated recordings of any size to run them on."""
