"""What ringscope would say of Horovod's published 512 GPUs: python -m benchmarks.horovod_512

Published (Sergeev and Del Balso, 2018, arXiv 1802.05799; docs/benchmarks.rst of horovod/horovod): 128 hosts of 4 Pascal
GPUs, joined by 25 Gbit/s, reach 90 % with Inception V3 and ResNet-101 and 68 % with VGG-16. What one of these GPUs and
one of these hosts does is not published. So everything that the prediction is made from is assumed, and printed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.published_scaling import series
from profiles.ground import numbers
from profiles.predicting.curve import Point
from profiles.predicting.network import BACKWARD_SHARE, UNKNOWN_OVERLAP, between_hosts_ns, network
from profiles.predicting.throughput import Hosts, Row, of_points

GPUS, GPUS_PER_HOST = 512, 4
NETWORK = "1x25Gb/s,30us"  # the latency is that of TCP
PER_RANK_BATCH = 64  # as in the command that Horovod's page gives
INSIDE_A_HOST = 3  # points on 1, 2 and 4 GPUs

# One more of its residual blocks takes a ResNet the same time whatever the depth: 16 blocks, 33 and 50. So a step of
# ResNet-101, which TensorFlow's table leaves out, lies midway between its neighbours'.
NEIGHBOURS = ("ResNet-50", "ResNet-152")


@dataclass(frozen=True, slots=True)
class Published:
    """A model on 512 GPUs: its efficiency there, and its trainable parameters (keras.applications)."""

    efficiency: float
    parameters: int

    @property
    def step_bytes(self) -> int:
        return 4 * self.parameters  # float32, not compressed


PUBLISHED: Mapping[str, Published] = {
    "Inception V3": Published(0.90, 23_817_352),
    "ResNet-101": Published(0.90, 44_601_832),
    "VGG-16": Published(0.68, 138_357_544),
}


def points(model: str) -> list[Point]:
    """Images/s on 1, 2 and 4 P100 of a DGX-1, batch 64: TensorFlow's table of May 2017."""
    if model == "ResNet-101":
        pairs = zip(*(_table(neighbour) for neighbour in NEIGHBOURS), strict=True)
        return [Point(less.gpus, round(2 / (1 / less.per_s + 1 / more.per_s), 1)) for less, more in pairs]
    return _table({"VGG-16": "VGG-16, 64"}.get(model, model))


def _table(name: str) -> list[Point]:
    return list(series("p100", name).points[:INSIDE_A_HOST])


def expected(model: str) -> Row:
    """The forecast for 512 GPUs."""
    hosts = Hosts(GPUS_PER_HOST, network(NETWORK), PUBLISHED[model].step_bytes, PER_RANK_BATCH)
    return of_points(model, points(model), [GPUS], hosts).rows[-1]


def command(model: str) -> Sequence[str]:
    """The same question on the command line."""
    known = ",".join(f"{point.gpus}:{point.per_s:g}" for point in points(model))
    return [
        *("ringscope", "predict", "--points", known, "--ranks", str(GPUS), "--network", NETWORK),
        *("--gpus-per-host", str(GPUS_PER_HOST), "--step-bytes", str(PUBLISHED[model].step_bytes)),
        *("--per-rank-batch", str(PER_RANK_BATCH)),
    ]


def _lines() -> Iterator[str]:
    yield f"{GPUS} GPUs, {GPUS_PER_HOST} per host, {NETWORK}, {PER_RANK_BATCH} images per GPU and step. Assumed:"
    yield "- inside a host: images/s of 1, 2 and 4 P100 in TensorFlow's table of May 2017 (a DGX-1 with NVLink)"
    yield f"- ResNet-101, which that table leaves out: a step midway between {' and '.join(NEIGHBOURS)}"
    yield "- gradients in float32; one hierarchical all-reduce, by ring or tree between hosts, whichever is quicker"
    yield (
        f"- backward is {numbers.share(BACKWARD_SHARE)} of a step and hides {numbers.share(UNKNOWN_OVERLAP)} of what "
        "it could; the interval: all of that, or nothing"
    )
    for model, published in PUBLISHED.items():
        row = expected(model)
        step_ms = PER_RANK_BATCH / points(model)[0].per_s * 1e3
        exchange_ms = between_hosts_ns(GPUS // GPUS_PER_HOST, published.step_bytes, network(NETWORK)) / 1e6
        yield (
            f"{model}: {step_ms:.1f} ms per step on one GPU, {published.step_bytes / 1e6:.1f} MB of gradients, "
            f"{exchange_ms:.1f} ms between hosts"
        )
        low, high = numbers.share(row.low), numbers.share(row.high)
        said = f"{100 * published.efficiency:.0f} %"
        yield f"  expected {numbers.share(row.efficiency)} ({low} to {high}), published {said}"
        yield f"  {shlex.join(command(model))}"


def main() -> None:
    """Print what is assumed, and what is expected of each model beside what was published."""
    print("\n".join(_lines()))


if __name__ == "__main__":
    main()
