"""Judge whether the devices of one process train together: replicas of TensorFlow's strategies, layouts of JAX."""

from __future__ import annotations

from typing import Any

from .checks import FAILURE, OK, WARNING, Check
from .script import Rank

TWO_LINES = (
    "add two lines: `from ringscope import ring; ring.init()` as the script's first, and `ring.distribute(model)` "
    "after model.compile(...) (docs/guides/train.md)"
)
IN_SCOPE = "make and compile the model in `with strategy.scope():`"
LAY_OUT = "before the model is made call keras.distribution.set_distribution(keras.distribution.DataParallel())"
INITIALIZE = f"call keras.distribution.initialize(...) first in each process, and {LAY_OUT}"
DIVIDE = (
    "no key of the LayoutMap matches a weight's path; a key must match the whole v.path, as by re.fullmatch: mend the "
    f"keys ('.*dense/kernel'), give the mesh an axis for the batch, or {LAY_OUT}"
)
Line = dict[str, Any]


def are_one_process(ranks: list[Rank]) -> bool:
    """True if every rank trains alone on several devices: the same training was started several times."""
    lines = [rank.steps[rank.last_step] for rank in ranks if rank.last_step]
    return len(ranks) > 1 and len(lines) == len(ranks) and all(map(_is_alone, lines))


def _is_alone(line: Line) -> bool:
    alone = line.get("jax", {}).get("processes", 1) == 1 and not (line["ring"] or line["horovod"])
    return alone and (line["replicas"]["count"] > 1 or line.get("jax", {}).get("used", 1) > 1)


def of_jax(lines: list[Line]) -> str:
    """The remedy if ranks of Keras on JAX have different weights."""
    return INITIALIZE if any(line["jax"]["processes"] == 1 for line in lines) else LAY_OUT


def of_each_part(ranks: list[Rank]) -> list[Rank]:
    """One rank for each part of JAX's batch, because ranks that get the same part hold one model together."""
    found: dict[str, Rank] = {}
    for rank in ranks:
        part = rank.steps[rank.last_step].get("part")
        found.setdefault(str(part or rank.number), rank)
    return list(found.values())


def replicas(ranks: list[Rank]) -> list[Check]:
    """Check that the copies of each weight on a rank's devices are equal."""
    lines = [(rank, rank.steps[step]) for rank in ranks for step in sorted(rank.steps)]
    count = max(line["replicas"]["count"] for _, line in lines)
    made = max(line["replicas"].get("of", 1) for _, line in lines)
    data = {"replicas": count}
    if count < 2:
        text = f"only 1 of the {made} devices of the strategy trains: the model was made outside of strategy.scope()"
        return [Check("replicas", WARNING, text, IN_SCOPE, data)] if made > 1 else []
    for rank, line in lines:
        if line["replicas"]["apart"]:
            name, replica, by = line["replicas"]["apart"]
            text = (
                f"each replica of the strategy trains alone: {name} differs between replica 0 and replica {replica} of "
                f"rank {rank.number} after step {line['step']}, by {by:.2g}"
            )
            remedy = (
                "some releases of Keras 3 do not reduce gradients under a strategy: leave the strategy's scope, and "
                f"{TWO_LINES}"
            )
            return [Check("replicas", FAILURE, text, remedy, data | {"variable": name, "difference": by})]
    return [Check("replicas", OK, f"{count} replicas in each rank, equal after each step", None, data)]


def used(ranks: list[Rank]) -> list[Check]:
    """Check that each of JAX's devices takes part in the training, and that not all of them do the same work."""
    lines = [rank.steps[rank.last_step] for rank in ranks]
    worst = min(lines, key=lambda line: line.get("jax", {"used": 0})["used"])
    data = worst.get("jax")
    if data is None or data["here"] < 2:
        return []
    if data["used"] < data["here"]:
        text = f"{data['used']} of the {data['here']} devices of a process train: the others do nothing"
        return [Check("devices", WARNING, text, LAY_OUT, data)]
    if data["parts"] == 1 and not worst["sharded"]:
        text = f"all {data['used']} devices do the same work: each has all weights, and takes the whole batch"
        return [Check("devices", WARNING, text, DIVIDE, data)]
    text = (
        f"{data['used']} devices: the batch is cut into {data['parts']} parts, and {worst['sharded']} weights are "
        "sharded"
    )
    return [Check("devices", OK, text, None, data)]
