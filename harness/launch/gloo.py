"""`python -m harness.launch.gloo WORDS...`: `horovodrun --gloo` that starts its ranks 4 s of CPU time sooner.

horovodrun imports TensorFlow only to ask whether Gloo is built. `bench` has asked before, and a Horovod without Gloo
fails in its ranks with a clear error. horovodrun also puts its environment on each rank's command line, which anybody
can read and which may hold 128 KiB at most. If --here comes first, the command line gets only the variables that
training needs: ranks on this host inherit the others.
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
    # raised if ranks failed; their own output says why, and a traceback would say no more
    except RuntimeError as error:
        if "non-zero status" not in str(error):
            raise
        sys.exit(" ".join(str(error).split()))
