"""The launcher `single`: one process, which is one rank or drives all GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from .hosts import Host


def argv(
    rank_argv: Sequence[str], *, ranks: int, hosts: Sequence[Host], env: dict[str, str], launcher_args: Sequence[str]
) -> list[str]:
    """The rank's own command, unchanged."""
    return list(rank_argv)
