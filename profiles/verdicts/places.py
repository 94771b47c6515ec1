"""Findings on places: parts of the user's own code that keep the GPU waiting, with file, line and a remedy.

A place that explains most of the price of a general finding, such as `launch-bound`, replaces that finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ..ground import numbers
from ..ground.numbers import share as percent
from ..model.findings import Finding
from ..model.places import SAMPLED, Place
from .case import Case
from .shared_advice import DATA_LOADER, PY_DATASET

# Kind of a place (callback, data loader, ...) -> code of the finding on it.
CODES: Final[Mapping[str, str]] = {
    "callback": "slow-callback",
    "saving": "slow-callback",
    "validation": "slow-callback",
    "eager": "eager-step",
    "dataset": "slow-batches",
    "loader": "slow-batches",
    "map": "slow-batches",
    "parallel-map": "slow-batches",
    "generator": "slow-batches",
    "py_function": "python-function-in-the-graph",
    "gc": "garbage-collection",
    "python": "slow-line",
    "call": "slow-line",
}
LOCK: Final = "lock-between-threads"
BATCHES: Final = "slow-batches"
# General findings. A place that explains most of their idle time replaces them, since the place names the line.
GENERAL: Final = frozenset(
    {
        "python-in-the-loop",
        "launch-bound",
        "loss-fetched-every-step",
        "host-synchronises",
        "tiny-batch",
        "short-kernels",
        "input-pipeline-slow",
        "no-prefetch",
        "prefetch-on-host-only",
        "memory-allocated-in-the-loop",
    }
)
# Every eager step has these findings, so `eager-step` replaces them whatever their price.
OF_EAGER: Final = frozenset({"not-compiled", "short-kernels", "tiny-batch", "unfused-batch-norm"})
# Places replace a general finding if they explain at least this share of the time that it would save.
_EXPLAINS: Final = 0.5
_SOURCE: Final = 60  # Texts show this many characters of a source line.

# Kind of work -> pattern for a source line and the library function it calls; the first pattern that fits counts.
_DOES: Final = (
    ("import", r"^\s*(?:import|from)\s"),
    (
        "lock",
        r"threading\.Lock|\.acquire\(|\bwith\b.*lock|\block\b|\.join\(|Condition|\.wait\(|queue\.|Queue\.get|\.result\(",
    ),
    ("sleep", r"\bsleep\("),
    ("network", r"urlopen|\brequests\.|\bhttpx?\.|urllib|\bsocket|\bpost\(|\bwandb\.|\bmlflow\."),
    ("predict", r"\.predict(?:_on_batch)?\("),
    ("draw", r"savefig|imsave|\bplt\.|matplotlib|PIL\.Image\.(?:Image\.)?save|ImageDraw"),
    ("save", r"\bsave(?:_weights|_model|_checkpoint|z|z_compressed)?\(|torch\.save|h5py|state_dict|pickle"),
    ("print", r"\bprint\(|logging|logger|\blog\.(?:info|debug|warning)|stdout|stderr|\.flush\("),
    ("write", r"\bdump\(|write_text|write_bytes|savetxt|\.write\(|writerows?\(|to_(?:csv|json|parquet)\(|\bopen\("),
    (
        "fetch",
        r"get_weights|\.numpy\(|\.item\(|\.cpu\(|\.tolist\(|device_get|convert_to_numpy|asarray\(|float\(|get_value",
    ),
    ("numpy", r"\bnp\.|numpy|scipy"),
    ("loop", r"^\s*(?:for|while)\b|\bfor\b.*\bin\b"),
)
# Functions that compute the step: no other time or thread can do what they do, so they are no finding by themselves.
_COMPUTES: Final = re.compile(r"(?:.*\.)?(?:forward|call|__call__|compute_loss|train(?:ing)?_step)")
_REMEDIES: Final = {
    "import": "import at the top of the file; if the program was starting, record later (ringscope record --delay)",
    "lock": "do not wait for the other thread in every step: hand it a copy by queue.put_nowait, hold the lock for the "
    "copy alone",
    "sleep": "do not sleep in the loop: wait in a separate thread",
    "network": "do not wait for a server in the loop: send every hundredth step, or from a thread with a queue",
    "predict": "predict at the end of an epoch, or every hundredth step, in one batch: model.predict_on_batch(x)",
    "draw": "draw and write pictures at the end of an epoch, or in a separate process",
    "save": 'save less often (ModelCheckpoint\'s save_freq="epoch", or thousands of batches), save weights alone '
    "(save_weights_only=True), or write in a thread",
    "write": "keep the lines in memory and write them every hundredth step, or at the end of an epoch, or in a thread",
    "print": "print or log every hundredth step, or at the end of an epoch",
    "fetch": "do not fetch values from the GPU in every step: every hundredth, or compute the number in the step, as a "
    "metric, and read that at the end of an epoch",
    "numpy": "compute it on the GPU in the step (with Keras keras.ops or a Metric), or every hundredth step, or in a "
    "thread",
    "loop": "replace the Python loop over samples by operations on the whole batch",
    "python": "do it every hundredth step, or in a thread",
}
_OF_KIND: Final = {
    "eager": "take out run_eagerly=True (and tf.config.run_functions_eagerly); look into one batch by "
    "model.train_step(batch) instead",
    "dataset": PY_DATASET,
    "loader": f"{DATA_LOADER}; less work per sample",
    "map": "num_parallel_calls=tf.data.AUTOTUNE for this stage, which takes one element after another (use interleave "
    "instead of flat_map), and dataset.prefetch(tf.data.AUTOTUNE) at the end; .cache() after the part that is the "
    "same in each epoch",
    "parallel-map": "less work in the pipeline: .cache() after the part that is the same in each epoch, .batch before "
    ".map if the map takes whole batches, more cores per rank; dataset.prefetch(tf.data.AUTOTUNE) at the end",
    "generator": "a generator makes one batch at a time: use a keras.utils.PyDataset or PyTorch's DataLoader with as "
    "many workers as a rank has cores",
    "py_function": "use TensorFlow's operations instead of the function's Python, which runs on one thread and which "
    "XLA cannot compile; in a pipeline: dataset.map(..., num_parallel_calls=tf.data.AUTOTUNE)",
    "gc": "no gc.collect() in every step; gc.freeze() before the training and gc.disable() in it, with gc.collect() at "
    "the end of an epoch; make fewer objects that hold each other",
    "validation": "validate less often (validation_freq), or on fewer batches (validation_steps)",
    "saving": _REMEDIES["save"],
}

# Remedies for Keras's own callbacks: their options.
_OF_KERAS: Final = {
    "TensorBoard": 'TensorBoard(update_freq="epoch", or thousands of batches; histogram_freq=0; '
    "write_steps_per_second=False)",
    "ModelCheckpoint": _REMEDIES["save"],
    "BackupAndRestore": 'BackupAndRestore(save_freq="epoch", or thousands of batches)',
}


def findings(case: Case) -> Iterator[Finding]:
    """A finding for each place that keeps this GPU idle for long enough to be worth a sentence."""
    if case.gpu.places is None or not case.trains:
        return
    for place in case.gpu.places.rows:
        if place.kind in CODES and not _computes(place) and (found := _finding(case, place)) is not None:
            yield found


def saved(place: Place) -> dict[str, int]:
    """owner -> ns that the remedy would save. That is the place's idle time without waiting for other ranks; if the
    place is a call of a framework, launch idle does not count either."""
    left_out = {"idle_peers"} | ({"idle_launch"} if place.kind == "call" else set())
    return {owner: ns for owner, ns in place.ns.items() if owner not in left_out}


def does(place: Place) -> str:
    """The kind of work at the place (a key of _REMEDIES), by the source line at which most samples were taken."""
    if place.kind in ("saving", "validation"):
        return "save" if place.kind == "saving" else "python"
    told = [f"{line.source} {line.via}" for line in place.lines[:1]] or [place.name]
    fits = (what for what, pattern in _DOES if any(re.search(pattern, text) for text in told))
    return next(fits, "python")


def is_the_users(place: Place) -> bool:
    """True if the place is a part of the user's own code; False if normal steps need it, too: a framework's call, or
    the model's own computation."""
    return place.kind in CODES and place.kind != "call" and not _computes(place)


