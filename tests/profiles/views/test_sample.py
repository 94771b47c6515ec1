"""The sample the views are tested with keeps the identities it claims."""

from __future__ import annotations

from tests.made.sample import sample


def test_the_samples_ledger_adds_up_to_its_window_in_every_step() -> None:
    analysis, timelines = sample(steps=4, gpus=2, kernels_per_step=50)
    assert len(timelines) == 2
    for gpu in analysis.measures.gpus:
        assert sum(gpu.ledger_ns.values()) == gpu.span_ns
        assert sum(row.end_ns - row.start_ns for row in gpu.steps.rows) == gpu.span_ns
        for row in gpu.steps.rows:
            assert sum(row.ledger_ns.values()) == row.end_ns - row.start_ns
