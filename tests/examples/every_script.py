"""`every_script.py OUT`, by each rank: the training scripts in one process, since TensorFlow takes seconds to start.

Writes to OUT/rank<k>.json, for each script, its losses, a digest of its weights, and whether `ring` averages.
"""

from __future__ import annotations

import hashlib
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import keras

from ringscope import ring
from tests.docs.blocks import blocks

ROOT = Path(__file__).parents[2]


def main() -> None:
    out = Path(sys.argv[1])
    ring.init()
    (block,) = (block for block in blocks(ROOT / "docs" / "api.md") if "ring.init()" in block.code)
    page = out / f"api-{ring.rank()}.py"
    page.write_text(block.code)
    scripts = [ROOT / "examples" / f"{name}.py" for name in ("keras_fit", "custom_loop", "tfrecords", "elastic")]
    facts = {}
    for script in [*scripts, page]:
        sys.argv = [str(script)]
        keras.utils.set_random_seed(ring.rank())  # ranks that start apart must be brought together
        left = runpy.run_path(str(script), run_name="__main__")
        history: Any = left.get("history", [])
        facts[script.stem.partition("-")[0]] = {
            "losses": getattr(history, "history", {"loss": history})["loss"],
            "weights": digest(left["model"]),
            "seen": ring.is_distributed(left["model"]),
        }
    (out / f"rank{ring.rank()}.json").write_text(json.dumps({"size": ring.size(), "scripts": facts}))


def digest(model: Any) -> str:
    return hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights())).hexdigest()


if __name__ == "__main__":
    main()
