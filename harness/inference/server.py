"""`python -m harness.inference.server PLAN.json`: serve a model over HTTP by LitServe (uvicorn, FastAPI, and batching).

PLAN: {"model", "port", "most", "wait_ms", "workers"}. `POST /predict` takes {"instances": [sample, ...]} and answers
{"predictions": [...]} like TensorFlow Serving's REST interface. Two keys are added: `batch`, the number of requests
computed together, and `service_ns`, the time of that computation.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import litserve
import numpy as np
from numpy.typing import NDArray

from . import models

Array = NDArray[Any]
WARM_UP = 3


class Answers(litserve.LitAPI):
    """The model in a worker of LitServe. LitServe gives `predict` one request, or with batching the list that `batch`
    returns."""

    def __init__(self, plan: dict[str, Any]) -> None:
        super().__init__(max_batch_size=plan["most"], batch_timeout=plan["wait_ms"] / 1000)
        self._name, self._most = plan["model"], plan["most"]

    def setup(self, device: str) -> None:
        self._loaded = models.load(self._name, "/GPU:0" if models.gpus() else "/CPU:0")
        shape, dtype = self._loaded.input_shape, self._loaded.input_dtype
        for size in range(1, self._most + 1):  # pays the one-time costs of each batch size before the load
            for _ in range(WARM_UP):
                self._loaded.answer(models.samples(shape, dtype, size)).numpy()

    # Without the real class FastAPI would read the annotation, a string here, as a parameter of the URL.
    def decode_request(self, request) -> Array:  # type: ignore[no-untyped-def]
        return np.asarray(request["instances"], self._loaded.input_dtype)

    def batch(self, inputs: list[Array]) -> list[Array]:
        return inputs

    def predict(self, x: Array | list[Array]) -> Any:
        parts = x if isinstance(x, list) else [x]
        began = time.perf_counter_ns()
        answers = self._loaded.answer(np.concatenate(parts) if len(parts) > 1 else parts[0]).numpy()
        took = time.perf_counter_ns() - began
        cut = np.split(answers, np.cumsum([len(part) for part in parts])[:-1])
        outputs = [(one, len(parts), took) for one in cut]
        return outputs if isinstance(x, list) else outputs[0]

    def unbatch(self, output: list[Any]) -> list[Any]:
        return output

    def encode_response(self, output: tuple[Array, int, int]) -> dict[str, Any]:
        answers, together, took = output
        return {"predictions": answers.tolist(), "batch": together, "service_ns": took}


def main(plan_path: str) -> None:
    plan = json.loads(Path(plan_path).read_text())
    server = litserve.LitServer(
        Answers(plan), accelerator="cpu", devices=1, workers_per_device=plan["workers"], timeout=False
    )
    # LitServe's devices are PyTorch's, so it is told `cpu`; the model uses TensorFlow's first GPU, if there is one.
    server.run(host="127.0.0.1", port=plan["port"], generate_client_file=False, log_level="warning", access_log=False)


if __name__ == "__main__":
    main(sys.argv[1])
