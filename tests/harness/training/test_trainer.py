"""What a strategy tells of a run when it has ended."""

from __future__ import annotations

from harness.training.strategies import Trainer


def test_nothing_is_tried_on_the_gpus_behind_a_recording() -> None:
    """A profiler goes on for a while when it is stopped: it recorded the stages of a split model, timed alone."""
    trainer = Trainer(None, lambda: ({}, 0), 1, facts=lambda: {"loss": 1.0}, tried=lambda: {"pipeline": {}})
    assert trainer.told(recorded=False) == {"loss": 1.0, "pipeline": {}}
    assert trainer.told(recorded=True) == {"loss": 1.0}
