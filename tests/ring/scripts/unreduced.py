"""Ranks that start alike and train each alone. usage: unreduced.py OUT BATCH"""

import sys
from pathlib import Path

from harness.doctor import equality
from harness.training import strategies
from profiles.runs.records import Cell
from ringscope import ring

ring.init()
cell = Cell("mlp", ring.size(), int(sys.argv[2]), strategy="independent", warmup=0)
trainer = strategies.trainer(cell, "/CPU:0")
for _ in range(10):
    trainer.turn()
equality.save_weights(trainer.model, Path(sys.argv[1]) / f"rank{ring.rank()}.npz")
