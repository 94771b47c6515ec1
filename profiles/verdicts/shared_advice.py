"""Advice that several rules share, for runs of `ringscope bench` and for users' own scripts."""

from __future__ import annotations

from .case import Case
from .gpu_facts import recurrent

DATA_LOADER = "DataLoader(num_workers=the cores of a rank, persistent_workers=True, prefetch_factor=4)"
PY_DATASET = (
    "super().__init__(workers=the cores of a rank, use_multiprocessing=True, max_queue_size=2 * workers) in the "
    "PyDataset; less work in its __getitem__"
)


def compiling(case: Case) -> str:
    """Advice on how to compile the step."""
    how = 'ring.distribute(model, step="compiled")' + case.told(bench=", --step compiled", script="")
    # XLA has no counterpart of cuDNN's recurrent cells, so ring runs recurrent layers as loops, which XLA compiles.
    loops = "; GRU and LSTM then run as loops, without cuDNN"
    return how + (loops if recurrent(case.gpu) else "; without Horovod model.compile(jit_compile=True)")


def less_often(case: Case, steps: int) -> str:
    """Advice to exchange gradients only every `steps` steps; "" if the cell's strategy cannot do that."""
    if case.cell is not None and "aggregate" not in case.cell.spread.heeds:
        return ""
    return case.told(bench=f"--aggregate {steps}", script=f"ring.distribute(model, aggregate={steps})")
