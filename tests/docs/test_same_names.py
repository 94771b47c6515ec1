"""Options, doubts, findings, columns and JSON keys have one name in code and docs, and the docs know no others."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from typing import Any

import click
import pytest

import ringscope
from harness.verbs import VERBS as HARNESS_VERBS
from profiles import rules
from profiles.explaining import explained, without_exchange
from profiles.gate.metrics import RECORDED, SWEPT
from profiles.gate.of_logs import LOGGED
from profiles.gpus.collective_kernels import KINDS
from profiles.ground.lazy import LazyGroup
from profiles.many_gpus import ranks_summary
from profiles.metrics.kernels import GROUPS
from profiles.model import logged, measures_json
from profiles.model.findings import Straggler
from profiles.model.gpu_metrics import KINDS_OF_TIME
from profiles.model.measures import CLASSES, OWNERS, Rest
from profiles.model.operations import Arithmetic, Computed
from profiles.model.places import Line, Place, Places
from profiles.model.steps import Break, ToldBreak
from profiles.predicting import step_time, throughput
from profiles.predicting.curve import Point
from profiles.predicting.network import Network
from profiles.scaling import fits
from profiles.scaling.rows import CellRow, LaunchRow, column_names
from profiles.steps.found import Repeats
from profiles.verbs import VERBS as PROFILES_VERBS
from profiles.verdicts import places
from tests.recordings import DATA, ROOT

DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
# Not the reports under docs/results: they say what a command printed at the time.
PAGES = [page for page in DOCS.rglob("*.md") if not re.match(r"20\d\d-", page.parent.name)]
README = ROOT / "README.md"
OTHER_PAGES = [*ROOT.glob("*.md"), *(ROOT / "examples").glob("*.md"), *(ROOT / ".github").rglob("*.yml")]

# Options of other programs that the docs name. One that they no longer name is taken from the list.
OF_OTHERS = {
    "nsys": (
        *("--capture-range-end", "--cpuctxsw", "--cuda-graph-trace", "--include-blobs", "--trace"),
        *("--enable", "--gpu-metrics-devices", "--gpu-metrics-frequency"),
    ),
    "nvprof": ("--csv", "--print-api-trace", "--print-gpu-trace"),
    "rocprof": ("--hip-trace", "--sys-trace"),
    "rocprofv3": ("--output-format", "--runtime-trace"),
    "sbatch": (
        *("--account", "--cpus-per-task", "--gpus", "--gpus-per-node", "--gpus-per-task"),
        *("--nodes", "--ntasks", "--ntasks-per-node", "--partition"),
    ),
    "srun": ("--mpi",),
    "horovodrun": (
        *("--blacklist-cooldown-range", "--host-discovery-script", "--max-np", "--min-np"),
        *("--network-interface", "--network-interfaces"),
    ),
    "mpirun": ("--mca", "--prefix"),
    "torchrun": ("--nproc-per-node", "--nproc_per_node", "--standalone"),
    "deepspeed": ("--num_gpus",),
    "XLA": (
        *("--tf_xla_persistent_cache_directory", "--xla_gpu_command_buffer_scheduling_mode"),
        *("--xla_gpu_enable_command_buffer", "--xla_gpu_enable_cublaslt", "--xla_gpu_enable_triton_gemm"),
        *(
            "--xla_gpu_cudnn_gemm_fusion_level",
            "--xla_gpu_experimental_enable_fusion_autotuner",
            "--xla_gpu_force_conv_nhwc",
        ),
        *("--xla_gpu_enable_llvm_module_compilation_parallelism", "--xla_gpu_per_fusion_autotune_cache_dir"),
        *("--xla_gpu_dot_merger_threshold_mb", "--xla_gpu_enable_cudnn_layer_norm"),
        *("--xla_gpu_experimental_autotune_backends", "--xla_gpu_autotune_level"),
        "--xla_gpu_experimental_autotuner_cache_dir",
    ),
    "python -m benchmarks": (
        *("--at-once", "--by", "--samples", "--starts", "--strategies", "--tenfold", "--times", "--way", "--ways"),
    ),
    "pip": ("--no-compile",),
    "python -m harness.training.worker": ("--cell", "--record"),
    "a script of the user's": ("--epochs",),
}
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*\w(?![\w-])")
SUMMARISED = ("Spread", "Difference", "Outlier", "Host", "CountedDoubt")
# Keys of evidence that every finding may have (profiles/verdicts/findings.py, Case.where).
OF_ALL_FINDINGS = {"gain_of_whole", "gpu", "gpus", "worst_step", "worst_step_start_ns", "in_place_of"}
VARIED = ("resnet50-2gpu-prefetch", "resnet50-2gpu-in-stream", "dense41m-2gpu-pinned", "cnn-1gpu-graph", "lstm-1gpu")
SAMPLED = "gpu-metrics/phases-2gpu"


@cache
def text_of_docs() -> str:
    return "\n".join(page.read_text() for page in PAGES)


def named(code: str) -> bool:
    """In backticks, alone or in a pointer such as `/gpus/0/steps`, or as a word of a formula."""
    return re.search(rf"(?<![\w-]){re.escape(code)}(?![\w-])", text_of_docs()) is not None


# ---- options


def verbs() -> Iterator[click.Command]:
    group = LazyGroup(name="ringscope", verbs={**HARNESS_VERBS, **PROFILES_VERBS})
    context = click.Context(group)
    yield group
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        command.name = name
        yield command


def options(command: click.Command) -> set[str]:
    return {option for one in command.params for option in (*one.opts, *one.secondary_opts) if option.startswith("-")}


def test_every_option_of_every_verb_is_in_the_section_of_the_verb() -> None:
    sections = re.split(r"^## ", (REFERENCE / "command-line.md").read_text(), flags=re.MULTILINE)
    by_verb = {section.partition("\n")[0]: section for section in sections[1:]}
    group, *commands = verbs()
    assert options(group) == {"--version"} and "--version" in sections[0]
    assert set(by_verb) == {command.name for command in commands}
    for command in commands:
        listed = {
            name
            for cell in re.findall(r"^\| (`-.*?`) \|", by_verb[str(command.name)], re.M)
            for name in re.findall(r"--?[\w-]+", cell)
        }
        assert listed == options(command)


def test_the_docs_name_no_option_that_does_not_exist() -> None:
    known = {option for command in verbs() for option in options(command)} | {"--help"}
    others = {option for several in OF_OTHERS.values() for option in several}
    told = {page: set(OPTION.findall(page.read_text())) for page in [*PAGES, README]}
    unknown = {f"{page.relative_to(ROOT)}: {one}" for page, all_of in told.items() for one in all_of - known - others}
    assert not unknown
    assert others <= set().union(*told.values()) - known


# A command to be typed: in backticks, in a block, in a remedy. What stands in quotes or behind ` -- ` is for others.
COMMAND = re.compile(r"\bringscope ([a-z]+)((?: +[^`\n|#;]*)?)")
SOURCES = [path for folder in ("harness", "profiles", "ringscope") for path in (ROOT / folder).rglob("*.py")]


@pytest.mark.parametrize("kind", ["docs", "sources"])
def test_a_command_that_is_told_gives_a_verb_only_options_that_it_has(kind: str) -> None:
    by_verb = {str(command.name): options(command) | {"--help"} for command in verbs()}
    wrong, seen = [], 0
    for page in [*PAGES, *OTHER_PAGES] if kind == "docs" else SOURCES:
        for verb, rest in COMMAND.findall(page.read_text()):
            if verb not in by_verb:
                continue
            own = re.sub(r"\"[^\"]*\"|'[^']*'| -- .*", "", rest)
            seen += len(OPTION.findall(own))
            wrong += [f"{page.name}: ringscope {verb} {one}" for one in OPTION.findall(own) if one not in by_verb[verb]]
    assert not wrong
    assert seen > 20


# ---- codes


def constants_of_calls(folder: str, names: set[str]) -> set[str]:
    """The texts that calls of these names have as first argument, anywhere below a folder."""
    found = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _name(node.func) in names and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    found.add(first.value)
                else:
                    assert (path.name, ast.unparse(first)) in VARIABLE, f"{path}:{node.lineno}: which code is this?"
    return found


# Where the code is a variable: a finding's own methods.
VARIABLE = {(f"{name}.py", "code") for name in ("case", "collectives", "slow", "places")}
VARIABLE.add(("breaks.py", "places.code_of(place)"))


def _name(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def codes_of_tables(page: str) -> set[str]:
    """The codes in the first column of a page's tables."""
    rows = re.findall(r"^\| (`[^|]*`) \|", (REFERENCE / page).read_text(), re.MULTILINE)
    return {code for row in rows for code in re.findall(r"`([^`]+)`", row)}


