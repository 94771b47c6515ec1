"""The command `ringscope`: the harness's own verbs, and the verbs of `profiles` beside them."""

from __future__ import annotations

from profiles.ground.lazy import LazyGroup, run
from profiles.verbs import VERBS as PROFILE_VERBS

from . import VERBS

HELP = """Why are N GPUs not N times faster, and what do I change?

\b
  ringscope doctor                   # what is here, and does it work
  ringscope bench --ranks 1,2        # how does this machine scale
  ringscope timeline report.sqlite   # where the time of every GPU went
"""


def main() -> None:
    run(LazyGroup(name="ringscope", verbs={**VERBS, **PROFILE_VERBS}, help=HELP))
