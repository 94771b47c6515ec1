"""Judge from what doctor observed whether a script's ranks train together: one `Check` per question."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from profiles.ground import threads
from profiles.ground.numbers import counted

from . import devices, unlike
from .checks import FAILURE, OK, UNKNOWN, WARNING, Check
from .devices import TWO_LINES
from .script import Observed, Rank

HOROVODS = "Horovod's own Keras optimizer reduces nothing under Keras 3: take it out, and "
BY_HAND = (
    "give every gradient to hvd.allreduce before the optimizer applies it, and broadcast the first weights; or "
    + TWO_LINES
)
BY_RING = (
    "something other than the distributed optimizer updates this weight: update it by an optimizer that the model "
    "holds when ring.distribute(model) is called, or average the gradients first: ring.average_gradients(gradients)"
)
BROADCAST = (
    "send rank 0's first weights to all ranks, as torch.nn.parallel.DistributedDataParallel and ring.distribute do, or "
    "give all ranks one seed before the model is made"
)
# if each rank drew this many samples before its first repeated one, only the samples before it are compared
FIRST_EPOCH = 32
DISTINCT = 0.9  # share of a rank's samples that must be distinct, else equal samples on two ranks prove nothing
Line = dict[str, Any]


def judge(found: Observed) -> list[Check]:
    """All checks on a script. If every rank took steps, they say whether the ranks' weights, data, buffers and metrics
    agree, whether all devices of each rank train, and whether the host has cores for all loader workers."""
    checks, ranks = [_script(found), *unlike.unseen(found.ranks)], found.ranks
    if all(rank.last_step for rank in ranks):
        if len(ranks) > 1:
            data, apart = _data(ranks)
            checks += [_weights(ranks, apart), data, *unlike.buffers(ranks), *unlike.metrics(ranks)]
        checks += [*devices.replicas(ranks), *devices.used(ranks), *_loaders(ranks)]
    return checks


def _script(found: Observed) -> Check:
    ranks, command = found.ranks, shlex.join(found.trial.command)
    steps = [rank.last_step for rank in ranks]
    data = {"steps": steps, "ended": [rank.end for rank in ranks], "command": list(found.trial.command)}
    failed = sorted((rank for rank in ranks if _failed(rank)), key=lambda rank: rank.ended_at)
    if failed:
        data["log"] = failed[0].log.strip().splitlines()[-20:]
        return Check("script", FAILURE, _how_it_failed(failed[0]), _mend(found), data)
    if not any(steps) and ranks[0].backend not in (None, "tensorflow", "torch", "jax"):
        text = f"Keras runs on {ranks[0].backend}; doctor sees the steps of Keras on TensorFlow, PyTorch and JAX alone"
        return Check("script", FAILURE, text, "set KERAS_BACKEND to tensorflow, torch or jax", data)
    waiting = [rank for rank in ranks if not rank.done and rank.end is None]
    if waiting and (found.hung or found.late):
        return _waiting(found, waiting[0], data)
    if waiting:  # the launcher ended, but some ranks never started
        lines = found.launcher_log.strip().splitlines()
        return Check("script", FAILURE, f"not started: {lines[-1][:300] if lines else command}", _mend(found), data)
    if not all(steps):
        if any(rank.unseen for rank in ranks):
            return Check("script", UNKNOWN, f"{command} ended, and its steps could not be seen", None, data)
        if not any(rank.pid for rank in ranks):
            text = f"{command} ended, and ringscope could not observe its Python process"
            return Check(
                "script", FAILURE, text, "run the script with the Python in which ringscope is installed", data
            )
        if ranks[steps.index(0)].backend == "jax":
            text = (
                f"{command} ended, and on rank {steps.index(0)} Keras's fit took no step: nothing is known of a loop "
                "of the script's own, which JAX compiles"
            )
            return Check("script", UNKNOWN, text, None, data)
        text = f"{command} ended, and on rank {steps.index(0)} no optimizer of Keras or PyTorch took a step"
        remedy = (
            "ringscope sees only steps of Keras 3 and of PyTorch; if the script uses one of them, give the command the "
            "arguments with which it really trains"
        )
        return Check("script", FAILURE, text, remedy, data)
    if len(set(steps)) > 1 and not all(rank.done for rank in ranks):
        few, many = min(ranks, key=lambda rank: rank.last_step), max(ranks, key=lambda rank: rank.last_step)
        text = f"rank {few.number} took {counted(few.last_step, 'step')}, but rank {many.number} took {many.last_step}"
        return Check(
            "script", WARNING, text, "give all ranks the same number of batches, or one rank waits for the other", data
        )
    by = "then ended by ringscope" if all(rank.done for rank in ranks) else "then it ended"
    starts = found.trial.launcher if found.trial.own or len(ranks) == found.trial.ranks else "started by the script"
    took = counted(min(steps), "step")
    who = f"{len(ranks)} ranks, {starts}: {took} each" if len(ranks) > 1 else f"1 rank: {took}"
    return Check("script", OK, f"{who}, {by}", None, data)


def _failed(rank: Rank) -> bool:
    """True if this rank failed by itself: a launcher ends ranks with a signal when another one has failed."""
    return rank.end is not None and (bool(rank.end["exit_code"]) or rank.end["signal"] not in (None, 9, 15))


def _how_it_failed(rank: Rank) -> str:
    assert rank.end is not None
    how = f"exit code {rank.end['exit_code']}" if rank.end["signal"] is None else f"signal {rank.end['signal']}"
    # A function that TensorFlow traces fails with `SomeError: in user code:`; the error itself follows, indented.
    error = re.compile(r"\s*[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)(: (?!in user code:)|$)")
    lines = [line for line in rank.log.splitlines() if error.match(line)]
    said = (lines or rank.log.strip().splitlines() or [""])[-1].strip()[:300]
    at = f" (at {own[-1]})" if (own := _own_lines(rank.log)) else ""
    return f"rank {rank.number} failed after {counted(rank.last_step, 'step')} ({how}): {said}{at}"


def _mend(found: Observed) -> str:
    alone = f"first make the script run without ringscope: {shlex.join(found.trial.command)}"
    here = "; the script ran in a copy of this folder: if it needs other files by relative paths, add --in-place"
    return alone + ("" if found.trial.in_place else here)


def _waiting(found: Observed, rank: Rank, data: dict[str, Any]) -> Check:
    where = _where(rank.stack)
    at = f" at {where}" if where else ""
    others = [other for other in found.ranks if other.done or other.end is not None]
    if others:
        text = (
            f"rank {rank.number} took {counted(rank.last_step, 'step')} and then stopped{at}, while rank "
            f"{others[0].number} took {others[0].last_step}: rank {rank.number} waits for an exchange that rank "
            f"{others[0].number} never starts"
        )
        remedy = "give every rank the same number of steps, and make each collective call on all ranks"
    else:
        how_far = f"took {rank.last_step}{at}" if rank.pid else "had not begun"
        text = f"not enough steps within {found.trial.limit_s:g} s: rank {rank.number} {how_far}"
        remedy = "if the script is only slow, raise --time-limit or lower --steps; otherwise a rank hangs there"
    return Check("script", FAILURE, text, remedy, data | {"stack": rank.stack.splitlines()[-40:]})


def _where(stack: str) -> str:
    """The innermost line of the user's own code on the main thread, whose stack is written last, innermost first."""
    own = _own_lines(re.split(r"(?m)^(?:Current thread|Thread) .*$", stack)[-1])
    return own[0] if own else ""


