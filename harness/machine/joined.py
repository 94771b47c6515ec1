"""Ranks of PyTorch that a script starts itself, as `mp.spawn`, `notebook_launcher` and Lightning do.

`ringscope record` and `doctor` see one process of such a script: the one that starts its ranks, or one of the ranks. So
each process that joins a larger group than its launcher made writes the size of the group into a file, and the script
is refused.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from profiles.ground.after_import import AfterImport
from profiles.ground.hooked import after

from . import ranks

VARIABLE = "RINGSCOPE_JOINED"  # names the folder of the file; hook/sitecustomize.py looks for the same name
_FILE = "joined"
_HOOK = Path(__file__).parents[1] / "launch" / "hook"  # holds sitecustomize.py, which calls `begin`


def watch(folder: Path) -> None:
    """Watch this process and the Python processes that it starts."""
    os.environ[VARIABLE] = str(folder)
    os.environ["PYTHONPATH"] = ":".join(filter(None, (str(_HOOK), os.environ.get("PYTHONPATH"))))
    begin()


def begin() -> None:
    """Watch this process."""
    watched = functools.partial(_watch, Path(os.environ[VARIABLE], _FILE))
    sys.meta_path.insert(0, AfterImport(["torch.distributed.distributed_c10d"], watched))


def started(folder: Path) -> int:
    """The number of ranks that the script has started itself; 0 if none is known."""
    try:
        return int((folder / _FILE).read_text())
    except (OSError, ValueError):  # there is no such file, or its number is still to be written
        return 0


def refusal(count: int, verb: str) -> tuple[str, str]:
    """(what is wrong with a script that starts `count` ranks itself, what to do for `ringscope VERB`)."""
    return (
        f"the script trains on {count} ranks that it starts itself (as mp.spawn, notebook_launcher and Lightning do), "
        "and ringscope cannot look into them",
        f"let torchrun start them: ringscope {verb} -- torchrun --nproc-per-node {count} SCRIPT; in place of mp.spawn "
        'the script then calls its function, with int(os.environ["RANK"])',
    )


def _watch(file: Path, groups: Any) -> None:
    def joined(*_: Any, **__: Any) -> None:
        # a process started by multiprocessing has inherited its launcher's variables from its parent
        launched = 1 if multiprocessing.parent_process() else ranks.size()
        if (count := groups.get_world_size()) > launched:
            with suppress(OSError):
                file.write_text(str(count))

    after(groups, "init_process_group", joined)
