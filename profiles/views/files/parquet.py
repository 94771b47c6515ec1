"""The per-step table as Parquet: one row per GPU and measured step, times as integers in ns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...ground.files import written_whole
from ...model.measures import OWNERS, Measures

if TYPE_CHECKING:
    import pandas as pd


def steps(measures: Measures) -> pd.DataFrame:
    """One row per GPU and measured step; unknown values are null.

    Columns: gpu (index into the JSON's gpus), rank, device, step, start_ns, end_ns (from the recording's origin),
    period_ns, `<owner>_ns` for each of the ledger's owners (they sum to period_ns), batch_gap_ns, feed_gap_ns, kernels.
    """
    import pandas as pd

    rows = [
        {
            "gpu": index,
            "rank": gpu.rank,
            "device": gpu.device,
            "step": row.step,
            "start_ns": row.start_ns,
            "end_ns": row.end_ns,
            "period_ns": row.end_ns - row.start_ns,
            **{f"{owner}_ns": row.ledger_ns[owner] for owner in OWNERS},
            "batch_gap_ns": row.batch_gap_ns,
            "feed_gap_ns": row.feed_gap_ns,
            "kernels": row.kernels,
        }
        for index, gpu in enumerate(measures.gpus)
        for row in gpu.steps.rows
    ]
    columns = ["gpu", "rank", "device", "step", "start_ns", "end_ns", "period_ns", *(f"{owner}_ns" for owner in OWNERS)]
    return pd.DataFrame(rows, columns=[*columns, "batch_gap_ns", "feed_gap_ns", "kernels"], dtype="Int64")


def write(measures: Measures, path: Path) -> None:
    """Write the per-step table."""
    with written_whole(path) as beside:
        steps(measures).to_parquet(beside, index=False)