def test_every_doubt_is_in_its_page_and_the_page_knows_no_other() -> None:
    raised = constants_of_calls("profiles", {"Doubt"}) | constants_of_calls("harness", {"Doubt"})
    assert len(raised) > 30
    assert codes_of_tables("doubts.md") == raised


def test_every_finding_is_in_its_page_and_the_page_knows_no_other() -> None:
    found = constants_of_calls("profiles/verdicts", {"finding", "unpriced", "Finding"})
    found |= constants_of_calls("profiles/verdicts", {"_exposed_as", "_priced"})
    found |= {*places.CODES.values(), places.LOCK, places.BATCHES}
    assert len(found) > 25
    assert codes_of_tables("findings.md") == found


# ---- columns and metrics


@pytest.mark.parametrize(("kind", "heading"), [(LaunchRow, "results.csv"), (CellRow, "summary.csv")])
def test_every_column_of_a_table_of_a_sweep_is_in_its_page_and_no_other(kind: type[Any], heading: str) -> None:
    (section,) = re.findall(rf"^## {heading}.*?(?=^## )", (REFERENCE / "results-csv.md").read_text(), re.M | re.S)
    rows = re.findall(r"^\| (`[^|]*`) \|", section, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(column_names(kind))


def test_every_metric_that_can_be_gated_is_named() -> None:
    assert not [metric for metric in (*RECORDED, *SWEPT, *LOGGED) if not named(metric)]


# ---- keys of the JSON


def test_every_key_of_the_summary_of_many_gpus_is_in_the_section_on_it() -> None:
    (section,) = re.findall(r"^## More than 8 GPUs.*?(?=^## )", (REFERENCE / "report.md").read_text(), re.M | re.S)
    kinds = (ranks_summary.Summary, *(getattr(ranks_summary, name) for name in SUMMARISED))
    keys = {one.name for kind in kinds for one in fields(kind)}
    rows = {name for row in re.findall(r"^\|.*\|$", section, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert not keys - rows
    assert {"step", "waiting"} <= set(re.findall(r"`(\w+)`", section))


def test_every_key_of_what_is_explained_of_a_sweep_is_in_the_section_on_it() -> None:
    (section,) = re.findall(r"^## Why N ranks.*?(?=^## )", (REFERENCE / "report.md").read_text(), re.M | re.S)
    keys = {one.name for kind in (explained.Explained, explained.Loss) for one in fields(kind)} - {"doubts"}
    rows = {name for row in re.findall(r"^\|.*\|$", section, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert keys | set(without_exchange.CAUSES) <= rows


def documented() -> dict[str, set[str]]:
    """Place of an object, as the headings of json.md give it -> its keys."""
    found: dict[str, set[str]] = {}
    for section in re.split(r"^## ", (REFERENCE / "json.md").read_text(), flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        rows = re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)
        for place in heading.split(", "):
            found["" if place == "Measures" else place] = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    return found


# Objects whose keys are data: places under them are written with `.*`, and their keys are named where they are defined.
BY_NAME = {
    "kinds": tuple(KINDS),
    "copies": CLASSES,
    "groups": tuple(GROUPS) + ("other",),
    "hand_over_ns": ("launched", "in_graphs"),
    "means": (*KINDS_OF_TIME, "window"),
}
OWNED = ("ledger_ns", "busy_ns", "batch_gap_ledger_ns", "saved_ns", "causes_ns", "called_idle_ns")
SPREADS = {"launch_latency_ns": {"p50", "p95"}, "skew_ns": {"p50", "max"}, "period_ns": {"p50", "p95", "max"}}


# What no recording of tests/data has.
UNSEEN: dict[str, type[Any]] = {
    "straggler": Straggler,
    "breaks[]": ToldBreak,
    "gpus[].breaks[]": Break,
    "gpus[].steps.repeats": Repeats,
    "gpus[].rest": Rest,
    "gpus[].places": Places,
    "gpus[].places.rows[]": Place,
    "gpus[].places.rows[].lines[]": Line,
    "gpus[].arithmetic": Arithmetic,
    "gpus[].arithmetic.rows[]": Computed,
}


def objects(value: Any, place: str = "") -> Iterator[tuple[str, set[str]]]:
    if isinstance(value, list):
        for one in value:
            yield from objects(one, f"{place}[]")
    elif isinstance(value, dict):
        name = place.rpartition(".")[2]
        if name in BY_NAME:
            assert set(value) <= set(BY_NAME[name]), place
            for one in value.values():
                yield from objects(one, f"{place}.*")
        elif name in OWNED:
            assert set(value) <= set(OWNERS), place
        elif name in SPREADS:
            assert set(value) == SPREADS[name], place
        elif name == "evidence":
            pass  # its keys are those of the source, below
        else:
            yield place, set(value)
            for key, one in value.items():
                yield from objects(one, f"{place}.{key}" if place else key)


def test_every_key_of_the_json_is_in_its_section_and_the_page_knows_no_other() -> None:
    sections = documented()
    seen: dict[str, set[str]] = {}
    for recording in (*VARIED, SAMPLED):
        measures = ringscope.measure(DATA / f"{recording}{'' if recording == SAMPLED else '.rank*'}.sqlite.xz")
        for place, keys in objects(measures_json.to_json(measures)):
            assert keys == sections.get(place), place
            seen[place] = keys
    assert set(sections) - set(seen) == {*UNSEEN, "findings[].evidence"}
    for place, kind in UNSEEN.items():
        assert sections[place] == {one.name for one in fields(kind)}


def test_every_key_of_the_evidence_is_named_and_the_page_knows_no_other() -> None:
    sections = documented()
    of_gpus = set().union(*(keys for place, keys in sections.items() if place.startswith("gpus[]")))
    used = evidence_of_the_sources()
    assert len(used) > 30
    assert used | OF_ALL_FINDINGS <= sections["findings[].evidence"] | of_gpus
    assert sections["findings[].evidence"] <= used | OF_ALL_FINDINGS


def evidence_of_the_sources() -> set[str]:
    """The keys of the dictionaries that verdicts give as evidence, or that their functions of this name return."""
    found: set[str] = set()
    for path in (ROOT / "profiles" / "verdicts").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _name(node.func) in ("finding", "unpriced", "_priced", "Finding"):
                if _name(node.func) == "Finding" and path.name != "breaks.py":
                    continue  # what these make of a call's own arguments
                (given,) = (keyword.value for keyword in node.keywords if keyword.arg == "evidence")
                found |= set(_keys(given))
            elif isinstance(node, ast.FunctionDef) and node.name == "evidence":
                found |= {key for one in ast.walk(node) if isinstance(one, ast.Return) for key in _keys(one.value)}
    return found


def _keys(given: ast.expr) -> Iterator[str]:
    """Of a dictionary as it is written, of two joined by `|`, of one of two by a condition, or unpacked into one."""
    if isinstance(given, ast.Dict):
        for key, value in zip(given.keys, given.values, strict=True):
            if key is None:
                yield from _keys(value)
            elif isinstance(key, ast.Constant):
                yield str(key.value)
    elif isinstance(given, ast.BinOp):
        yield from _keys(given.left)
        yield from _keys(given.right)
    elif isinstance(given, ast.IfExp):
        yield from _keys(given.body)
        yield from _keys(given.orelse)
    elif isinstance(given, ast.DictComp):  # {f"hand_over_{kind}_ns": ...}
        assert ast.unparse(given.key) == "f'hand_over_{kind}_ns'"
        yield from (f"hand_over_{kind}_ns" for kind in BY_NAME["hand_over_ns"])


def test_every_owner_and_every_group_of_kernels_is_named() -> None:
    assert not [name for name in (*OWNERS, *BY_NAME["groups"]) if not named(name)]


@pytest.mark.parametrize(("page", "module"), [("memory", fits), ("rules", rules)])
def test_every_key_of_what_fits_and_of_the_rules_is_in_its_guide(page: str, module: Any) -> None:
    told = set(re.findall(r"`(\w+)`", (DOCS / "guides" / f"{page}.md").read_text()))
    written = [
        node.value
        for function in ast.parse(inspect.getsource(module)).body
        if isinstance(function, ast.FunctionDef) and function.name in ("to_json", "expected_json", "_prediction")
        for made in ast.walk(function)
        if isinstance(made, ast.Dict)
        for node in made.keys
        if isinstance(node, ast.Constant)
    ]
    assert len(written) > 8 and not set(written) - told - {"schema"}


def test_every_key_of_the_json_of_collectives_is_in_its_section_and_the_page_knows_no_other() -> None:
    page = (REFERENCE / "collectives-json.md").read_text()
    told = {
        heading: set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE))))
        for heading, text in re.findall(r"^## (.*)\n([^#]*)", page, re.MULTILINE)
    }
    kinds = {
        **{"Collectives": logged.Logged, "kinds[]": logged.LoggedKind},
        **{"kinds[].each[]": logged.LoggedRank, "processes[]": logged.LoggedProcess},
    }
    assert told == {place: {one.name for one in fields(kind)} for place, kind in kinds.items()}


def test_every_key_of_the_json_of_predictions_is_in_its_section_and_the_page_knows_no_other() -> None:
    """Of a prediction from recordings with what was measured beside it, and of a forecast across hosts."""
    page = (REFERENCE / "predict-json.md").read_text()
    told: dict[str, set[str]] = {}
    for heading, text in re.findall(r"^##+ (.*)\n([^#]*)", page, re.MULTILINE):
        keys = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE))))
        told |= dict.fromkeys(re.sub(r"From .*: `(ringscope\.\w+/1)`", r"\1", heading).split(", "), keys)
    prediction = step_time.Prediction(4, 1, 1, 1, 0.5, 0.4, 0.6)
    outlook = step_time.Outlook([prediction], step_time.Basis("replayed", 1, 1, 1), step_time.Measured(4, 1))
    hosts = throughput.Hosts(2, Network(1, 1e9, 5e3), step_bytes=10**8, per_rank_batch=32)
    across = throughput.of_points("measured", [Point(1, 100.0), Point(2, 190.0)], [4, 8], hosts)
    seen = set()
    for written in (step_time.to_json(outlook), throughput.to_json([across])):
        for place, keys in objects(json.loads(json.dumps(written))):
            assert keys == told.get(place or written["schema"]), place
            seen.add(place or written["schema"])
    assert seen == set(told)
