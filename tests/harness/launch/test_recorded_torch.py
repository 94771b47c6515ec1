"""Loops of PyTorch with any optimizer: steps where a hook sees them, else seconds, and a line that says which."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from profiles.model import marks
from profiles.readers import read
from tests.harness.running import environment

OWN = """
import sys, time, torch

class Fused(torch.optim.Optimizer):  # of the shape of FusedAdam in apex and DeepSpeed
    def __init__(self, params):
        super().__init__(params, {"lr": 1e-3})
    def step(self, closure=None, grads=None, output_params=None, scale=None, grad_norms=None):
        for group in self.param_groups:
            for one in group["params"]:
                one.data.add_(one.grad, alpha=-group["lr"])

class Bare:
    def __init__(self, params):
        self.params = list(params)
    def step(self):
        with torch.no_grad():
            for one in self.params:
                one -= 1e-3 * one.grad

kinds = {"Fused": Fused, "Bare": Bare, "foreach": lambda params: torch.optim.AdamW(params, foreach=True),
         "fused": lambda params: torch.optim.AdamW(params, fused=True)}
model = torch.nn.Linear(64, 64)
optimizer = kinds[sys.argv[1]](model.parameters())
ends = time.monotonic() + 10
while time.monotonic() < ends:
    model.zero_grad()
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    time.sleep(0.01)
"""


@pytest.mark.parametrize("kind", ["Fused", "fused", "foreach", "Bare"])
def test_steps_of_any_optimizer_of_pytorchs_class_are_marked_and_of_others_seconds_are_recorded(
    tmp_path: Path, kind: str
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    (tmp_path / "train.py").write_text(OWN)
    words = ["record", "--profiler", "framework", "--out", "out", "--steps", "5", "--delay", "3", "--duration", "1"]
    argv = [sys.executable, "-m", "harness", *words, "--", sys.executable, "train.py", kind]
    done = subprocess.run(argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    names = read(tmp_path / "out" / "command" / "0" / "rank0.pt.trace.json").marks["name"].astype(str)
    assert sum(bool(re.fullmatch(marks.STEP, name)) for name in names) == (0 if kind == "Bare" else 5)
    said = "recording for 1 s, because no step was seen" if kind == "Bare" else "recording from step "
    assert said in done.stderr
