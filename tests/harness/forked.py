"""`python forked.py OUT '[[WORD...], ...]'`: `python -m WORD...` for each, in processes that share TensorFlow's import.

Each is a process of its own from there on: no device, thread or graph is made before it begins. Their output is in
OUT/<number>.log, their exit codes in OUT/codes.json, minus the number of the signal that ended one.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

import horovod.tensorflow  # noqa: F401
import keras  # noqa: F401
import tensorflow  # noqa: F401


def main() -> None:
    out = Path(sys.argv[1])
    codes = []
    for number, words in enumerate(json.loads(sys.argv[2])):
        pid = os.fork()
        if not pid:
            become(out / f"{number}.log", words)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    (out / "codes.json").write_text(json.dumps(codes))


def become(log: Path, words: list[str]) -> None:
    """This process is `python -m words...` from here, with its output in the log. Does not return."""
    file = os.open(log, os.O_CREAT | os.O_WRONLY, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.argv = list(words)
    code = 1
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
