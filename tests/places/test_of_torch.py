"""Batches of a DataLoader and saving are told by the user's line. PyTorch is not among what tests may need: a module
with its names stands in."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from profiles.model import marks
from ringscope.places import of_torch, ranges

HERE = "tests/places/test_of_torch.py"


class Pictures:
    def __getitem__(self, index: int) -> int:
        return index


class Streamed:
    def __iter__(self) -> Any:
        return iter(())


class Subset:
    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset


def collated(samples: Any) -> Any:
    return samples


def dataloader() -> Any:
    class _BaseDataLoaderIter:
        def __init__(self, dataset: Any, workers: int, collate: Any = None) -> None:
            self._dataset, self._num_workers, self._collate_fn = dataset, workers, collate

        def __next__(self) -> int:
            return 7

    return SimpleNamespace(_BaseDataLoaderIter=_BaseDataLoaderIter)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    monkeypatch.setattr(ranges, "writer", lambda: SimpleNamespace(begin=names.append, end=lambda begun: None))
    monkeypatch.setattr(of_torch, "writer", ranges.writer)
    return names


def line(function: Any) -> int:
    return int(function.__code__.co_firstlineno)


@pytest.mark.parametrize(
    ("dataset", "workers", "kind", "name", "function"),
    [
        (Pictures(), 0, "loader", "Pictures.__getitem__", Pictures.__getitem__),
        (Subset(Subset(Pictures())), 2, "loader-wait", "Pictures.__getitem__", Pictures.__getitem__),
        (Streamed(), 0, "loader", "Streamed.__iter__", Streamed.__iter__),
    ],
)
def test_each_batch_is_a_wait_and_a_place(
    told: list[str], dataset: Any, workers: int, kind: str, name: str, function: Any
) -> None:
    module = dataloader()
    for _ in range(2):  # a second time does nothing
        of_torch.PARTS["torch.utils.data.dataloader"](module)
    batches = module._BaseDataLoaderIter(dataset, workers)
    assert [next(batches), next(batches)] == [7, 7]
    assert told == 2 * [
        "enumerate(DataLoader)#_BaseDataLoaderIter.__next__",
        marks.place(kind, name, HERE, line(function)),
    ]


def test_a_librarys_data_set_is_told_by_what_makes_batches_of_it(told: list[str]) -> None:
    module = dataloader()
    of_torch.PARTS["torch.utils.data.dataloader"](module)
    next(module._BaseDataLoaderIter([1, 2], 0, collated))
    assert told[1] == marks.place("loader", "collated", HERE, line(collated))


def test_a_librarys_data_set_is_told_by_the_line_that_takes_batches(told: list[str]) -> None:
    module = dataloader()
    of_torch.PARTS["torch.utils.data.dataloader"](module)
    next(module._BaseDataLoaderIter([1, 2], 0))
    at = line(test_a_librarys_data_set_is_told_by_the_line_that_takes_batches) + 3
    assert told[1] == marks.place("loader", "list", HERE, at)


def test_saving_is_told_by_the_line_that_saves(told: list[str]) -> None:
    written: list[Any] = []
    module: Any = SimpleNamespace(save=lambda what, path: written.append(what))
    of_torch.PARTS["torch.serialization"](module)
    module.save(1, "a.pt")
    at = line(test_saving_is_told_by_the_line_that_saves) + 4
    assert written == [1] and told == [marks.place("saving", "torch.save", HERE, at)]


@pytest.mark.parametrize(
    ("framework", "kind"),
    [(False, "_Nvtx"), ("pytorch", "_PyTorch"), ("jax", "_Jax"), ("tensorflow", "_Nothing"), (None, "_Nothing")],
)
def test_ranges_are_written_for_the_profiler_that_records(
    framework: str | None | bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nvtx")
    for name in ("_kept", "_framework", "_by_framework"):
        monkeypatch.setattr(ranges, name, None)
    module = ModuleType("profiler")
    module.TraceAnnotation = object  # type: ignore[attr-defined]
    for name in ("torch.autograd.profiler", "jax.profiler"):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "tensorflow.python.profiler.internal._pywrap_traceme", raising=False)
    if framework is not False:
        ranges.for_framework(framework)
    assert type(ranges.writer()).__name__ == kind
