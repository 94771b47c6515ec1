"""Three steps of both ways of every rule, as JSON: rule -> their samples."""

from __future__ import annotations

import json
import sys

from harness.training.rules import Subject, ways
from profiles.judging.rules import RULES

told, out = {}, sys.stdout
for rule in RULES:
    pair = ways(rule, Subject("mlp", 16, gpu=False))
    told[rule] = [pair.against(3), pair.advised(3)]
    sys.stdout = out  # `quiet` prints to a terminal of its own
print("\n" + json.dumps(told))
