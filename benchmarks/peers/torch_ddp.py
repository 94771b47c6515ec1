"""ResNet-50 in PyTorch DistributedDataParallel: bfloat16 autocast, channels-last, uint8 images from pinned memory.

    torchrun --nproc-per-node 4 benchmarks/peers/torch_ddp.py --batch 256 --steps 40 --warmup 10 [--compile]

Prints one JSON line: images per second over all GPUs, by the slowest rank's clock.
"""

from __future__ import annotations

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torchvision


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=256, help="images per GPU")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    options = parser.parse_args()
    local = int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    torch.backends.cudnn.benchmark = True
    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[local], gradient_as_bucket_view=True)
    trained = torch.compile(model) if options.compile else model
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, fused=True)
    loss_function = torch.nn.CrossEntropyLoss()
    pool = [
        (
            torch.randint(0, 256, (options.batch, 3, 224, 224), dtype=torch.uint8)
            .contiguous(memory_format=torch.channels_last)
            .pin_memory(),
            torch.randint(0, 1000, (options.batch,)).pin_memory(),
        )
        for _ in range(4)
    ]
    copies = torch.cuda.Stream()

    def fetch(i: int) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.cuda.stream(copies):
            return tuple(t.cuda(non_blocking=True) for t in pool[i % len(pool)])  # type: ignore[return-value]

    def run(steps: int) -> None:
        coming = fetch(0)
        for i in range(steps):
            torch.cuda.current_stream().wait_stream(copies)
            x, y = coming
            for tensor in coming:
                tensor.record_stream(torch.cuda.current_stream())
            coming = fetch(i + 1)
            with torch.autocast("cuda", torch.bfloat16):
                loss = loss_function(trained(x.float().div_(127.5).sub_(1.0)), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()

    run(options.warmup)
    torch.cuda.synchronize()
    dist.barrier()
    start = time.perf_counter()
    run(options.steps)
    torch.cuda.synchronize()
    seconds = torch.tensor(time.perf_counter() - start, device="cuda")
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        images = options.batch * options.steps * dist.get_world_size()
        facts = {"gpus": dist.get_world_size(), "per_rank_batch": options.batch, "compile": options.compile}
        rate = {"images_per_s_global": round(images / seconds.item(), 1)}
        print(json.dumps({"peer": f"PyTorch {torch.__version__} DDP", **facts, **rate}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
