"""Options of a command line, frozen: made by the verbs, read by the jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ..launch.hosts import Host
from ..launch.profilers import Span
from ..processes.supervise import Limits
from .grid import Choices


@dataclass(frozen=True, slots=True)
class Job:
    """Options for a batch system."""

    ranks_per_node: int | None = None
    cpus_per_rank: int | None = None
    prologue: Path | None = None  # lines of bash to run before the sweep
    volume: str | None = None  # for kubeflow: the volume claim that keeps the run directory


@dataclass(frozen=True, slots=True)
class Launch:
    """Options that say where and how ranks are started, and where their files go."""

    launcher: str = "horovodrun"
    launcher_args: str = ""  # split as a shell would
    hosts: tuple[Host, ...] = ()  # none: this machine
    limits: Limits = field(default_factory=Limits)
    out: Path | None = None  # the run directory; None: a new one under runs/
    variables: tuple[str, ...] = ()  # environment variables that ranks get beside those that training needs
    container: str | None = None  # the image that ranks run in
    job: Job = field(default_factory=Job)
    given: frozenset[str] = frozenset()  # the options above that the command line names


@dataclass(frozen=True, slots=True)
class Bench:
    """A grid, or the trial of a finding, and how often each cell is launched."""

    choices: Choices
    launch: Launch
    launches: int | None = None  # None: as many as fit into `minutes`, 3 at most
    minutes: float | None = None  # time in which launches are repeated; None: a default for the machine
    first_only: bool = False  # train only the first cell of the grid
    finding: str | None = None  # code of a finding to prove, in the launch `of`
    of: Path | None = None
    resume: bool = False
    more_cells: bool = False  # with `resume`: the grid is added to the sweep's cells
    retry_failed: bool = False
    # run launches that explain why N ranks are not N times as fast; None: if they take little time
    explain: bool | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Fits:
    """The search for the largest batch of a cell, or its prediction from earlier runs."""

    launch: Launch
    choices: Choices
    most: int
    within: float  # precision, as a share of the batch
    multiple_of: int
    resume: bool = False
    of: Path | None = None  # runs from which the batch is predicted, without launching anything
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
    choices: Choices | None  # the cell; None for a command
    command: tuple[str, ...] = ()
    ranks: int = 1  # of the command; `span` too
    span: Span = field(default_factory=Span)
    profiler: str | None = None
    keep: str = "recordings"
    recorded: str = "all"  # ranks: all, first-per-host, 0,8,16
    stops: bool = False  # end the command once it is recorded


@dataclass(frozen=True, slots=True)
class Infer:
    """Options of `infer`: the inference to measure, and how long."""

    parts: tuple[str, ...]  # devices, replicas, batching
    models: tuple[str, ...] = ()  # names, or .keras files; none: what fits the machine
    batches: tuple[int, ...] = ()
    replicas: int | None = None
    most: tuple[int, ...] = ()  # requests in a batch at most
    wait_ms: tuple[float, ...] = ()
    rates: tuple[float, ...] = ()  # requests a second
    seconds: float = 10.0  # of each load
    server: str = "litserve"
    url: str | None = None  # of a server that runs already
    instance: Path | None = None  # a sample for it, as JSON
    seed: int = 0
    out: Path | None = None
    json: Path | None = None
    html: Path | None = None
    charts: Path | None = None
