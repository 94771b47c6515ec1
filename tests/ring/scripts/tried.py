"""What an all-reduce takes, timed as on GPUs, of ranks of which one comes late, and the names by which Horovod knew it.
usage: tried.py OUT"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

LATE_S = 0.5
out = Path(sys.argv[1])
os.environ["HOROVOD_TIMELINE"] = str(out / "timeline.json")

from ringscope import ring  # noqa: E402

ring.init()

from ringscope.ring.gradients.overlap import buckets  # noqa: E402

taken_s = [buckets.all_reduce_s(count) for count in buckets.TRIED_BYTES]
tried_s = buckets._try_s


def late(count: int) -> float:
    time.sleep(LATE_S * ring.rank())
    return tried_s(count)


buckets._try_s = late
found = {"taken_s": taken_s, "of_late_ranks_s": buckets.all_reduce_s(buckets.TRIED_BYTES[0]), "late_s": LATE_S}
(out / f"rank{ring.rank()}.json").write_text(json.dumps(found))
