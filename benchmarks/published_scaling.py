"""How far predictions from two measured sizes are from what was published: python -m benchmarks.published_scaling

Every form of the loss is fitted on all tables but one and asked for that one (leave one table out), so that no table
judges itself. Prints the mean error and the share inside the interval for each form, and the constants that
profiles/predicting/curve.py holds.

Throughputs over all GPUs, as published:
* mxnet: NVIDIA/DeepLearningExamples, MxNet/Classification/RN50v1.5/README.md (134510b4): ResNet-50, Horovod + NCCL
* p100, k80: TensorFlow's benchmarks page of May 2017 (tensorflow/docs_src/performance/benchmarks.md, 5984ffef)
* daint: e-bug/distributed-tensorflow-benchmarks (27230d10): Inception V3 on one P100 a node
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profiles.predicting.curve import CONSTANTS, Constants, Point, predict

_TO_16 = (1, 2, 4, 8, 16)
_K80 = (1, 8, 16, 32, 64)

TABLES: Mapping[str, Mapping[str, tuple[Sequence[int], Sequence[float]]]] = {
    "mxnet": {
        "A100 AMP": (_TO_16, (2180, 4332, 8587, 16925)),
        "A100 TF32": (_TO_16, (1022, 2032, 4035, 8001)),
        "DGX-1 AMP": (_TO_16, (1376, 2768, 5357, 10723)),
        "DGX-1 FP32": (_TO_16, (384, 763, 1513, 3005)),
        "DGX-2 AMP": (_TO_16, (1492, 2935, 5726, 11368, 21484)),
        "DGX-2 FP32": (_TO_16, (417, 821, 1623, 3223, 6338)),
    },
    "p100": {
        "Inception V3": (_TO_16, (142, 284, 569, 1131)),
        "ResNet-50": (_TO_16, (219, 422, 852, 1734)),
        "ResNet-152": (_TO_16, (91.8, 181, 356, 716)),
        "AlexNet": (_TO_16, (2987, 5658, 10509, 17822)),
        "VGG-16, 64": (_TO_16, (154, 295, 584, 1081)),
        "VGG-16, 32": (_TO_16, (144, 281, 549, 820)),
    },
    "k80": {
        "Inception V3, 64": (_K80, (29.7, 229, 459, 902, 1783)),
        "ResNet-50, 64": (_K80, (52.4, 378, 751, 1388, 2744)),
        "ResNet-152, 32": (_K80, (19.4, 146, 291, 565, 981)),
        "Inception V3, 32": (_K80, (29.2, 219, 427, 820, 1608)),
        "ResNet-50, 32": (_K80, (48.4, 333, 667, 1180, 2315)),
    },
    "daint": {"Inception V3": (_TO_16, (138.23, 264.57, 523.38, 1018.18))},
}

# BERT-large, TensorFlow 2 and Horovod, by hosts of 8 A100 (NVIDIA/DeepLearningExamples,
# TensorFlow2/LanguageModeling/BERT/README.md, 729963d). Gradients are accumulated less the more hosts there are.
BERT: Mapping[str, Sequence[float]] = {
    "128 tokens, AMP": (3803.82, 7551.37, 29711.11, 110280.73),
    "128 tokens, TF32": (2062.98, 4084.76, 16134.02, 59569.77),
    "512 tokens, AMP": (749.73, 1491.87, 5870.83, 22506.23),
    "512 tokens, TF32": (431.89, 739.14, 2926.58, 11240.5),
}
BERT_HOSTS = (1, 2, 8, 32)

_GROWTHS = tuple(round(0.05 * number, 2) for number in range(1, 20))
_TYPICAL = (0.0, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1)
_TRUST = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True, slots=True)
class Row:
    """A published point beside its prediction from the two smallest sizes of its series."""

    table: str
    series: str
    gpus: int
    times: float  # how many times the largest size that the prediction knew
    published: float  # efficiency
    predicted: float
    low: float
    high: float

    @property
    def error(self) -> float:
        return abs(self.published - self.predicted)

    @property
    def inside(self) -> bool:
        return self.low <= min(self.published, 1.0) <= self.high  # above 100 % is noise of the smallest size


def rows(tables: Sequence[str], constants: Constants) -> Iterator[Row]:
    """Every point of these tables but the two smallest of each series, which the prediction is made from."""
    for table in tables:
        for series, (gpus, throughput) in TABLES[table].items():
            points = [Point(n, x) for n, x in zip(gpus, throughput, strict=False)]
            known, asked = points[:2], points[2:]
            found = predict(known, [point.gpus for point in asked], constants)
            for point, said in zip(asked, found, strict=True):
                published = point.per_s / point.gpus / (points[0].per_s / points[0].gpus)
                times = point.gpus / known[-1].gpus
                yield Row(table, series, point.gpus, times, published, said.efficiency, said.low, said.high)


def chosen(tables: Sequence[str]) -> Constants:
    """The growth, the typical loss and the trust whose mean error over these tables is the least."""
    grid = itertools.product(_GROWTHS, _TYPICAL, _TRUST)
    return min(
        (Constants(growth, typical, trust, CONSTANTS.half_width) for growth, typical, trust in grid),
        key=lambda constants: float(np.mean([row.error for row in rows(tables, constants)])),
    )


def leave_one_out(choose: Callable[[Sequence[str]], Constants] = chosen) -> list[Row]:
    """All rows, each table's predicted with constants chosen on the others."""
    found: list[Row] = []
    for table in TABLES:
        found += rows([table], choose([other for other in TABLES if other != table]))
    return found


def main() -> None:
    """Print the errors of every table and the constants chosen on all."""
    found = leave_one_out()
    for table in (*TABLES, "all"):
        errors = np.array([row.error for row in found if table in (row.table, "all")])
        inside = np.mean([row.inside for row in found if table in (row.table, "all")])
        print(f"{table:6} {len(errors):3} points: mean error {100 * errors.mean():.1f} points, {inside:.0%} inside")
    ninth = float(np.quantile([row.error for row in found], 0.9))
    print(f"9 in 10 within {100 * ninth:.1f} points; chosen on all tables: {chosen(tuple(TABLES))}")


if __name__ == "__main__":
    main()
