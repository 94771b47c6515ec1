"""The peer check: our side of it, without the peers."""

from __future__ import annotations

import sys

from benchmarks.peers import hta
from benchmarks.training import Shape
from benchmarks.write_text import write_kineto


def test_our_numbers_of_the_trace_the_peers_get_are_exact(tmp_path):
    shape = Shape(steps=8, kernels=50, gpus=1, processes=1)
    write_kineto(shape, tmp_path / "trace.json")
    found, expected = hta.run(sys.executable, hta.OURS, tmp_path / "trace.json"), hta.truth(shape)
    assert {name: found[name] for name in expected} == expected
    text = hta.table(expected, {"ringscope": found, "wrong": {**found, "idle": expected["idle"] * 1.25}})
    assert text.count("exact") == 2 * len(expected) - 1 and "+25.0000 %" in text
