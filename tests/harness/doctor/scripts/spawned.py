"""Ranks of PyTorch that the script starts itself: spawned.py spawn|fork WAY. Each trains as `ddp.py WAY` does."""

import os
import runpy
import sys

import torch.multiprocessing as mp


def train(rank: int, size: int, way: str) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29541"}
    sys.argv = ["ddp.py", way]
    if way == "fails":
        import torch.distributed as dist

        dist.init_process_group("gloo")
        raise ValueError("this rank fails")
    runpy.run_path("ddp.py")


if __name__ == "__main__":
    mp.start_processes(train, (2, sys.argv[2]), nprocs=2, start_method=sys.argv[1])
