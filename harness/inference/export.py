"""`python -m harness.inference.export MODEL DIR SAMPLES.json SERVED`: write random samples for a model and, if asked
for, a SavedModel.

SAMPLES.json gets {"instances": [sample, ...]}. If SERVED is `saved-model`, DIR/1 becomes a SavedModel for TensorFlow
Serving; if it is `samples`, only the samples are written.
"""

from __future__ import annotations

import sys
from pathlib import Path

from profiles.ground.files import write_whole

from . import models


def main(name: str, folder: str, out: str, served: str) -> int:
    loaded = models.load(name)
    if served == "saved-model":
        loaded.model.export(str(Path(folder) / "1"), verbose=False)
    write_whole(Path(out), models.instances(loaded.input_shape, loaded.input_dtype))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
