"""docs/architecture.md names the rooms that tests/test_architecture.py holds, in their order."""

from __future__ import annotations

from tests.recordings import ROOT
from tests.test_architecture import GROUND, HARNESS, MODEL, PROFILES, RING, RUNS, TRAINS, VIEWS

PAGE = (ROOT / "docs/architecture.md").read_text()


def shown(module: str) -> str:
    """A module as the page names it: a folder, or a file."""
    path = module.replace(".", "/")
    return f"{path}/" if (ROOT / path / "__init__.py").exists() else f"{path}.py"


def table(top: str) -> str:
    return PAGE[PAGE.index(f"## {top}: ") :].split("\n## ")[0]


def test_the_rooms_stand_in_the_order_in_which_they_may_import() -> None:
    for layers, top in ((PROFILES, "profiles"), (HARNESS, "harness"), (RING, "ringscope.ring")):
        above = [room for row in layers for room in row if room not in {top, f"{top}.__main__"}]
        places = [table(top).find(f"`{shown(room).removeprefix(top.replace('.', '/') + '/')}`") for room in above]
        assert -1 not in places, above[places.index(-1)]
        assert places == sorted(places), top


def test_what_lies_in_the_lowest_rooms_is_named_there() -> None:
    for layers in (VIEWS, MODEL, RUNS, GROUND):
        *inner, (top,) = layers
        place = f"`{shown(top).removeprefix('profiles/')}`"
        row = next(
            row for row in table("profiles").splitlines() if row.startswith("| ") and place in row.split(" | ")[0]
        )
        names = {module.rpartition(".")[2] for rooms in inner for module in rooms}
        assert not {name for name in names if f"`{name}`" not in row.replace("/`", "`")}


def test_where_frameworks_may_be_imported_is_said_in_full() -> None:
    part = PAGE[PAGE.index("**TensorFlow, Keras, Horovod and mpi4py**") :].split("\n\n")[0]
    assert {f"`{shown(module)}`" for module in TRAINS} == {f"`{name}`" for name in part.split("`")[1::2]}
