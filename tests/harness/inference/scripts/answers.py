"""What the server's parts answer, beside the model called directly: `python answers.py MODEL.keras OUT.json`.

Writes the largest differences, and saves the model that it makes under the first name.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np

from harness.inference import devices, models
from harness.inference.server import Answers
from profiles.ground.errors import RingscopeError


def main() -> None:
    path, out = sys.argv[1:]
    inputs = keras.Input((6, 5), dtype="float32")
    hidden = keras.layers.Dropout(0.5)(keras.layers.Dense(7, activation="relu")(inputs))
    keras.Model(inputs, keras.layers.Dense(3)(keras.layers.Flatten()(hidden))).save(path)
    told = {name: differences(name) for name in (path, "mlp")} | {"refused": refused(), "rows": rows(path)}
    Path(out).write_text(json.dumps(told))


def differences(name: str) -> dict[str, float]:
    """Of the answers that requests of one, two and three samples get, alone and together, from the model's own."""
    model = keras.models.load_model(name) if models.is_file(name) else models.models.build(name)
    server = Answers({"model": name, "most": 4, "wait_ms": 1.0})
    server.setup("cpu")
    x = models.samples(model.input_shape[1:], "float32", 6)
    expected = np.asarray(model(x, training=False))
    requests = [{"instances": part.tolist()} for part in np.split(x, [1, 3])]
    together = server.unbatch(server.predict(server.batch([server.decode_request(one) for one in requests])))
    answers = [server.encode_response(one) for one in together]
    alone = [server.encode_response(server.predict(server.decode_request(one))) for one in requests]
    assert [one["batch"] for one in answers] == [3, 3, 3] and [one["batch"] for one in alone] == [1, 1, 1]
    assert all(one["service_ns"] > 0 for one in (*answers, *alone))
    return {"together": worst(answers, expected), "alone": worst(alone, expected)}


def worst(answers: list[dict[str, Any]], expected: Any) -> float:
    found = np.concatenate([np.array(one["predictions"]) for one in answers])
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max())


def refused() -> list[str]:
    """What is said of models that cannot be served."""
    said = []
    two = keras.Model([a := keras.Input((2,)), b := keras.Input((2,))], keras.layers.Add()([a, b]))
    two.save("two.keras")
    endless = keras.Input((None, 2))
    keras.Model(endless, keras.layers.GlobalAveragePooling1D()(endless)).save("endless.keras")
    Path("broken.keras").write_text("nothing")
    for name in ("two.keras", "endless.keras", "broken.keras"):
        try:
            models.load(name)
        except RingscopeError as error:
            said.append(str(error))
    return said


def rows(path: str) -> list[dict[str, Any]]:
    """The lines that measuring on the CPU writes."""
    Path("rows.jsonl").unlink(missing_ok=True)
    for model in (path, "none.keras"):
        Path("plan.json").write_text(json.dumps({"model": model, "batches": [1, 64], "least_s": 0.05}))
        devices.main("plan.json", "rows.jsonl")
    return [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]


if __name__ == "__main__":
    main()
