"""Start a command on every rank: command lines and environments, a module per launcher, and the profilers."""

from .commands import BATCH, HERE, Job, command, keeper, on_backend, worker

__all__ = ["BATCH", "HERE", "Job", "command", "keeper", "on_backend", "worker"]
