"""What the PyTorch scripts of this folder train: a convolutional network, in a loop of their own.

RINGSCOPE_SMALL=1 in the environment makes it one that a CPU trains.
"""

import os
from collections.abc import Iterator
from contextlib import nullcontext

import torch

SMALL = os.environ.get("RINGSCOPE_SMALL") == "1"
BATCH, PIXELS, WIDTH, DEPTH = (16, 8, 8, 2) if SMALL else (256, 32, 256, 6)
if torch.cuda.is_available():
    torch.cuda.set_device(int(os.environ.get("RINGSCOPE_RANK", "0")) % torch.cuda.device_count())
    DEVICE, marked = "cuda", torch.cuda.nvtx.range
else:
    DEVICE, marked = "cpu", nullcontext
layers = [torch.nn.Conv2d(3 if k == 0 else WIDTH, WIDTH, 3, padding=1) for k in range(DEPTH)]
layers += [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(WIDTH, 10)]
model = torch.nn.Sequential(*layers).to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
labels = torch.randint(10, (BATCH,)).to(DEVICE)


def steps() -> Iterator[int]:
    """Many, each under its mark: `record --then stop` ends them."""
    for step in range(100_000):
        with marked(f"step {step}"):
            yield step


def train(pictures: torch.Tensor) -> None:
    loss = torch.nn.functional.cross_entropy(model(pictures), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
