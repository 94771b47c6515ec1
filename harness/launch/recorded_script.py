"""Run a Python script and let a profiler record a part of it: some steps, once their time is steady, or some seconds.

python -m harness.launch.recorded_script OPTIONS SCRIPT|-m MODULE ...

OPTIONS are those of recording.py as JSON.
`ringscope record` puts this before a Python command. A script compiles for seconds or for minutes, so no fixed delay
suits every script: steps.py observes the steps instead.
"""

from __future__ import annotations

import os
import sys

from ..machine import joined, ranks, recorded_ranks
from . import script, watched
from .recording import Options


def main() -> None:
    _, text, *words = sys.argv
    options = Options.from_json(text)
    if os.environ.get(recorded_ranks.RECORDED) == "0":
        script.run(words)
        return
    size = ranks.size()
    watched.begin(options, os.environ.get("RINGSCOPE_RANK", "0"), size)
    if size == 1:
        joined.watch(watched.__name__, [text, os.environ.get(recorded_ranks.SAMPLE, recorded_ranks.ALL)])
    failed = True
    try:
        script.run(words)
        failed = False
    except SystemExit as end:
        failed = end.code not in (None, 0)
        raise
    finally:
        # Not in an atexit handler: TensorFlow cannot be loaded there any more, and a thread that tries to ends the
        # process by SIGSEGV.
        watched.end(failed=failed)


if __name__ == "__main__":
    main()
