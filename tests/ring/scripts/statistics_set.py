"""Moving statistics that one rank alone has set, and ones that steps have parted: python statistics_set.py OUT.

Writes OUT/rank<k>.json: what ring said of them, and what was then kept, by name.
"""

import contextlib
import io
import json
import sys
from pathlib import Path

import keras
import numpy as np

from ringscope import ring

ring.init(seed=4)
out, rank = Path(sys.argv[1]), ring.rank()
x, y = np.random.normal(size=(32, 4)).astype("float32"), np.random.normal(size=(32, 1)).astype("float32")
own = slice(rank * 8, rank * 8 + 8)


def made() -> keras.Model:
    hidden = [keras.layers.Dense(3), keras.layers.BatchNormalization(), keras.layers.Dropout(0.2)]
    model = keras.Sequential([keras.Input((4,)), *hidden, keras.layers.Dense(1)])
    model.compile("adam", "mse")
    ring.distribute(model)
    model.fit(x, y, batch_size=8, verbose=0)
    return model


def shifted(model: keras.Model) -> None:
    if rank == 1:
        mean = model.layers[1].moving_mean
        mean.assign(mean + 1.0)


def stepped(model: keras.Model) -> None:
    model.train_on_batch(x[own], y[own])


ASKED = {
    "fit": lambda model: model.fit(x, y, batch_size=8, verbose=0),
    "evaluate": lambda model: model.evaluate(x, y, batch_size=8, verbose=0),
    "predict": lambda model: model.predict(x, batch_size=8, verbose=0),
    "gather": ring.gather,
}
facts = {}
for change in (shifted, stepped):
    for name, ask in ASKED.items():
        model = made()
        change(model)
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            ask(model)
            ask(model)
        lines = [line for line in said.getvalue().splitlines() if "differs between" in line]
        facts[f"{change.__name__}, {name}"] = len(lines), model.layers[1].moving_mean.numpy().tolist()
(out / f"rank{rank}.json").write_text(json.dumps(facts))
