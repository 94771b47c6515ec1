"""Fits and models again and again: python long_use.py OUT FITS MODELS.

Writes OUT/rank<k>.json: after each tenth of the fits, and after each model, without and with a session cleared, the
resident memory in KiB, the descriptors and threads, and how many models and graphs of functions there are.
"""

import ctypes
import gc
import json
import os
import sys
from pathlib import Path

import keras
import numpy as np
from tensorflow.python.framework.func_graph import FuncGraph

from ringscope import ring

ring.init(seed=3)
out, fits, models = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
give_back = ctypes.CDLL(None).malloc_trim  # what is free counts for nothing
x = np.random.normal(size=(16, 4)).astype("float32")


def made() -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return ring.distribute(model)


def held() -> list[int]:
    gc.collect()
    give_back(0)
    status = Path("/proc/self/status").read_text().splitlines()
    resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    alive = [sum(issubclass(type(each), kind) for each in gc.get_objects()) for kind in (keras.Model, FuncGraph)]
    return [resident, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), *alive]


found: dict[str, list[list[int]]] = {"fits": [], "models": [], "cleared": []}
model = made()
for i in range(fits):
    model.fit(x, x[:, :1], batch_size=8, verbose=0)
    if i % (fits // 10) == fits // 10 - 1:
        found["fits"].append(held())
for name in ("models", "cleared"):
    for _ in range(models):
        model = made()
        model.fit(x, x[:, :1], batch_size=8, verbose=0)
        if name == "cleared":
            keras.utils.clear_session()
        found[name].append(held())
(out / f"rank{ring.rank()}.json").write_text(json.dumps(found))
