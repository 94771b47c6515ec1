"""Stands for `tensorflow_model_server`, which no package index has: its options, its REST, one request at a time.

It loads the SavedModel, so that what was exported is what answers. It does not gather requests; it only wants the file
that says how.
"""

from __future__ import annotations

import argparse
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("port", "rest_api_port"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("model_name", "model_base_path", "batching_parameters_file"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--enable_batching", choices=["true"], required=True)
    options = parser.parse_args()
    assert Path(options.model_base_path).is_absolute()
    fields = re.findall(r"^(\w+) \{ value: (\d+) \}$", Path(options.batching_parameters_file).read_text(), re.M)
    # batching_parameters of tensorflow_serving/config: all are wrapped integers.
    assert {name for name, _ in fields} == {
        *("max_batch_size", "batch_timeout_micros", "num_batch_threads", "max_enqueued_batches")
    }
    serve(options)


def serve(options: argparse.Namespace) -> None:
    import tensorflow as tf

    loaded = tf.saved_model.load(str(Path(options.model_base_path) / "1"))
    signature = loaded.signatures["serving_default"]
    (name,) = signature.structured_input_signature[1]
    (output,) = signature.structured_outputs

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            good = self.path == f"/v1/models/{options.model_name}"
            self.tell(200 if good else 404, {"model_version_status": [{"version": "1", "state": "AVAILABLE"}]})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path != f"/v1/models/{options.model_name}:predict":
                return self.tell(404, {"error": "no such model"})
            answers = signature(**{name: tf.constant(asked["instances"], tf.float32)})[output]
            self.tell(200, {"predictions": answers.numpy().tolist()})

        def tell(self, status: int, told: object) -> None:
            body = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", options.rest_api_port), Handler).serve_forever()


if __name__ == "__main__":
    main()
