"""Ranks of PyTorch or JAX that a script starts itself, as `mp.spawn`, `notebook_launcher` and Lightning do.

ringscope starts one process of such a script. A process of it is known to be a rank once it has joined a group of more
ranks than ringscope has started.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from profiles.ground.after_import import once_imported
from profiles.ground.hooked import after

VARIABLE = "RINGSCOPE_JOINED"  # hook/sitecustomize.py looks for the same name
_HOOK = Path(__file__).parents[1] / "launch" / "hook"  # holds sitecustomize.py, which calls `begin`


def watch(module: str, options: Sequence[str]) -> None:
    """Watch this process and the Python processes that it starts: each that becomes one of several ranks calls
    `has_joined(rank, size, options)` of the module of this name."""
    os.environ[VARIABLE] = json.dumps([module, *options])
    os.environ["PYTHONPATH"] = ":".join(filter(None, (str(_HOOK), os.environ.get("PYTHONPATH"))))
    begin()


def begin() -> None:
    """Watch this process."""
    module, *options = json.loads(os.environ[VARIABLE])

    def tell(rank: int, size: int) -> None:
        if size > 1:
            importlib.import_module(module).has_joined(rank, size, options)

    def of_torch(groups: Any) -> None:
        after(groups, "init_process_group", lambda *_, **__: tell(groups.get_rank(), groups.get_world_size()))

    def of_jax(distributed: Any) -> None:
        # jax.process_index() would open the devices
        state = distributed.global_state
        after(distributed.State, "initialize", lambda *_, **__: tell(state.process_id, state.num_processes))

    once_imported(["torch.distributed.distributed_c10d"], of_torch)
    once_imported(["jax._src.distributed"], of_jax)
