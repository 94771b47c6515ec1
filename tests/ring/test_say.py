"""What ring says while something lasts, in a process that trains."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.harness.running import prepared, run_python

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = pytest.mark.train

LASTS = """
import sys, time
from ringscope import ring
from ringscope.ring import say
ring.init(seed=1)
say.FIRST_S, say.EVERY_S = 60.0, 60.0
with say.lasting("short", then=lambda: "; never said"):
    pass
say.FIRST_S, say.EVERY_S = 0.3, 0.4
told, line = [], say.line
say.line = lambda text: (line(text), told.append(text))
try:
    with say.lasting("baking", then=lambda: "; it rises"):
        while len(told) < 3 and ring.rank() == 0:
            time.sleep(0.1)
        raise KeyError("burnt")
except KeyError:
    print("over", flush=True)
say.line = lambda text: print("later", file=sys.stderr)
time.sleep(1)
"""
COMPILES = """
import os, sys
from ringscope import ring
from ringscope.ring import say
ring.init(seed=1)
say.FIRST_S, say.EVERY_S = 0.05, 0.1
import keras, numpy as np
layers = [keras.layers.Dense(32, activation="gelu") for _ in range(8)]
model = keras.Sequential([keras.Input((32,)), *layers, keras.layers.Dense(1)])
model.compile("adamw", "mse")
ring.distribute(model, step="compiled")
model.fit(np.ones((64, 32)), np.ones((64, 1)), batch_size=32, epochs=2, verbose=0)
os.environ["TF_XLA_FLAGS"] = "--tf_xla_persistent_cache_directory=/somewhere"
print("next shape", file=sys.stderr, flush=True)
model.fit(np.ones((48, 32)), np.ones((48, 1)), batch_size=24, verbose=0)
"""


def _run(script: str, folder: Path, *, two: bool = False) -> Any:
    (folder / "script.py").write_text(script)
    done = run_python(str(folder / "script.py"), prefix=prepared("gloo") if two else ())
    assert done.returncode == 0, done.stderr
    return done


def test_a_line_while_a_progress_bar_is_drawn_begins_on_a_line_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import keras
    from keras.src.utils import io_utils

    from ringscope.ring import say

    monkeypatch.setattr(io_utils, "print_msg", io_utils.print_msg)  # restores it
    say.beside_bars()
    bar = keras.utils.Progbar(8)
    say.line("before")
    bar.update(3)
    say.line("within")
    say.line("again")
    bar.update(8)
    say.line("after")
    assert capsys.readouterr().err == "ring: before\n\nring: within\nring: again\nring: after\n"


@pytest.mark.ci
def test_what_lasts_is_said_again_by_rank_0_until_it_is_over(tmp_path: Path) -> None:
    done = _run(LASTS, tmp_path, two=True)
    assert done.stdout.count("over") == 2
    assert "short" not in done.stderr and "later" not in done.stderr
    lines = [line.partition("ring: ")[2] for line in done.stderr.splitlines() if "baking" in line]
    first, *others = lines
    told_s = [int(re.fullmatch(r"baking: (\d+) s so far(; it rises)?", line)[1]) for line in lines]
    assert told_s == sorted(told_s) and told_s[0] < 60  # 0, where the machine is not busy
    assert first.endswith("; it rises") and len(others) > 1 and not any("rises" in line for line in others)


@pytest.mark.ci
def test_that_xla_compiles_is_said_while_it_does_and_whether_it_is_kept(tmp_path: Path) -> None:
    first, _, second = _run(COMPILES, tmp_path).stderr.partition("next shape")
    for part, more in ((first, ""), (second, "; later starts find it in /somewhere")):
        lines = [line for line in part.splitlines() if "XLA compiles" in line]
        assert re.fullmatch(rf"ring: XLA compiles the step: \d+ s so far{re.escape(more)}", lines[0])
        assert not any("later starts" in line for line in lines[1:])
