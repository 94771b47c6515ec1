"""Two ranks that fit for days hold no more than after the first fits, and no model that their script has let go.

They alone catch memory, threads or models that ring keeps after each fit.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.running import prepared, run_python
from tests.ring import SCRIPTS

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.beside, pytest.mark.exhaustive]

FITS, MODELS = 100, 8
FITS_KIB = 8 << 10  # it grew by 4 MiB in the first hundred fits, and by 0.4 in the next
A_MODEL_KIB = 6 << 10  # 1.6 MiB; plain Keras and TensorFlow keep 4 of a model that is gone


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[list[int]]]]:
    out = tmp_path_factory.mktemp("long")
    done = run_python(str(SCRIPTS / "long_use.py"), str(out), str(FITS), str(MODELS), prefix=prepared("gloo"))
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(Path(out / f"rank{rank}.json").read_text()) for rank in range(2)]


def test_memory_and_descriptors_are_flat_after_the_first_tenth_of_the_fits(
    held: list[dict[str, list[list[int]]]],
) -> None:
    for rank in held:
        resident, descriptors, threads, _ = zip(*rank["fits"][FITS // 10 :], strict=True)
        assert max(resident) - resident[0] < FITS_KIB, resident
        assert max(descriptors) == descriptors[0]
        assert max(threads) <= threads[0] + 1


def test_models_that_a_script_lets_go_are_let_go(held: list[dict[str, list[list[int]]]]) -> None:
    for rank in held:
        resident, descriptors, _, alive = zip(*rank["models"], strict=True)
        assert alive[-1] <= alive[0]
        assert max(descriptors) == descriptors[0]
        assert resident[-1] - resident[0] < A_MODEL_KIB * MODELS
