"""Describes this machine: GPUs, CPUs, and the versions of the installed libraries."""
