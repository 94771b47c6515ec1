"""Describe this machine: GPUs, CPUs, and what the installed libraries say of themselves."""
