"""Recognise kernels that repeat layer by layer, which are no steps, by ranges named after layers, as FSDP writes
them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ..gpus.operations import Gpu
from ..model.timeline import Timeline
from .cycles import Int64s, KernelSequence

# `FSDP::pre_forward (encoder.block.14.layer.1), op_id = 314382` lies in layer `encoder.block.14`.
_NUMBERED = re.compile(r"\b(?:blocks?|layers?|stages?)[._]\d+")
_PATH = re.compile(r"[\w.]*")
# A model counts if it has at least this many layers with ranges. A step goes through all of them, the repetition of a
# layer through at most `_FEW`.
_LEAST_LAYERS = 5
_FEW = 2


def repeat_layers(
    sequence: KernelSequence, edges: Int64s, gpu: Gpu, timelines: Sequence[Timeline], shift_ns: Sequence[int]
) -> bool:
    """True if the kernels of the median cycle [edges[i], edges[i + 1]) were launched in the ranges of one or two
    layers."""
    import pandas as pd

    for process, (recording, pid) in enumerate(gpu.processes):
        marks = timelines[recording].marks
        layer_of, _ = pd.factorize(np.array([*map(_layer, marks["name"].cat.categories.tolist()), None], object))
        layer = layer_of[marks["name"].cat.codes]
        named = np.flatnonzero((layer >= 0) & (marks["pid"] == pid).to_numpy())
        if len(np.unique(layer[named])) < _LEAST_LAYERS:
            continue
        begins = marks["start_ns"].to_numpy()[named] + shift_ns[recording] - shift_ns[gpu.places[0][0]]
        order = np.argsort(begins, kind="stable")
        under = np.searchsorted(begins[order], sequence.call_start_ns, side="left") - 1
        seen = np.flatnonzero(sequence.launched & (sequence.process == process) & (under >= 0))
        cycle = np.searchsorted(edges, seen, side="right") - 1
        inside = (cycle >= 0) & (cycle < len(edges) - 1)
        pairs = np.unique(np.stack([cycle[inside], layer[named][order][under[seen[inside]]]]), axis=1)
        layers = np.unique(pairs[0], return_counts=True)[1]
        if len(layers) and np.median(layers) <= _FEW:
            return True
    return False


def _layer(name: str) -> str | None:
    """The name's path up to the first number of a block, layer or stage; None without such a number."""
    found = _NUMBERED.search(name)
    if found is None:
        return None
    # Match backwards from the number: a forward search from each letter would take quadratic time in the name's length.
    path = _PATH.match(name[found.start() - 1 :: -1] if found.start() else "")
    return f"{path[0][::-1] if path else ''}{found[0]}"