def _own_lines(stacks: str) -> list[str]:
    """The lines of the user's own code in Python's stacks, in their order: `train.py:40`."""
    frames = re.findall(r'File "([^"]+)", line (\d+),? in', stacks)
    others = re.compile(r"site-packages|/lib/python3|/harness/|/ringscope/(ring|places)/|^<")
    return [f"{Path(path).name}:{line}" for path, line in frames if not others.search(path)]


def _weights(ranks: list[Rank], apart: bool) -> Check:
    """Compare the ranks' weights. apart: the ranks took different samples, so equal weights prove that gradients were
    exchanged."""
    shared = sorted(set.intersection(*(set(rank.steps) for rank in ranks)))
    common = [step for step in shared if step]
    lines = [rank.steps[rank.last_step] for rank in ranks]
    ring, horovod = (all(line[what] for line in lines) for what in ("ring", "horovod"))
    values, exchanged = (min(line[what] for line in lines) for what in ("elements", "exchanged"))
    data: dict[str, Any] = {"compared_after": common, "values": values, "exchanged_values": exchanged, "ring": ring}
    if not common:
        return Check(
            "weights", UNKNOWN, "the ranks share no step after which their weights could be compared", None, data
        )
    last = common[-1]
    remedy = BY_RING if ring else BY_HAND if horovod else TWO_LINES
    if any(line["horovods_optimizer"] for line in lines):
        remedy = HOROVODS + TWO_LINES
    if (backend := unlike.backend(lines[0])) != "tensorflow":
        remedy = unlike.of_torch(lines) if backend == "torch" else devices.of_jax(lines)
        if parts := unlike.parts(lines):
            return Check("weights", UNKNOWN, parts, None, data)
    for step in shared:
        differing = _differing([rank.steps[step] for rank in ranks])
        if differing:
            name, rank, by, count = differing
            when = f"after step {step}" if step else "before the first step"
            text = f"each rank trains alone: {name} differs between rank 0 and rank {rank} {when}, by {by:.2g}"
            text += f", and {count - 1} of the other variables, too" if count > 1 else ""
            if step == 0 and not _differing([rank.steps[last] for rank in ranks]):
                continue  # the script sends rank 0's weights to all ranks within its first step
            if step == 0 and exchanged >= values:  # averaged gradients do not remove a first difference
                text = text.replace("each rank trains alone:", "each rank began with weights of its own:")
                remedy = BROADCAST
            later = [k for k in common if k > step and not _differing([rank.steps[k] for rank in ranks])]
            if later and exchanged:
                text = f"the ranks' weights differ after step {step} and are equal again after step {later[0]}"
                remedy = "right if the script averages weights now and then; otherwise average gradients in each step"
                return Check("weights", WARNING, text, remedy, data)
            return Check("weights", FAILURE, text, remedy, data | {"variable": name, "step": step, "difference": by})
    if not apart and exchanged < values / 2 and not (ring and exchanged) and not _unseen(ranks, lines):
        text = (
            "the weights are equal on all ranks only because each rank trains alone on the same samples from the same "
            f"seed: {exchanged or 'no'} values were exchanged, and the model has {values} weights"
        )
        return Check("weights", FAILURE, text, remedy, data)
    first = [rank.steps.get(0) or rank.steps[common[0]] for rank in ranks]
    if len(common) > 1 and first[0]["weights"] == ranks[0].steps[last]["weights"]:
        return Check("weights", WARNING, "no weight changed: nothing is trained", "look at the learning rate", data)
    variables = len(lines[0]["weights"])
    text = f"{variables} variables, {values} values, bit-equal on all ranks after each of {len(common)} steps"
    if sharded := lines[0].get("sharded", 0):
        text += f"; {sharded} more are sharded and not compared, because each rank has another part of them"
    return Check("weights", OK, text, None, data)