def _computes(place: Place) -> bool:
    """True for a line of a model's own function, such as `return self.net(x)` in `forward`, that does nothing else."""
    return place.kind in SAMPLED and bool(_COMPUTES.fullmatch(place.name)) and does(place) == "python"


def remedy(place: Place) -> str:
    if place.kind == "python" and code_of(place) == BATCHES:
        return _OF_KIND["generator"]
    of_keras = _OF_KERAS.get(place.name.partition(".")[0])
    return of_keras or _OF_KIND.get(place.kind) or _REMEDIES[does(place)]


def code_of(place: Place) -> str:
    if place.kind in ("python", "callback", "call") and does(place) == "lock":
        return LOCK
    ns = saved(place)
    fed = place.kind == "python" and 2 * ns.get("idle_feed", 0) > sum(ns.values())
    return BATCHES if fed else CODES[place.kind]


def told(place: Place) -> str:
    """The place's name, file and line, as text."""
    return f"{place.name} ({place.at})"


def _finding(case: Case, place: Place) -> Finding | None:
    ns = saved(place)
    total = sum(ns.values())
    code = code_of(place)
    return case.finding(
        code,
        ns,
        text=f"{what(place)} keeps the GPU waiting for {numbers.duration(total // case.steps)} {case.each}: "
        f"{percent(total / case.gpu.span_ns)} of the time{mostly(place)}",
        change=remedy(place),
        evidence=evidence(place),
        refuted_by="the GPU is idle for as long without it",
    )


