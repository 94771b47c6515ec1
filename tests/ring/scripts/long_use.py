"""Fits and models again and again: python long_use.py OUT FITS MODELS.

Writes OUT/rank<k>.json: after each fit, and after each model, the resident memory in KiB, the descriptors and threads,
and how many models there are.
"""

import gc
import json
import os
import sys
from pathlib import Path

import keras
import numpy as np

from ringscope import ring

ring.init(seed=3)
out, fits, models = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
x = np.random.normal(size=(16, 4)).astype("float32")


def made() -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return ring.distribute(model)


def held() -> list[int]:
    status = Path("/proc/self/status").read_text().splitlines()
    resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    alive = sum(isinstance(each, keras.Model) for each in gc.get_objects())
    return [resident, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), alive]


found: dict[str, list[list[int]]] = {"fits": [], "models": []}
model = made()
for _ in range(fits):
    model.fit(x, x[:, :1], batch_size=8, verbose=0)
    found["fits"].append(held())
for _ in range(models):
    model = made()
    model.fit(x, x[:, :1], batch_size=8, verbose=0)
    gc.collect()
    found["models"].append(held())
(out / f"rank{ring.rank()}.json").write_text(json.dumps(found))
