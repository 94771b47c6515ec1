"""What is worked on some thousands at a time gives the same whatever their number: recordings here are one block."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import pytest

import profiles
from profiles.measuring.analysis import analyse
from profiles.model import measures_json
from profiles.views.page import picture
from tests.recordings import DATA


def modules() -> Iterator[ModuleType]:
    """Those that work in blocks."""
    for found in pkgutil.walk_packages(profiles.__path__, "profiles."):
        if not found.name.endswith("__main__"):
            module = importlib.import_module(found.name)
            if hasattr(module, "_BLOCK"):
                yield module


def told(recording: str) -> tuple[str, str]:
    """The measures, and the picture of all that ran."""
    analysis = analyse(DATA / f"{recording}.rank*.sqlite.xz", operations=True)
    return measures_json.dumps(analysis.measures, per_step=True), picture.pack(analysis)


@pytest.mark.parametrize("recording", ["dense41m-2gpu-pinned", "cnn-1gpu-node", "cnn-1gpu-graph"])
def test_measures_and_pictures_do_not_depend_on_the_size_of_blocks(
    recording: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = told(recording)
    patched = list(modules())
    assert len(patched) > 10
    for rows in (1009, 97):
        for module in patched:
            monkeypatch.setattr(module, "_BLOCK", rows)
        assert told(recording) == whole
