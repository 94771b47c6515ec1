"""`python -m harness.launch.gloo WORDS...`: `horovodrun --gloo`, whose ranks start after 4 s less of CPU time.

horovodrun imports TensorFlow only to ask whether Horovod has Gloo. `bench` has asked before, and in a Horovod without
Gloo the ranks fail with a clear error.

horovodrun also puts its environment on each rank's command line, which anybody can read and which may hold 128 KiB at
most. With --here as the first word, the command line gets only the variables that training needs, and ranks on this
host inherit the others.
"""

from __future__ import annotations

import os
import re
import sys

from horovod.runner import launch
from horovod.runner.common.util import env

from .environment import passes

if __name__ == "__main__":
    if sys.argv[1] == "--here":
        del sys.argv[1]
        env.IGNORE_REGEXES |= {f"{re.escape(name)}$" for name in os.environ if not passes(name)}
    launch.gloo_built = lambda verbose=False: True
    sys.argv[0] = "horovodrun"
    try:
        launch.run_commandline()
    # ranks failed; their own output says why, and a traceback would say no more
    except RuntimeError as error:
        if "non-zero status" not in str(error):
            raise
        sys.exit(" ".join(str(error).split()))
