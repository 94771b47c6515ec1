"""How far predictions are from what was published: python -m benchmarks.published_scaling

Of each series in published_scaling.csv the larger counts are predicted from the smaller ones: from the first two, then
from the first three, and so on. Each table has the constants that the other tables choose, so no table judges itself.
Beside it stands the formula that came before, c ((N / n1)^0.3 - 1) +- 5 points, which knew of no hosts (its constants
were chosen on mxnet, p100, k80 and daint).

Throughputs over all GPUs, as published; of maxtext and nanotron that of a GPU times their number:
* mxnet, bert-torch, bert-paddle, bert-tf1, bert-tf2, bart: NVIDIA/DeepLearningExamples (134510b4, 729963dd), README.md
  in MxNet/Classification/RN50v1.5 and {PyTorch,PaddlePaddle,TensorFlow,TensorFlow2}/LanguageModeling/{BERT,BART}.
  BERT adds up the gradients of fewer batches the more hosts there are.
* p100, k80: TensorFlow's benchmarks of May 2017 (tensorflow/docs_src/performance/benchmarks.md, 5984ffef)
* daint: e-bug/distributed-tensorflow-benchmarks (27230d10): Inception V3 on one P100 a node
* maxtext: AI-Hypercomputer/maxtext, src/maxtext/configs/gpu/a3/llama_2_7b/README.md (e591f30c): H100, TFLOP/s
* nanotron: huggingface.co/spaces/nanotron/ultrascale-playbook, dist/fragments/dp_scaling.html: H100, tokens/s
* mosaic: mosaicml/llm-foundry, scripts/train/benchmarking/README.md (8c8dd48f): FSDP, counts with one batch per GPU
* dlperf: Oneflow-Inc/DLPerf, reports/dlperf_benchmark_test_report_v1.md and TensorFlow/*/README.md (c89430ba): V100
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from profiles.predicting.curve import CONSTANTS, Constants, Point, predict

FILE = Path(__file__).with_suffix(".csv")
TO_HOLD = 0.95  # 9 in 10, and a margin for tables that had no part
NEW = (
    "maxtext",
    "nanotron",
    "bert-torch",
    "bert-paddle",
    "bert-tf1",
    "bart",
    "mosaic",
    "dlperf",
)  # since the first formula


@dataclass(frozen=True, slots=True)
class Series:
    table: str
    name: str
    gpus_per_host: int
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A published point beside its prediction from the first `known` counts of its series."""

    series: Series
    known: int
    gpus: int
    published: float  # efficiency
    predicted: float
    low: float
    high: float

    @property
    def error(self) -> float:
        return abs(self.published - self.predicted)

    @property
    def missed(self) -> float:
        """How far outside the interval; above 100 % is noise of the smallest size."""
        published = min(self.published, 1.0)
        return max(self.low - published, published - self.high, 0.0)

    @property
    def kind(self) -> str:
        if self.gpus <= self.series.gpus_per_host:
            return "inside a host"
        crossed = self.series.points[self.known - 1].gpus > self.series.gpus_per_host
        return "hosts measured" if crossed else "first crossing"


@cache
def every() -> tuple[Series, ...]:
    """All series of the file."""
    with FILE.open() as file:
        return tuple(
            Series(row["table"], row["series"], int(row["gpus_per_host"]), tuple(map(_point, row["points"].split())))
            for row in csv.DictReader(file)
        )


def series(table: str, name: str) -> Series:
    (found,) = (one for one in every() if (one.table, one.name) == (table, name))
    return found


def _point(text: str) -> Point:
    gpus, rate = text.split(":")
    return Point(int(gpus), float(rate))


@cache
def rows(constants: Constants | None = CONSTANTS) -> tuple[Row, ...]:
    """Every larger count from the smaller ones; None: by the formula that came before."""
    return tuple(_rows(constants))


def _rows(constants: Constants | None) -> Iterator[Row]:
    for one in every():
        first = one.points[0]
        for known in range(2, len(one.points)):
            measured, asked = one.points[:known], one.points[known:]
            counts = [point.gpus for point in asked]
            if constants is None:
                found = [before(measured, count) for count in counts]
            else:
                said = predict(measured, counts, one.gpus_per_host, constants)
                found = [(each.efficiency, each.low, each.high) for each in said]
            for point, (efficiency, low, high) in zip(asked, found, strict=True):
                published = point.per_s / point.gpus / (first.per_s / first.gpus)
                yield Row(one, known, point.gpus, published, efficiency, low, high)


def before(measured: Sequence[Point], gpus: int) -> tuple[float, float, float]:
    """Efficiency and interval by the formula that came before."""
    first, largest = measured[0], measured[-1]
    grown = [(point.gpus / first.gpus) ** 0.3 - 1 for point in measured[1:]]
    lost = [max(point.gpus * first.per_s / point.per_s / first.gpus - 1, 0.0) for point in measured[1:]]
    own = sum(g * y for g, y in zip(grown, lost, strict=True)) / sum(g * g for g in grown)
    efficiency = 1 / (1 + (0.7 * own + 0.3 * 0.02) * ((gpus / first.gpus) ** 0.3 - 1))
    half = 0.05 * max(1.0, math.log2(gpus / largest.gpus) / 3)
    return efficiency, max(efficiency - half, 0.0), max(min(efficiency + half, 1.0), efficiency)


def tables() -> list[str]:
    return list(dict.fromkeys(one.table for one in every()))


def chosen(of: Sequence[str]) -> Constants:
    """The step and the noise with the narrowest intervals of those that hold TO_HOLD of these tables' points."""

    def some(constants: Constants) -> list[Row]:
        return [row for row in rows(constants) if row.series.table in of]

    def holds(constants: Constants) -> bool:
        return bool(np.mean([not row.missed for row in some(constants)]) >= TO_HOLD)

    grid = itertools.product((0.04, 0.06, 0.08, 0.1), (0.025, 0.03, 0.035, 0.04))
    tried = [replace(CONSTANTS, step=step, noise=noise) for step, noise in grid]
    return min(filter(holds, tried), key=lambda one: float(np.mean([row.high - row.low for row in some(one)])))


def left_out() -> list[Row]:
    """All rows, each table's predicted with constants chosen on the others."""
    found: list[Row] = []
    for table in tables():
        constants = chosen([other for other in tables() if other != table])
        found += [row for row in rows(constants) if row.series.table == table]
    return found


def _said(some: Sequence[Row]) -> str:
    inside = np.mean([not row.missed for row in some])
    wide = np.mean([row.high - row.low for row in some])
    return f"error {100 * np.mean([row.error for row in some]):4.1f}, {inside:4.0%} inside {100 * wide:3.0f} points"


def main() -> None:
    """Print the errors of every table, before and now, and the constants chosen on all."""
    now, then = left_out(), rows(None)
    parts = {
        **{table: lambda row, table=table: row.series.table == table for table in tables()},
        **{kind: lambda row, kind=kind: row.kind == kind for kind in dict.fromkeys(row.kind for row in now)},
        "older tables": lambda row: row.series.table not in NEW,
        "new tables": lambda row: row.series.table in NEW,
        "all": lambda row: True,
    }
    for name, holds in parts.items():
        some, same = [row for row in now if holds(row)], [row for row in then if holds(row)]
        print(f"{name:14} {len(some):3} predictions: {_said(some)}; before: {_said(same)}")
    print(f"chosen on all tables: {chosen(tables())}")


if __name__ == "__main__":
    main()
