"""A loop of PyTorch's under torchrun; the word says what is wrong with it, or special."""

import contextlib
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

how = sys.argv[1]
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank() if how == "alone" else 3)
norm = [] if "fsdp" in how else [torch.nn.BatchNorm1d(16)]
model = torch.nn.Sequential(torch.nn.Linear(8, 16), *norm, torch.nn.ReLU(), torch.nn.Linear(16, 1))
if how == "fsdp":
    from torch.distributed.fsdp import fully_shard

    fully_shard(model, mesh=dist.init_device_mesh("cpu", (2,)))
wrapped = how not in ("alone", "same_seed", "fsdp")
called = torch.nn.parallel.DistributedDataParallel(model) if wrapped and "fsdp" not in how else model
if how in ("flat_fsdp", "views_fsdp"):
    from torch.distributed.fsdp import FullyShardedDataParallel

    called = model = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=how == "views_fsdp")
if how == "inside":
    called = called.module
optimizer = torch.optim.SGD(model.parameters(), 0.05)
if how == "zero":
    from torch.distributed.optim import ZeroRedundancyOptimizer

    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
x = torch.randn(256, 8, generator=torch.Generator().manual_seed(1))
data = TensorDataset(x, x[:, :1])
loader = DataLoader(data, 16, sampler=None if how in ("no_sampler", "same_seed") else DistributedSampler(data))
for a, b in loader:
    optimizer.zero_grad()
    with called.no_sync() if how == "no_sync" else contextlib.nullcontext():
        loss = torch.nn.functional.mse_loss(called(a), b)
        loss.backward()
    optimizer.step()
    if how == "reduces":
        dist.all_reduce(loss.detach())
    with torch.no_grad():  # all ranks validate on the same samples
        for c, _ in DataLoader(data, 64):
            model(c)
dist.destroy_process_group()
