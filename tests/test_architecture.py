"""Imports run one way through the rooms, as docs/architecture.md draws them.

Read from the sources, so that imports inside functions and under TYPE_CHECKING count as any other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent

# Each room may import those after it. Rooms of one line do not import each other.
PROFILES = (
    ("profiles.__main__",),
    ("profiles.cli",),
    ("profiles.verbs",),
    ("profiles.views",),
    ("profiles",),  # the public functions
    ("profiles.predicting", "profiles.explaining"),
    ("profiles.comparing",),
    ("profiles.gate", "profiles.rules", "profiles.many_gpus"),
    ("profiles.measuring",),
    ("profiles.verdicts",),
    ("profiles.metrics",),
    ("profiles.ledger",),
    ("profiles.steps",),
    ("profiles.gpus",),
    ("profiles.readers", "profiles.scaling", "profiles.inference"),
    ("profiles.doubts",),
    ("profiles.model", "profiles.runs"),
    ("profiles.ground",),
)
# Inside a room, by the same rule.
VIEWS = (
    ("profiles.views.files",),
    ("profiles.views.terminal", "profiles.views.page"),
    ("profiles.views.charts",),
    ("profiles.views.tables",),
    ("profiles.views.palette", "profiles.views.spoken"),
    ("profiles.views",),
)
MODEL = (
    ("profiles.model.analysed", "profiles.model.measures_json", "profiles.model.logged"),
    ("profiles.model.measures", "profiles.model.marks", "profiles.model.columns"),
    (
        *("profiles.model.timeline", "profiles.model.launching"),
        *("profiles.model.collectives", "profiles.model.findings", "profiles.model.operations"),
        *("profiles.model.places", "profiles.model.steps"),
    ),
    ("profiles.model.tables",),
    (
        *("profiles.model.possible", "profiles.model.names", "profiles.model.paths", "profiles.model.xla_names"),
        "profiles.model.gpu_metrics",
    ),
    ("profiles.model",),
)
RUNS = (
    ("profiles.runs.records",),
    ("profiles.runs.rank_records",),
    ("profiles.runs.cell",),
    ("profiles.runs.setting", "profiles.runs.strategies"),
    ("profiles.runs",),
)
GROUND = (
    ("profiles.ground.lazy", "profiles.ground.files"),
    (
        *(
            "profiles.ground.after_import",
            "profiles.ground.errors",
            "profiles.ground.intervals",
            "profiles.ground.memory",
            "profiles.ground.numbers",
            "profiles.ground.stats",
        ),
        *("profiles.ground.terminals", "profiles.ground.threads", "profiles.ground.typed", "profiles.ground.version"),
    ),
    ("profiles.ground",),
)
HARNESS = (
    ("harness.__main__",),
    ("harness.verbs",),
    ("harness.jobs", "harness.doctor"),
    ("harness.processes",),
    ("harness.inference",),
    ("harness.training", "harness.launch"),
    ("harness.machine", "harness.ring"),  # by this name `ringscope.ring` stays for scripts that import it
    ("harness",),
)
RING = (
    ("ringscope.ring",),  # the public functions
    ("ringscope.ring.distribution",),
    ("ringscope.ring.plan",),
    ("ringscope.ring.options", "ringscope.ring.start", "ringscope.ring.fit"),
    ("ringscope.ring.elastic", "ringscope.ring.step"),
    ("ringscope.ring.alike", "ringscope.ring.gradients", "ringscope.ring.forms", "ringscope.ring.feed"),
    ("ringscope.ring.ranks", "ringscope.ring.marks", "ringscope.ring.data"),
    ("ringscope.ring.lost", "ringscope.ring.global_batch"),
    ("ringscope.ring.say", "ringscope.ring.exchange", "ringscope.ring.models"),
    ("ringscope.ring.internals",),
)
# Rooms that know nothing but what recordings and runs are and the ground, though they stand above others.
ON_THE_GROUND = ("profiles.gpus", "profiles.readers", "profiles.scaling", "profiles.inference")
KNOWN_THERE = {"profiles.doubts", "profiles.model", "profiles.runs", "profiles.ground"}

FRAMEWORKS = ("tensorflow", "keras", "horovod", "mpi4py")
# Where frameworks may be imported: modules, and packages with all in them.
TRAINS = (
    "harness.doctor.equality",
    "harness.doctor.observer",
    "harness.doctor.of_jax",
    "harness.doctor.of_torch",
    "harness.doctor.samples",
    "harness.inference",
    "harness.launch.gloo",
    "harness.launch.tensorflow_profiler",
    "harness.machine.probe",
    "harness.training.convergence",
    "harness.training.facts",
    "harness.training.feeds",
    "harness.training.models",
    "harness.training.peers",
    "harness.training.rules",
    "harness.training.strategies",
    "harness.training.worker",
    "profiles.measuring.mpi",
    "ringscope.ring",
)
# A view shows what it is given: of what measures, it knows the results' types alone.
MEASURING = (
    "profiles.gpus",
    "profiles.ledger",
    "profiles.measuring",
    "profiles.metrics",
    "profiles.readers",
    "profiles.steps",
    "profiles.verdicts",
)


class Import(NamedTuple):
    by: str
    of: str  # a module; for names in it the module that holds them
    line: int


def rooms_of(layers: tuple[tuple[str, ...], ...]) -> dict[str, int]:
    return {room: place for place, rooms in enumerate(layers) for room in rooms}


@cache
def modules() -> dict[str, Path]:
    found = {}
    for top in ("harness", "profiles", "ringscope"):
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports() -> tuple[Import, ...]:
    return tuple(one for name, path in modules().items() for one in imports_of(name, path))


def imports_of(name: str, path: Path) -> Iterator[Import]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(name, alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                yield Import(name, inner if inner in modules() else source, node.lineno)


def room(module: str, layers: tuple[tuple[str, ...], ...], top: str) -> str:
    """The longest name of a room that the module is or lies in."""
    known = rooms_of(layers)
    parts = module.split(".")
    fits = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    found = next((name for name in fits if name in known), None)
    if found is None or (found == top and module != found):
        pytest.fail(f"{module}: no room of the house; put it into one, or name its room in {__file__}")
    return found


def within(module: str, rooms: tuple[str, ...]) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in rooms)


@pytest.mark.parametrize(
    ("top", "layers"),
    [
        ("profiles", PROFILES),
        ("profiles.views", VIEWS),
        ("profiles.model", MODEL),
        ("profiles.runs", RUNS),
        ("profiles.ground", GROUND),
        ("harness", HARNESS),
        ("ringscope.ring", RING),
    ],
)
def test_imports_run_from_left_to_right_only(top, layers):
    place = rooms_of(layers)
    wrong = []
    for one in imports():
        if not within(one.by, (top,)) or not within(one.of, (top,)):
            continue
        by, of = room(one.by, layers, top), room(one.of, layers, top)
        if by != of and place[of] <= place[by]:
            wrong.append(f"{one.by}:{one.line} imports {one.of}")
    assert not wrong


@pytest.mark.parametrize(
    ("top", "layers", "most_rooms", "most_floors"),
    [("profiles", PROFILES, 24, 15), ("harness", HARNESS, 10, 7), ("ringscope.ring", RING, 20, 10)],
)
def test_a_house_has_few_rooms_and_few_floors(top, layers, most_rooms, most_floors):
    """A floor: the longest way down by imports. A new room takes the place of another, or goes inside of one."""
    rooms = {one for row in layers for one in row if one != top}
    below: dict[str, set[str]] = {one: set() for one in rooms}
    for one in imports():
        if within(one.by, (top,)) and within(one.of, (top,)):
            by, of = room(one.by, layers, top), room(one.of, layers, top)
            if by != of and {by, of} <= rooms:
                below[by].add(of)
    floors: dict[str, int] = {}
    while len(floors) < len(rooms):
        ready = [one for one in rooms - floors.keys() if below[one] <= floors.keys()]
        assert ready, "rooms import each other in a circle"
        floors |= {one: 1 + max((floors[other] for other in below[one]), default=0) for one in ready}
    assert len(rooms) <= most_rooms
    assert max(floors.values()) <= most_floors


def test_readers_and_scaling_stand_on_the_ground():
    wrong = [
        f"{one.by}:{one.line} imports {one.of}"
        for one in imports()
        if within(one.by, ON_THE_GROUND) and within(one.of, ("profiles",))
        if room(one.of, PROFILES, "profiles") not in {*KNOWN_THERE, room(one.by, PROFILES, "profiles")}
    ]
    assert not wrong


def test_the_harness_imports_ring_and_profiles_ring_imports_profiles_and_never_the_reverse():
    tops = "harness", "ringscope.ring", "profiles"
    arrows = {
        (by, of)
        for one in imports()
        for by in tops
        for of in tops
        if by != of and within(one.by, (by,)) and within(one.of, (of,))
    }
    assert arrows == {("harness", "ringscope.ring"), ("harness", "profiles"), ("ringscope.ring", "profiles")}
    assert not [one for one in imports() if one.of == "ringscope"], "the public face is for users"


def test_ring_knows_a_part_of_the_ground_and_marks_of_profiles_and_nothing_else():
    known = {one.of for one in imports() if within(one.by, ("ringscope.ring",)) and within(one.of, ("profiles",))}
    ground = {f"profiles.ground.{name}" for name in ("errors", "files", "threads")}
    assert known == ground | {"profiles.model.marks"}


def test_no_modules_import_each_other_in_a_circle():
    """A package's own `__init__` runs before its modules anyway: only what is imported by name counts."""
    arrows: dict[str, set[str]] = {name: set() for name in modules()}
    for one in imports():
        if one.of in arrows and one.of != one.by:
            arrows[one.by].add(one.of)
    left = dict(arrows)
    while free := [name for name, to in left.items() if not to & left.keys()]:
        for name in free:
            del left[name]
    assert not {name: sorted(to & left.keys()) for name, to in left.items()}


