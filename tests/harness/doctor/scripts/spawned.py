"""Ranks of PyTorch that the script starts itself, each of which trains as ddp.py does."""

import os
import runpy
import sys

import torch.multiprocessing as mp


def train(rank: int, size: int) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29541"}
    sys.argv = ["ddp.py", "right"]
    runpy.run_path("ddp.py")


if __name__ == "__main__":
    mp.spawn(train, (2,), nprocs=2)
