"""`python -m harness.inference.load PLAN.json OUT.json`: send requests at planned times, whether or not earlier ones
are answered.

PLAN: {"url", "per_s", "seconds", "seed", "instances": [sample, ...], "limit_s": seconds that an answer may take}.
Arrivals are a Poisson process (open loop): a server that falls behind gets no fewer requests, so the latency from the
planned arrival is what users would see. OUT has a list for each column of `profiles.inference.loads.Answers`, and
`errors`: reasons with their counts.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from profiles.ground.files import write_whole
from profiles.inference import batching

# Batches of other sizes round differently: answers to one sample differ by this much in float32, by 1 % in bfloat16.
RTOL, ATOL = 2e-2, 1e-3
WARM_UP = 5
SHOWN = 120  # bytes of an answer that an error quotes
FAULTS = (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError)  # json's own error is a ValueError


class Load:
    """The requests of one load and their results. Times are in ns since the load began."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan, self.url = plan, plan["url"]
        self.due_ns = batching.poisson(plan["per_s"], plan["seconds"], plan["seed"])
        count = len(self.due_ns)
        self.columns = {name: [0] * count for name in ("sent_ns", "done_ns", "good", "wrong", "batch", "service_ns")}
        self.errors: Counter[str] = Counter()
        self._bodies = [json.dumps({"instances": [one]}).encode() for one in plan["instances"]]
        self._expected: list[Any] = [None] * len(self._bodies)
        self._begin = 0

    async def run(self) -> None:
        """Send all requests, and wait for the last answer."""
        limit = aiohttp.ClientTimeout(total=self._plan["limit_s"])
        connector = aiohttp.TCPConnector(limit=0)
        headers = {"Content-Type": "application/json"}
        async with aiohttp.ClientSession(connector=connector, timeout=limit, headers=headers) as self._session:
            # one request at a time: warms up the server and gives the expected answer to each sample
            for number in range(max(WARM_UP, len(self._bodies))):
                which = number % len(self._bodies)
                self._expected[which] = (await self._ask(which))["predictions"]
            gc.collect()
            gc.disable()  # a garbage collection here would be counted as the server's time
            self._begin = time.monotonic_ns()
            tasks = []
            for number, due in enumerate(self.due_ns.tolist()):
                if (early := due - self._now()) > 0:
                    await asyncio.sleep(early / 1e9)
                tasks.append(asyncio.create_task(self._one(number)))
            await asyncio.gather(*tasks)

    def _now(self) -> int:
        return time.monotonic_ns() - self._begin

    async def _one(self, number: int) -> None:
        which, columns = number % len(self._bodies), self.columns
        columns["sent_ns"][number] = self._now()
        try:
            told = await self._ask(which)
            answer = told["predictions"]
            columns["good"][number] = int(len(answer) == 1)
        except FAULTS as error:
            self.errors[f"{type(error).__name__}: {error}"[:200]] += 1
            return
        finally:
            columns["done_ns"][number] = self._now()
        columns["batch"][number] = int(told.get("batch", 0))
        columns["service_ns"][number] = int(told.get("service_ns", 0))
        columns["wrong"][number] = int(not _alike(answer, self._expected[which]))

    async def _ask(self, which: int) -> Any:
        async with self._session.post(self.url, data=self._bodies[which]) as response:
            text = await response.read()
            if response.status != 200:
                raise ValueError(f"status {response.status}: {shortened(text)}")
        told = json.loads(text)
        if not isinstance(told, dict) or not isinstance(told.get("predictions"), list):
            raise ValueError(f"an answer without a list of predictions: {shortened(text)}")
        return told

    def to_json(self) -> dict[str, Any]:
        return {"due_ns": self.due_ns.tolist(), **self.columns, "errors": dict(self.errors)}


def shortened(text: bytes) -> str:
    """The beginning of a server's answer, short enough for an error message."""
    return text[:SHOWN].decode(errors="replace")


def _alike(answer: Any, expected: Any) -> bool:
    """True if two answers agree up to rounding. A model with several outputs answers with a dict of their names."""
    if isinstance(expected, dict) and isinstance(answer, dict):
        return answer.keys() == expected.keys() and all(_alike(answer[name], expected[name]) for name in expected)
    if isinstance(expected, list) and any(isinstance(one, dict) for one in expected):
        return isinstance(answer, list) and len(answer) == len(expected) and all(map(_alike, answer, expected))
    try:
        one, other = np.asarray(answer, float), np.asarray(expected, float)
        return bool(one.shape == other.shape and np.allclose(one, other, rtol=RTOL, atol=ATOL, equal_nan=True))
    except (ValueError, TypeError):  # a list of parts of different shapes, or values that are not numbers
        return bool(answer == expected)


def main(plan_path: str, out: str) -> int:
    load = Load(json.loads(Path(plan_path).read_text()))
    try:
        asyncio.run(load.run())
    except FAULTS as error:  # only the warm-up raises; the load itself counts errors
        print(f"{load.url} does not answer as asked: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    write_whole(Path(out), json.dumps(load.to_json()))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
