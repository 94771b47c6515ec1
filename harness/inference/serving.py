"""The servers that can be measured: how each is started, when it is ready, and how it forms batches."""

from __future__ import annotations

import importlib.util
import json
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiles.ground.errors import RingscopeError
from profiles.ground.files import write_whole
from profiles.inference.loads import Limits

TENSORFLOW_SERVING = "tensorflow_model_server"


@dataclass(frozen=True, slots=True)
class Start:
    """A server to start: its command, the URL for requests, and the URL that tells whether it is ready."""

    argv: list[str]
    url: str
    ready_url: str


@dataclass(frozen=True, slots=True)
class Server:
    """A kind of server. start: called with the model, the limits and a folder for the server's files. rule: how the
    server forms batches, one of profiles.inference.batching.RULES. remedy: what to do if `needs` is not installed."""

    start: Callable[[str, Limits, Path], Start]
    rule: str
    needs: str  # the program or Python module that must be installed
    remedy: str


def litserve(model: str, limits: Limits, folder: Path) -> Start:
    """LitServe (FastAPI under uvicorn), whose workers gather requests into batches."""
    port = free_port()
    plan = folder / "server.json"
    told = {"model": model, "port": port, "most": limits.most, "wait_ms": limits.wait_ms, "workers": 1}
    write_whole(plan, json.dumps(told))
    root = f"http://127.0.0.1:{port}"
    return Start([sys.executable, "-m", "harness.inference.server", str(plan)], f"{root}/predict", f"{root}/health")


def tensorflow_serving(model: str, limits: Limits, folder: Path) -> Start:
    """TensorFlow Serving's REST interface, with a SavedModel in `folder`/model/1 (harness.inference.export). Batches
    are formed by its own settings: https://www.tensorflow.org/tfx/serving/serving_config#batching_configuration"""
    port, grpc = free_port(), free_port()
    batching = folder / "batching.txt"
    write_whole(
        batching,
        f"max_batch_size {{ value: {limits.most} }}\n"
        f"batch_timeout_micros {{ value: {round(limits.wait_ms * 1000)} }}\n"
        "num_batch_threads { value: 1 }\nmax_enqueued_batches { value: 100000 }\n",
    )
    root = f"http://127.0.0.1:{port}/v1/models/model"
    argv = [
        TENSORFLOW_SERVING,
        f"--port={grpc}",
        f"--rest_api_port={port}",
        "--model_name=model",
        f"--model_base_path={(folder / 'model').resolve()}",
        "--enable_batching=true",
        f"--batching_parameters_file={batching.resolve()}",
    ]
    return Start(argv, f"{root}:predict", root)


_INSTALL: Final = "run `make setup` in ringscope's repository, or there: pip install '.[serve]'"
SERVERS: Final = {
    "litserve": Server(litserve, "windows", "litserve", _INSTALL),
    "tfserving": Server(
        tensorflow_serving, "first", TENSORFLOW_SERVING, "install TensorFlow Serving, or leave --server out"
    ),
}


def check(name: str) -> None:
    """Raise RingscopeError if the server, or aiohttp for its client, is not installed."""
    server = SERVERS[name]
    find = shutil.which if server.needs == TENSORFLOW_SERVING else importlib.util.find_spec
    if not find(server.needs):
        raise RingscopeError(f"--server {name}: {server.needs} is not installed; {server.remedy}")
    check_load()


def check_load() -> None:
    """Raise RingscopeError if aiohttp, which the client of a server needs, is not installed."""
    if not importlib.util.find_spec("aiohttp"):
        raise RingscopeError(f"aiohttp, which sends requests to servers, is not installed; {_INSTALL}")


def free_port() -> int:
    """A port of this host that is free now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
