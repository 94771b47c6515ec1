"""`python -m harness.inference.export MODEL DIR SAMPLES.json SERVED`: a model's made-up samples, and what serves it.

SAMPLES.json gets {"instances": [sample, ...]}. With SERVED `saved-model`, DIR/1 becomes a SavedModel for TensorFlow
Serving; with `samples` nothing but the samples is written.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from profiles.files import write_whole

from . import models

SAMPLES = 8  # different ones: an answer that went to another request shows


def main(name: str, folder: str, out: str, served: str) -> int:
    loaded = models.load(name)
    if served == "saved-model":
        loaded.model.export(str(Path(folder) / "1"), verbose=False)
    instances = models.samples(loaded.input_shape, loaded.input_dtype, SAMPLES)
    write_whole(Path(out), json.dumps({"instances": instances.tolist()}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
