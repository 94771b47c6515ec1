"""One of benchmarks/fit.py's models in PyTorch: torch.compile, DistributedDataParallel; prints one line of JSON.

    torchrun --nproc-per-node 2 -m benchmarks.peers.fit_torch --model decoder

bfloat16 autocast, convolutions channels last, fused optimizers, batches from a pool in pinned memory, one step ahead on
a stream of their own: no data loader's work is counted against it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from contextlib import nullcontext
from typing import Any

import numpy as np
import psutil
import torch
import torch.distributed as dist

from benchmarks import fit
from benchmarks.peers.torch_families import FAMILIES
from benchmarks.peers.torch_today import IMAGES as OF_TODAY
from benchmarks.peers.torch_today import TODAY

MODELS = FAMILIES | TODAY
IMAGES = {"resnet50", "convnext_tiny", "efficientnetv2b0", "vit_s", "unet", *OF_TODAY}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=tuple(MODELS), required=True)
    parser.add_argument("--samples", type=int, help="of one GPU's batch; default: the family's")
    parser.add_argument("--steps", type=int, default=60, help="of an epoch")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    run(parser.parse_args())


def run(options: argparse.Namespace) -> None:
    born_s = psutil.Process().create_time()
    local, ranks = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(local)
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
    if ranks > 1:
        dist.init_process_group("nccl" if cuda else "gloo", device_id=device if cuda else None)
    torch.manual_seed(0)
    family = fit.MODELS[options.model]
    samples = options.samples or family.samples
    layout: Any = {"memory_format": torch.channels_last} if options.model in IMAGES else {}
    model: Any = MODELS[options.model]().to(device, **layout)
    if ranks > 1:
        ids = [local] if cuda else None
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True)
    weights = model.parameters()
    if family.optimizer == "sgd":
        optimizer: Any = torch.optim.SGD(weights, 0.01, momentum=0.9, fused=cuda)
    else:
        optimizer = torch.optim.AdamW(weights, 1e-4, weight_decay=0.004, fused=cuda)
    trained = model if options.eager else torch.compile(model)
    loss_of = torch.nn.functional.cross_entropy
    random = np.random.default_rng(local)
    pool = [_tensors(family.batch(random, samples), cuda) for _ in range(4)]
    copies: Any = torch.cuda.Stream() if cuda else None

    def fetch(number: int) -> Any:
        with torch.cuda.stream(copies) if cuda else nullcontext():
            return _mapped(lambda t: t.to(device, non_blocking=True), pool[number % len(pool)])

    def step(batch: Any) -> torch.Tensor:
        x, y, *weights = batch
        with torch.autocast(device.type, torch.bfloat16):
            out = trained(x)
            out, y = (out.flatten(0, 1), y.flatten()) if out.dim() == 3 else (out, y)
            if weights:
                loss = (loss_of(out, y.long(), reduction="none") * weights[0].flatten()).mean()
            else:
                loss = loss_of(out, y.long())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    rates, first_s = [], 0.0
    for _ in range(options.epochs):
        coming = fetch(0)
        began_s, total = time.time(), torch.zeros((), device=device)
        for i in range(options.steps):
            batch = coming
            if cuda:
                torch.cuda.current_stream().wait_stream(copies)
                _mapped(lambda t: t.record_stream(torch.cuda.current_stream()), batch)
            coming = fetch(i + 1)
            total += step(batch)
            if not first_s:
                float(total)
                first_s = time.time()
        loss = float(total) / options.steps  # waits for the device
        rates.append(options.steps * samples * ranks / (time.time() - began_s))
    if local == 0:
        facts = {"way": "torch", "model": options.model, "gpus": ranks, "samples_per_gpu": samples}
        measured = {
            "samples_per_s": round(max(rates[1:] or rates), 1),
            "epochs_samples_per_s": [round(rate, 1) for rate in rates[1:] or rates],
            "first_step_s": round(first_s - born_s, 1),
            "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2) if cuda else None,
            "loss": round(loss, 4),
            "version": torch.__version__ + (" eager" if options.eager else " compiled"),
        }
        print(json.dumps(facts | measured), flush=True)
    if ranks > 1:
        dist.destroy_process_group()


def _tensors(batch: Any, pinned: bool) -> Any:
    """(inputs, labels) as tensors of the host, in pinned memory where there is a GPU."""

    def tensor(array: Any) -> torch.Tensor:
        made = torch.from_numpy(array)
        return made.pin_memory() if pinned else made

    return _mapped(tensor, batch)


def _mapped(function: Any, nested: Any) -> Any:
    if isinstance(nested, dict):
        return {key: _mapped(function, value) for key, value in nested.items()}
    if isinstance(nested, (tuple, list)):
        return tuple(_mapped(function, value) for value in nested)
    return function(nested)


if __name__ == "__main__":
    main()
