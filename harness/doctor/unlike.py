"""Differences between ranks that may be intended: what they mean, and what to do about them; also the remedies for
PyTorch."""

from __future__ import annotations

from typing import Any

from .checks import OK, UNKNOWN, WARNING, Check
from .script import Rank

CALL_IT = (
    "the model is wrapped in DistributedDataParallel, but the training calls the model inside, so no gradient is "
    "averaged: call the wrapper (also in a train_step of Keras, instead of self(x))"
)
KEEP_TO_IT = (
    "DistributedDataParallel averages only gradients of the parameters that it wraps, after calls of the wrapper "
    "outside of no_sync: make all parameters before you wrap the model, wrap the whole model, and leave no_sync before "
    "the last batch of a step"
)
WRAP_IT = "wrap the model, and call the wrapper: model = torch.nn.parallel.DistributedDataParallel(model)"
START_IT = f"start it by torchrun, call torch.distributed.init_process_group() first, and {WRAP_IT}"
SAME_SAMPLES = "ranks that train on the same samples do the same work: "
SAMPLES = {
    "torch": (
        "DataLoader(dataset, sampler=torch.utils.data.DistributedSampler(dataset)), or an IterableDataset that yields "
        "each rank its own part"
    ),
    "jax": "each process gives fit its own part, x[process::processes], or a tf.data.Dataset that DataParallel divides",
    "tensorflow": (
        "ring divides the data given to model.fit; in your own loop use dataset.shard(ring.size(), ring.rank())"
    ),
}
TOTALS = {
    "torch": " (torch.distributed.all_reduce of totals and counts)",
    "jax": " (by jax.experimental.multihost_utils.process_allgather)",
    "tensorflow": " (ring.average_logs)",
}
Line = dict[str, Any]


def backend(line: Line) -> str:
    """The backend that trains: torch, jax or tensorflow."""
    return next((name for name in ("torch", "jax") if name in line), "tensorflow")


def of_torch(lines: list[Line]) -> str:
    """The remedy if the weights of PyTorch's ranks differ."""
    seen = [line["torch"] for line in lines]
    if any(one["ddp"] and not one["ddp_called"] for one in seen):
        return CALL_IT
    if all(one["ddp"] for one in seen):
        return KEEP_TO_IT
    return WRAP_IT if all(one["group"] for one in seen) else START_IT


def unseen(ranks: list[Rank]) -> list[Check]:
    """A check for each thing that doctor cannot see because a release lacks a private name."""
    return [
        Check("private names", UNKNOWN, f"no {', '.join(absent)}: {what} cannot be seen", None, {"absent": absent})
        for what, absent in ranks[0].unseen.items()
    ]


def parts(lines: list[Line]) -> str | None:
    """The reason why the ranks' weights cannot be compared: each rank has another part of the model. None if they
    can."""
    first, *others = ([each[0] for each in line["weights"]] for line in lines)
    if not first and (sharded := lines[0]["sharded"]):
        return (
            f"all {sharded} weights are sharded (FSDP, ZeRO, DTensor): each rank has another part of them, and there "
            "is nothing to compare"
        )
    for rank, other in enumerate(others, start=1):
        if other != first:
            return (
                f"rank 0 trains {len(first)} weights and rank {rank} trains {len(other)} with other names: the ranks "
                "have parts of a model (a pipeline?), and there is nothing to compare"
            )
    return None


def buffers(ranks: list[Rank]) -> list[Check]:
    """Report tensors that no gradient updates, such as statistics, and that differ between ranks. This is no fault."""
    last = min(rank.last_step for rank in ranks)
    first, *others = (rank.steps[last].get("buffers", []) for rank in ranks)
    names = [mine[0] for k, mine in enumerate(first) if any(o[k : k + 1] and o[k][1] != mine[1] for o in others)]
    if not names:
        return []
    text = (
        f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''} differ between ranks; gradients do not "
        "update them: each rank keeps its own statistics or random states, and a checkpoint has rank 0's "
        "(for BatchNorm with few samples per rank: torch.nn.SyncBatchNorm)"
    )
    return [Check("buffers", OK, text, None, {"differ": len(names), "of": len(first)})]


def metrics(ranks: list[Rank]) -> list[Check]:
    """Report whether Keras's loss and metrics agree on all ranks. In a PyTorch loop, report if no single numbers were
    exchanged."""
    common = set.intersection(*({k for k, line in rank.steps.items() if line.get("logs")} for rank in ranks))
    if not common:
        return _of_a_loop(ranks)
    step = max(common)
    first, *others = (rank.steps[step]["logs"] for rank in ranks)
    for rank, other in enumerate(others, start=1):
        for name, value in first.items():
            if name in other and other[name] != value:
                text = (
                    f"each rank has its own value: {name} after step {step} is {value:.4g} on rank 0, "
                    f"{other[name]:.4g} on rank {rank}"
                )
                by = TOTALS[backend(ranks[0].steps[step])]
                remedy = (
                    f"each value covers only that rank's samples: average them over the ranks{by} before callbacks "
                    "decide by them, or ranks stop at different epochs"
                )
                return [Check("metrics", WARNING, text, remedy, {"name": name, "step": step})]
    return [Check("metrics", OK, f"{', '.join(first)}: the same on all ranks after step {step}", None, {"step": step})]


def _of_a_loop(ranks: list[Rank]) -> list[Check]:
    last = [rank.steps.get(rank.last_step, {}).get("torch") for rank in ranks]
    if not all(seen and seen["group"] and not seen["numbers"] for seen in last):
        return []
    text = (
        f"in {ranks[0].last_step} steps the ranks exchanged no loss or other single number: what the loop prints "
        "describes one rank's samples"
    )
    remedy = "average it first: torch.distributed.all_reduce(value, torch.distributed.ReduceOp.AVG), or torchmetrics"
    return [Check("metrics", UNKNOWN, text, remedy)]
