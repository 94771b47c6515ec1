"""Advice for cells whose strategy does not use Horovod. The rules themselves give advice for Horovod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..model.findings import Finding
from ..runs.records import Cell

# XLA does not compile the steps of model splits and parameter servers, which run in the strategy's own loop.
ELSEWHERE = (
    "a larger batch (--per-rank-batch); if the model fits one GPU, --strategy horovod, which can compile the step"
)
COMPILED_BY_HOROVOD = "a larger batch (--per-rank-batch); --strategy horovod, which can compile the step"
UNCOMPILED = {
    **dict.fromkeys(("not-compiled", "launch-bound", "python-in-the-loop", "short-kernels"), ELSEWHERE),
    "tiny-batch": "raise --per-rank-batch until images/s stop growing, and the learning rate with it",
}
LATE = ("no-prefetch", "prefetch-on-host-only", "copies-pageable", "copies-synchronous")
AHEAD = (
    'dataset.apply(tf.data.experimental.prefetch_to_device("/GPU:0", 2)) as the last transformation (ringscope bench '
    "--feeds device, or staging)"
)
BY_THE_SERVER = (
    "weights come from the server's memory before each step, and gradients go back there: --strategy horovod or "
    "mirrored keep both on the GPUs"
)
FROM_THE_HOST = (
    "fewer bytes (--input-dtype uint8): a worker copies its batches from host memory only when a step needs them; "
    "--strategy horovod has feeds that copy ahead"
)
# Strategy `sharded`, or the library that exchanges gradients or activations -> code of a finding -> advice. Findings
# that are missing here keep the rules' advice.
CHANGES: Mapping[str | None, Mapping[str, str]] = {
    "sharded": {
        "collectives-exposed": "send gradients in half the bytes (--compression fp16); take a larger batch "
        "(--per-rank-batch), which needs fewer exchanges"
    },
    "tf.distribute": dict.fromkeys(("not-compiled", "launch-bound", "short-kernels"), COMPILED_BY_HOROVOD),
    "copies": UNCOMPILED | dict.fromkeys(LATE, AHEAD),
    "parameter server": UNCOMPILED
    | dict.fromkeys(LATE, FROM_THE_HOST)
    | dict.fromkeys(("host-synchronises", "python-in-the-loop", "small-copy-before-step"), BY_THE_SERVER),
}


def said(finding: Finding, cell: Cell) -> Finding:
    """The finding with advice that the cell's strategy can follow."""
    # Every strategy with stages copies activations between GPUs of one process; so do hybrid strategies.
    way = cell.strategy if cell.strategy in CHANGES else "copies" if cell.spread.splits else cell.spread.exchange
    return replace(finding, change=CHANGES.get(way, {}).get(finding.code, finding.change))
