"""Changes for cells whose strategy cannot do what the rules name, since these speak of Horovod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..model.findings import Finding
from ..runs.records import Cell

# Their step is the graph that fit makes, in a loop of the strategy's own.
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
# By what carries gradients or activations, but `sharded`; of others the rules' own.
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
    """The finding with what the cell's strategy can do, and without what every cell has already."""
    # Stages copy in each process, of the hybrid one, too.
    way = cell.strategy if cell.strategy in CHANGES else "copies" if cell.spread.splits else cell.spread.exchange
    return replace(finding, change=CHANGES.get(way, {}).get(finding.code, finding.change))
