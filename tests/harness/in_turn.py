"""`python in_turn.py '[[SCRIPT, WORD...], ...]'`: scripts one after the other in one process, as if each were started.

To start TensorFlow and Horovod takes some seconds, most scripts of tests a fraction of one. Only the first meets a
process in which nothing has been set up.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path


def main() -> None:
    for script, *words in json.loads(sys.argv[1]):
        sys.argv = [script, *words]
        sys.path[0] = str(Path(script).parent)
        print(f"in_turn: {' '.join(sys.argv)}", flush=True)
        runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