def _unseen(ranks: list[Rank], lines: list[Line]) -> bool:
    """True if gradients may be exchanged in a way that doctor does not see."""
    return bool(lines[0].get("exchanges_unseen") or ranks[0].unseen)


def _differing(lines: list[Line]) -> tuple[str, int, float, int] | None:
    """(first variable that differs, its rank, the largest difference in the compared values, number of variables that
    differ); None if all are equal."""
    found = []
    for rank, line in enumerate(lines[1:], start=1):
        for mine, theirs in zip(lines[0]["weights"], line["weights"], strict=False):
            if mine[1] != theirs[1]:
                by = max((abs(a - b) for a, b in zip(mine[2], theirs[2], strict=False)), default=0.0)
                found.append((mine[0], rank, by))
    return (*found[0], len({name for name, _, _ in found})) if found else None


def _data(ranks: list[Rank]) -> tuple[Check, bool]:
    """Judge the ranks' samples: how many samples they share. Also returns True if the samples are known to differ
    between ranks."""
    last = min(rank.last_step for rank in ranks)
    if len(ranks := devices.of_each_part(ranks)) == 1:
        text = (
            f"{len(_rows(ranks[0], last) or ())} samples in {last} steps, the same on all ranks: each rank has a part "
            "of one model"
        )
        return Check("data", OK, text), False
    rows = [_rows(rank, last) for rank in ranks]
    if any(each is None for each in rows):
        text = (
            "the samples of a step cannot be seen: they come neither from `fit`, a data set or a DataLoader, nor as "
            "arguments of a tf.function or of DistributedDataParallel"
        )
        return Check("data", UNKNOWN, text), False
    taken = [each for each in rows if each is not None]
    firsts = [_until_repeated(each) for each in taken]
    judged = firsts if min(map(len, firsts)) >= FIRST_EPOCH else taken
    kinds = [set(each) for each in judged]
    common = set.intersection(*kinds)
    # A few common samples count as none: they come from a second epoch, which began in another order.
    if judged != taken and len(common) <= (1 - DISTINCT) * min(map(len, judged)):
        common = set()
    counts = " and ".join(str(len(each)) for each in taken)
    data = {"samples": [len(each) for each in taken], "in_common": len(common)}
    if any(len(kind) < DISTINCT * len(each) for kind, each in zip(kinds, judged, strict=True)):
        return Check("data", UNKNOWN, f"{counts} samples, too many of them equal to compare", None, data), not common
    if not common:
        anew = ", until samples came a second time" if set.intersection(*map(set, taken)) else ""
        return Check("data", OK, f"{counts} samples in {last} steps, none of them on two ranks{anew}", None, data), True
    share = "the same samples on all ranks" if all(kind == common for kind in kinds) else f"{len(common)} in common"
    remedy = unlike.SAME_SAMPLES + unlike.SAMPLES[unlike.backend(ranks[0].steps[last])]
    text = f"{counts} samples in {last} steps: {share}"
    return Check("data", WARNING, text, remedy, data), any(kind != common for kind in kinds)


def _until_repeated(rows: list[str]) -> list[str]:
    """The samples before the first one that comes a second time: the first epoch, or a part of it."""
    seen: set[str] = set()
    for at, row in enumerate(rows):
        if row in seen:
            return rows[:at]
        seen.add(row)
    return rows


def _loaders(ranks: list[Rank]) -> list[Check]:
    """Check that this host has a core for each loader worker of all ranks."""
    lines = [rank.steps[rank.last_step] for rank in ranks]
    workers, cores = max(line["workers"] for line in lines), len(set().union(*(line["cores"] for line in lines)))
    if workers <= 1:
        return []
    data = {"workers": workers, "ranks": len(ranks), "cores": cores}
    if told := threads.loaders_over_cores(workers, len(ranks), cores):
        return [Check("loaders", WARNING, *told, data)]
    return [Check("loaders", OK, f"{workers} loader workers on each of {len(ranks)} ranks, {cores} cores", None, data)]


def _rows(rank: Rank, last: int) -> list[str] | None:
    lines = [rank.steps[step] for step in sorted(rank.steps) if 0 < step <= last]
    rows: list[str] = []
    for line in lines:
        if line["rows"] is None:
            return None
        rows += line["rows"]
    return rows
