"""How long a GPU takes from kernel to kernel on one stream, by how many other streams have launched kernels.

    python benchmarks/streams.py [--use kernel|copy|event] [--most 8]        # needs PyTorch and a GPU

Nothing runs or waits on the other streams while it measures: each has launched one kernel (or made one copy, or
recorded one event) before. CUDA_DEVICE_MAX_CONNECTIONS may be set around it. Prints one line per number of streams:
nanoseconds from start to start of a kernel over 4096 floats, in a CUDA graph and launched one by one.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch

KERNELS = 1000
REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--use", choices=("kernel", "copy", "event"), default="kernel")
    parser.add_argument("--most", type=int, default=8, help="other streams at most")
    options = parser.parse_args()
    stream = torch.cuda.Stream()
    torch.cuda.set_stream(stream)
    numbers, others, pinned = torch.zeros(4096, device="cuda"), torch.zeros(4096, device="cuda"), torch.zeros(4096)
    pinned = pinned.pin_memory()

    def launch() -> None:
        for _ in range(KERNELS):
            numbers.add_(1)

    launch()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        launch()
    for count in range(options.most + 1):
        if count:
            with torch.cuda.stream(torch.cuda.Stream()):
                if options.use == "kernel":
                    others.add_(1)
                elif options.use == "copy":
                    others.copy_(pinned, non_blocking=True)
                else:
                    torch.cuda.Event().record()
        in_graph_ns, launched_ns = a_kernel_ns(graph.replay), a_kernel_ns(launch)
        print(f"{count} other streams: in a graph {in_graph_ns:5.0f} ns, launched {launched_ns:5.0f} ns", flush=True)


def a_kernel_ns(launch: Callable[[], None]) -> float:
    """Median over REPEATS. The GPU is kept busy until all is launched, so that the host's time does not count."""
    taken_ns = []
    for _ in range(REPEATS):
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(20_000_000)
        before.record()
        launch()
        after.record()
        torch.cuda.synchronize()
        taken_ns.append(before.elapsed_time(after) * 1e6 / KERNELS)
    return statistics.median(taken_ns)


if __name__ == "__main__":
    main()
