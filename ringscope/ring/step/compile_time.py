"""Words on how long XLA may compile a step, by what its graph holds."""

from __future__ import annotations

from typing import Any

# Fitted to the first starts of 28 models on H200s with 16 CPU cores (docs/results/2026-11-30-2xh200-b/graphs.jsonl).
# XLA times several kernels for each product or convolution of a size of its own.
PER_OPERATION_S, PER_SIZE_S, SPREAD = 1.7e-3, 0.7, 1.6
SOON_S = 30  # nothing is said of what takes no longer


def expected(graph: Any) -> str:
    """Words on how long the first start of a traced step takes; empty if that is soon over."""
    operations = graph.get_operations()
    products = [op for op in operations if "MatMul" in op.type or "Conv" in op.type]
    sizes = {(op.type, *(str(given.shape) for given in op.inputs)) for op in products}
    low_s, high_s = seconds(len(operations), len(sizes))
    return f", of {low_s} to {high_s} s that a first start of its size takes on an H200" if high_s > SOON_S else ""


def seconds(operations: int, sizes: int) -> tuple[int, int]:
    """(low, high), in whole tens of seconds. sizes: of products and convolutions, each counted once."""
    middle_s = PER_OPERATION_S * operations + PER_SIZE_S * sizes
    return int(middle_s / SPREAD // 10 * 10), int(-(-middle_s * SPREAD // 10) * 10)
