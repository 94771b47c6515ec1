"""Ranges, with name and line, around the parts of a script that PyTorch calls: code that makes a DataLoader's batches,
and saving."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

from .laid import called, replace
from .ranges import Place, writer
from .whose import caller, defined

_PLACE: Final = "_ringscope_place"


def _loaders(dataloader: ModuleType) -> None:
    """Put ranges around waits for the next batch, with the name that PyTorch's own profiler uses."""

    def made(own: Callable[..., Any]) -> Callable[..., Any]:
        def next_batch(self: Any) -> Any:
            place = self.__dict__.get(_PLACE)
            if place is None:
                place = self.__dict__[_PLACE] = _of(self)
            begun = writer().begin(f"enumerate(DataLoader)#{type(self).__name__}.__next__")
            try:
                with place:
                    return own(self)
            finally:
                writer().end(begun)

        return next_batch

    replace(dataloader._BaseDataLoaderIter, "__next__", made)


def _of(batches: Any) -> Place:
    """The place that makes a DataLoader's batches: the method of the user's data set that is called, or else the user's
    collate function, or else the line that takes batches."""
    data = batches._dataset
    while (inner := getattr(data, "dataset", None)) is not None:  # a Subset holds the user's data set
        data = inner
    kind = "loader-wait" if getattr(batches, "_num_workers", 0) else "loader"
    methods = [getattr(type(data), name, None) for name in ("__getitems__", "__getitem__", "__iter__")]
    for function in (*methods, getattr(batches, "_collate_fn", None)):
        where = defined(function) if function is not None else None
        if where is not None:
            return Place(kind, where.function, where)
    return Place(kind, type(data).__name__, caller())


def _saving(serialization: ModuleType) -> None:
    replace(serialization, "save", lambda own: called(own, "saving", "torch.save"))


# Module -> the function that puts ranges around the module's functions once it is imported.
PARTS: Final[Mapping[str, Callable[[ModuleType], None]]] = {
    "torch.utils.data.dataloader": _loaders,
    "torch.serialization": _saving,
}
