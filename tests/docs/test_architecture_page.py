"""docs/architecture.md names the rooms that tests/test_architecture.py holds, in their order."""

from __future__ import annotations

from tests.recordings import ROOT
from tests.test_architecture import GROUND, HARNESS, PROFILES, RING, TRAINS

PAGE = (ROOT / "docs/architecture.md").read_text()


def shown(module: str) -> str:
    """A module as the page names it: a folder, or a file."""
    path = module.replace(".", "/")
    return f"{path}/" if (ROOT / path / "__init__.py").exists() else f"{path}.py"


def table(top: str) -> str:
    return PAGE[PAGE.index(f"## {top}: ") :].split("\n## ")[0]


def test_the_rooms_stand_in_the_order_in_which_they_may_import() -> None:
    for layers, top in ((PROFILES, "profiles"), (HARNESS, "harness"), (RING, "ringscope.ring")):
        above = [room for row in layers for room in row if room not in GROUND | {top, f"{top}.__main__"}]
        places = [table(top).find(f"`{shown(room).removeprefix(top.replace('.', '/') + '/')}`") for room in above]
        assert -1 not in places, above[places.index(-1)]
        assert places == sorted(places), top


def test_every_room_of_the_ground_is_named_there() -> None:
    ground = next(row for row in table("profiles").splitlines() if row.startswith("| the ground |"))
    names = {shown(room).removeprefix("profiles/").removesuffix(".py") for room in GROUND}
    assert not {name for name in names if f"`{name}`" not in ground}


def test_where_frameworks_may_be_imported_is_said_in_full() -> None:
    part = PAGE[PAGE.index("**TensorFlow, Keras, Horovod and mpi4py**") :].split("\n\n")[0]
    assert {f"`{shown(module)}`" for module in TRAINS} == {f"`{name}`" for name in part.split("`")[1::2]}
