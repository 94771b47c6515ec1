"""Frozen options of each verb's command line: the verbs make them, the jobs read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ..launch.hosts import Host
from ..launch.profilers import Span
from ..processes.supervise import Limits
from .grid import Choices


@dataclass(frozen=True, slots=True)
class Job:
    """Options for a sweep in a batch system."""

    gpu_nodes: bool | None = None  # True: its nodes have GPUs, whatever this host has
    ranks_per_node: int | None = None
    cpus_per_rank: int | None = None
    prologue: Path | None = None  # lines of bash to run before the sweep
    volume: str | None = None  # for kubeflow: the volume claim that keeps the run directory


@dataclass(frozen=True, slots=True)
class Launch:
    """Options that say where and how ranks are started, and where their files go."""

    launcher: str = "horovodrun"
    launcher_args: str = ""  # arguments for the launcher itself, split as a shell would
    hosts: tuple[Host, ...] = ()  # empty: this machine
    limits: Limits = field(default_factory=Limits)
    out: Path | None = None  # the run directory; None: a new one under runs/
    variables: tuple[str, ...] = ()  # environment variables that ranks get beside those that training needs
    container: str | None = None  # the image that ranks run in
    job: Job = field(default_factory=Job)
    given: frozenset[str] = frozenset()  # names of the options in this class that the command line gives


@dataclass(frozen=True, slots=True)
class Bench:
    """Options of `bench`: a grid of cells, or the trial of a finding, and how often each cell is launched."""

    choices: Choices
    launch: Launch
    launches: int | None = None  # None: as many as fit into `minutes`, at most 3
    minutes: float | None = None  # repeat launches within this time; None: a default for the machine
    first_only: bool = False  # train only the first cell of the grid
    finding: str | None = None  # code of the finding to prove, which the launch `of` has
    of: Path | None = None
    resume: bool = False
    more_cells: bool = False  # with `resume`: add the grid to the sweep's cells
    retry_failed: bool = False
    # make launches that explain why N ranks are not N times as fast; None: if they take little time
    explain: bool | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Fits:
    """Options of `fits`: search for the largest batch of a cell, or predict it from earlier runs."""

    launch: Launch
    choices: Choices
    most: int
    within: float  # precision of the batch that is found, as a share of it
    multiple_of: int
    resume: bool = False
    of: Path | None = None  # directory of the runs to predict the batch from, without a launch
    as_json: Path | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """Options of `rules`: the rules to measure, on what, how often, and where the files go."""

    names: tuple[str, ...]  # keys of profiles.rules.RULES
    model: str | None  # None: a default for the machine
    batch: int | None
    pairs: int
    time_limit_s: float
    out: Path | None
    resume: bool = False
    as_json: Path | None = None
    html: Path | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """Options of `record`: a cell, or a command of the user's, and how to record it."""

    launch: Launch
    choices: Choices | None  # the cell to record; None for a command
    command: tuple[str, ...] = ()
    ranks: int = 1  # number of ranks of a command
    span: Span = field(default_factory=Span)
    profiler: str | None = None
    nsys_args: str = ""  # further options of `nsys profile`, split as a shell would
    keep: str = "recordings"
    recorded: str = "all"  # which ranks to record: all, first-per-host, or numbers such as 0,8,16
    stops: bool = False  # end the command as soon as it is recorded


@dataclass(frozen=True, slots=True)
class Infer:
    """Options of `infer`: the inference to measure, and how long."""

    parts: tuple[str, ...]  # what to measure: some of devices, replicas and batching
    models: tuple[str, ...] = ()  # names, or .keras files; empty: what fits the machine
    batches: tuple[int, ...] = ()
    replicas: int | None = None
    most: tuple[int, ...] = ()  # numbers of requests that a batch may hold at most, one server for each
    wait_ms: tuple[float, ...] = ()
    rates: tuple[float, ...] = ()  # requests per second, one load for each
    seconds: float = 10.0  # duration of each load
    server: str = "litserve"
    url: str | None = None  # URL of a server that already runs
    instance: Path | None = None  # file with a sample for this server, as JSON
    seed: int = 0
    out: Path | None = None
    json: Path | None = None
    html: Path | None = None
    charts: Path | None = None
