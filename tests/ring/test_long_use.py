"""Two ranks that fit for days hold no more than after the first fits, and no model that their script has let go.

The long one alone catches memory, threads or descriptors that ring keeps a little of after each fit.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.running import prepared, run_python
from tests.ring import SCRIPTS, from_ranks

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.beside]

FITS, MODELS = 1000, 50
FITS_KIB = 5 << 9  # 1.7 KiB a fit; plain Keras keeps 2
# TensorFlow keeps what it made of a function for its next call until the session is cleared: 0.43 MiB of this model's.
# Plain Keras keeps 4 MiB of it, with the graphs.
A_MODEL_KIB, A_CLEARED_MODEL_KIB = 700, 32
Held = list[dict[str, list[list[int]]]]  # by rank


def run(out: Path, fits: int, models: int) -> Held:
    words = [str(SCRIPTS / "long_use.py"), str(out), str(fits), str(models)]
    done = run_python(*words, prefix=prepared("gloo"))
    assert done.returncode == 0, done.stdout + done.stderr
    return from_ranks(out)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Held:
    return run(tmp_path_factory.mktemp("models"), 10, MODELS)


@pytest.mark.exhaustive
def test_memory_and_descriptors_are_flat_after_the_first_tenth_of_the_fits(tmp_path: Path) -> None:
    for rank in run(tmp_path, FITS, 0):
        resident, descriptors, threads, models, graphs = zip(*rank["fits"], strict=True)
        assert max(resident) - resident[0] < FITS_KIB, resident
        assert max(descriptors) == descriptors[0]
        assert max(threads) <= threads[0] + 1
        assert (max(models), max(graphs)) == (models[0], graphs[0])


@pytest.mark.exhaustive
@pytest.mark.parametrize(("kind", "most_kib"), [("models", A_MODEL_KIB), ("cleared", A_CLEARED_MODEL_KIB)])
def test_memory_and_descriptors_are_flat_after_the_first_tenth_of_the_models(
    made: Held, kind: str, most_kib: int
) -> None:
    for rank in made:
        resident, descriptors, threads, models, graphs = zip(*rank[kind][MODELS // 10 :], strict=True)
        assert resident[-1] - resident[0] < most_kib * len(resident), resident
        assert max(descriptors) == descriptors[0]
        assert max(threads) <= threads[0] + 1
        assert (max(models), max(graphs)) == (models[0], graphs[0])


@pytest.mark.ci
def test_a_model_that_a_script_lets_go_leaves_no_graph(tmp_path: Path) -> None:
    for rank in run(tmp_path, 10, 4):
        *_, models, graphs = zip(*rank["models"], strict=True)
        assert (models[-1], graphs[-1]) == (models[1], graphs[1])
