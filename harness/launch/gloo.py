"""`python -m harness.launch.gloo WORDS...`: `horovodrun --gloo` that starts its ranks 4 s of CPU sooner.

horovodrun imports TensorFlow to ask whether Gloo is built. `bench` has asked before, and ranks of a Horovod without it
say so. It also puts its environment on each rank's command line, which anybody can read and 128 KiB fill. With
--here first that is only what training needs: ranks on this host inherit the rest.
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
    except RuntimeError as error:  # of ranks that failed: they have said why, and Horovod's own lines say no more
        if "non-zero status" not in str(error):
            raise
        sys.exit(" ".join(str(error).split()))
