"""Scripts as people write them (people/), made Horovod ones by the two lines, on two real ranks and on one: by turns as
they run on CPUs and as on GPUs, as far as that goes without any, and some as on GPUs between hosts (as_on_gpus.py).
`make people` tries each both ways, which takes twice as long.

A script's docstring ends with what is to come of it: `joined: TOLERANCE, why`, weights, optimizers' state and
histories equal to those of one rank on the joined batches within that; `joined: no, why not`, equal on the two ranks
alone; `refused: TEXT`, every rank ends with an error, and one of them says this.

They alone catch a way to write a script that no other test has thought of.
"""

from __future__ import annotations

import ast
import json
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.harness.running import ROOT, prepared, run_python

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.beside]

PEOPLE = Path(__file__).with_name("people")
NAMES = sorted(path.stem for path in PEOPLE.glob("*.py"))
FEW = ("fine_tuning", "loop_past_the_optimizer")
EVERY_WAY = "RINGSCOPE_EVERY_WAY" in os.environ
# By the name alone: a new script moves no other.
TURN = {name: zlib.crc32(name.encode()) % 2 for name in NAMES}
ON_CPUS = [name for name in NAMES if (EVERY_WAY or TURN[name]) and name not in FEW]
AS_ON_GPUS = [name for name in NAMES if EVERY_WAY or not TURN[name]]
# Their gradients leave in several groups: tables, recurrent layers, attention, convolutions, steps of people's own.
GROUPED = ("custom_train_step", "graph_attention", "masked_lstm_tagging", "old_gan", "recommender", "seq2seq", "unet")
BATCH = 8


def expected(name: str) -> tuple[str, str]:
    """("joined", "1e-5"), ("joined", "no") or ("refused", text)."""
    said = ast.get_docstring(ast.parse((PEOPLE / f"{name}.py").read_text())) or ""
    kind, _, rest = said.splitlines()[-1].partition(": ")
    return (kind, rest) if kind == "refused" else (kind, rest.split(",")[0])


def trained(request: pytest.FixtureRequest, factory: pytest.TempPathFactory, *how: str) -> Path:
    """Where what their ranks have said and kept lies: of the scripts whose tests run that ask for this fixture."""
    out, jobs = factory.mktemp("people"), []
    asking = [item for item in request.session.items if request.fixturename in getattr(item, "fixturenames", ())]
    for name in sorted(item.callspec.params["name"] for item in asking):
        kind, wanted = expected(name)
        for ranks in (2, 1) if kind == "joined" and wanted != "no" else (2,):
            folder = out / f"{name}.{ranks}"
            folder.mkdir()
            words = [str(BATCH * 2 // ranks), str(folder)]
            jobs.append({"name": name, "ranks": ranks, "script": str(PEOPLE / f"{name}.py"), "words": words})
    script = ROOT / "tests" / "harness" / "together.py"
    done = run_python(str(script), str(out), json.dumps(jobs), *how, prefix=prepared(), timeout_s=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def few(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(request, tmp_path_factory)


@pytest.fixture(scope="module")
def many(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(request, tmp_path_factory)


@pytest.fixture(scope="module")
def as_on_gpus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(request, tmp_path_factory, "as_on_gpus")


@pytest.fixture(scope="module")
def between_hosts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(request, tmp_path_factory, "between_hosts")


@pytest.mark.ci
@pytest.mark.parametrize("name", FEW)
def test_some_scripts_train_right_or_are_refused(few: Path, name: str) -> None:
    check(few, name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ON_CPUS)
def test_scripts_train_right_or_are_refused(many: Path, name: str) -> None:
    check(many, name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", AS_ON_GPUS)
def test_compiled_and_staged_they_do_too(as_on_gpus: Path, name: str) -> None:
    check(as_on_gpus, name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", GROUPED)
def test_with_gradients_that_leave_during_the_backward_pass_they_do_too(between_hosts: Path, name: str) -> None:
    said = [(between_hosts / f"{name}.2.{rank}.log").read_text() for rank in range(2)]
    assert any("are exchanged while the backward pass runs" in text for text in said)
    check(between_hosts, name)


def numbers(saved: Any) -> Any:
    """Values as NumPy knows them: it keeps bfloat16, the upper half of a float32, as two bytes without a type."""
    return (saved.view(np.uint16).astype(np.uint32) << 16).view(np.float32) if saved.dtype.kind == "V" else saved


def check(out: Path, name: str) -> None:
    kind, wanted = expected(name)
    codes = json.loads((out / "codes.json").read_text())
    said = [(out / f"{name}.2.{rank}.log").read_text() for rank in range(2)]
    if kind == "refused":
        assert all(code > 0 for code in codes[f"{name}.2"]), codes[f"{name}.2"]
        assert any(wanted in line for text in said for line in text.splitlines()), said
        return
    assert codes[f"{name}.2"] == [0, 0], "\n".join(text[-3000:] for text in said)
    one, other = (np.load(out / f"{name}.2.{rank}.npz") for rank in range(2))
    assert one.files and one.files == other.files
    for key in one.files:
        np.testing.assert_array_equal(one[key], other[key], err_msg=key)
        assert np.all(np.isfinite(numbers(one[key]))), key
    if wanted != "no":
        assert codes[f"{name}.1"] == [0], (out / f"{name}.1.0.log").read_text()[-3000:]
        alone = np.load(out / f"{name}.1.0.npz")
        assert alone.files == one.files
        for key in one.files:
            tolerance = float(wanted)
            np.testing.assert_allclose(one[key], alone[key], rtol=tolerance, atol=tolerance, err_msg=key)


def test_every_script_says_what_is_to_come_of_it() -> None:
    assert len(NAMES) >= 40
    for name in NAMES:
        kind, wanted = expected(name)
        assert kind == "refused" or (kind == "joined" and (wanted == "no" or float(wanted) <= 2e-3)), name