def test_frameworks_are_imported_where_training_happens_and_nowhere_else():
    users = {one.by for one in imports() if within(one.of, FRAMEWORKS)}
    assert not sorted(name for name in users if not within(name, TRAINS))
    assert not [place for place in TRAINS if not any(within(name, (place,)) for name in users)]


def test_views_measure_nothing():
    wrong = [
        f"{one.by}:{one.line} imports {one.of}"
        for one in imports()
        if within(one.by, ("profiles.views",)) and within(one.of, MEASURING)
    ]
    assert not wrong


def test_verbs_only_parse_and_hand_over():
    """They take neither arrays apart nor measures: whoever computes is in another room."""
    computing = ("numpy", "pandas", "scipy", "profiles.gpus", "profiles.ledger", "profiles.metrics", "profiles.steps")
    wrong = [
        f"{one.by}:{one.line} imports {one.of}"
        for one in imports()
        if within(one.by, ("profiles.verbs", "harness.verbs")) and within(one.of, computing)
    ]
    assert not wrong


def test_doubts_are_made_in_one_room():
    makers = {
        name
        for name, path in modules().items()
        if "Doubt(" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Doubt"
    }
    assert makers and {name.rpartition(".")[0] for name in makers} == {"profiles.doubts"}


def test_every_name_of_a_mark_is_spelled_once():
    """`step N`, `wait input`, `batch N` and `rank k of n` are written by training and looked for by analysis."""
    rooms = ("harness.training", "profiles.readers", "profiles.gpus", "profiles.steps", "profiles.ledger")
    marks = re.compile(r"(?:GLOB|\W)*(?:(wait input)\b|(step|batch|rank) (?:$|\\d|\[|\())")
    texts = [
        (name, node.value)
        for name, path in modules().items()
        if within(name, (*rooms, "profiles.model.marks"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert not [(name, text) for name, text in texts if name != "profiles.model.marks" and marks.match(text)]
    here = [found for name, text in texts if name == "profiles.model.marks" and (found := marks.match(text))]
    assert {found[1] or found[2] for found in here} == {"wait input", "step", "batch", "rank"}


def test_objects_are_exchanged_on_the_host():
    """On a GPU their kernels would run on Horovod's stream, and all others follow each other later from then on."""
    calls = {
        path.relative_to(ROOT).as_posix()
        for folder in ("harness", "ringscope", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"\b(allgather|broadcast)_object\(", path.read_text())
    }
    assert calls == {"ringscope/ring/exchange.py", "ringscope/ring/elastic/commits.py"}


def test_no_function_is_longer_than_eighty_lines_beside_its_docstring():
    long = []
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno:
                told = ast.get_docstring(node, clean=False)
                lines = node.end_lineno - node.lineno + 1 - (told.count("\n") + 1 if told else 0)
                if lines > 80:
                    long.append(f"{name}.{node.name}: {lines}")
    assert not long