def evidence(place: Place) -> dict[str, Any]:
    line = place.lines[0] if place.lines else None
    return {
        "place": place.name,
        "kind": place.kind,
        "file": place.file,
        "line": place.line,
        "seen_at_file": line.file if line else None,
        "seen_at_line": line.line if line else None,
        "longest_start_ns": place.longest_start_ns,
        "longest_ns": place.longest_ns,
    }


def what(place: Place) -> str:
    """The place's kind in words, then its name, file and line."""
    words = {
        "callback": "the callback ",
        "eager": "the model trains eagerly, line by line in Python: ",
        "gc": "Python collects garbage in ",
        "saving": "saving in ",
    }
    return f"{words.get(place.kind, '')}{told(place)}"


def mostly(place: Place) -> str:
    """A clause that names the source line with most samples; "" without samples and for kinds of places that need no
    line."""
    if not place.lines or place.kind in ("eager", "gc"):
        return ""
    line = place.lines[0]
    source = line.source if len(line.source) <= _SOURCE else f"{line.source[:_SOURCE]}..."
    where = f"line {line.line}" if line.file == place.file else f"{line.file}:{line.line}"
    return f", mostly at {where}" + (f": {source}" if source else "")


def together(each: Sequence[Finding]) -> list[list[Finding]]:
    """Group the findings of several GPUs by place."""
    of: dict[tuple[object, ...], list[Finding]] = {}
    for one in each:
        of.setdefault(_key(one), []).append(one)
    return list(of.values())


def instead(found: Sequence[Finding], of_places: Sequence[Finding], each: Sequence[Finding]) -> list[Finding]:
    """All findings, less the general findings that places on the same GPU mostly explain. A place's evidence lists the
    codes of the findings that it replaces.

    `of_places` are the findings on places, merged over GPUs; `each` are the same findings before merging.
    """
    left: list[Finding] = []
    replaced: dict[tuple[object, ...], list[str]] = {}
    for one in found:
        lead = _explains(one, [place for place in each if place.gpu == one.worst_gpu])
        if lead is None:
            left.append(one)
        else:
            replaced.setdefault(_key(lead), []).append(one.code)
    return left + [
        replace(place, evidence={**place.evidence, "in_place_of": sorted(set(codes))})
        if (codes := replaced.get(_key(place)))
        else place
        for place in of_places
    ]


def _explains(one: Finding, places: Sequence[Finding]) -> Finding | None:
    eager = next((place for place in places if place.code == "eager-step"), None)
    if one.code in OF_EAGER and eager is not None:
        return eager
    if one.code not in GENERAL or not places or not one.saved_ns:
        return None
    shared = [sum(min(place.saved_ns.get(owner, 0), ns) for owner, ns in one.saved_ns.items()) for place in places]
    if sum(shared) < _EXPLAINS * sum(one.saved_ns.values()):
        return None
    return places[shared.index(max(shared))]


def _key(place: Finding) -> tuple[object, ...]:
    return place.evidence["place"], place.evidence["file"], place.evidence["line"]


def of_break(places: Sequence[Place], which: Sequence[Mapping[str, int]], over_ns: int) -> Place | None:
    """The place that explains at least half of a break's extra time over a step; None if no place does."""
    first = next(iter(which), None)
    if first is None or first["ns"] < _EXPLAINS * over_ns or first["place"] >= len(places):
        return None
    return places[first["place"]]
