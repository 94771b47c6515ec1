"""A cell, which is one measurement point of `ringscope bench`, and the table of its settings.

Each field of `Cell` has a `Setting`. These give the options of bench, train and record, the grid of cells, the
checks of names, the columns of results.csv and summary.csv, the words of reports, and the settings that `compare`
and `predict` compare.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any, Final

from . import strategies
from .setting import Setting

MOST: Final = 1 << 40  # the largest number that a cell may hold
TFRECORDS: Final = "*tfrecord*"  # pattern for the files in a directory of data


def _setting(default: Any, help: str, **more: Any) -> Any:
    """A dataclass field with a `Setting`. Returns Any, so that mypy takes the field's annotated type."""
    return field(default=default, metadata={"setting": Setting(help, **more)})


_axis = partial(_setting, axis=True)


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement point: a training with these settings. Equal cells have equal ids on every machine."""

    model: str = _axis(MISSING, "Model", option="models", fits=True, column="first")
    ranks: int = _axis(
        MISSING, "Ranks: processes, one GPU each", least=1, words="{} ranks", one="one rank", column="first"
    )
    per_rank_batch: int = _axis(
        MISSING,
        "Samples per rank and step",
        least=1,
        fits=True,
        title="batch per rank",
        words="{} per rank",
        column="first",
    )
    feed: str = _axis(
        "prefetch",
        "How a batch reaches the GPU",
        choices=strategies.EVERY_FEED,
        option="feeds",
        fits=True,
        words="feed {}",
        column="first",
        exchangeable=True,
    )
    input_dtype: str = _axis(
        "float32",
        "Type of the input samples",
        choices=("float32", "uint8"),
        fits=True,
        title="input",
        words="{} input",
        exchangeable=True,
    )
    step: str = _axis(
        "fit",
        "How a training step runs (fit: in model.fit's graph; compiled: by XLA)",
        choices=("fit", "compiled"),
        fits=True,
        words="step {}",
        column="first",
        exchangeable=True,
    )
    precision: str = _axis(
        "float32",
        "Dtype policy of Keras",
        choices=("float32", "mixed_bfloat16", "mixed_float16"),
        fits=True,
        column="first",
        exchangeable=True,
    )
    strategy: str = _axis(
        "horovod",
        "How the training is spread over the GPUs",
        choices=tuple(strategies.STRATEGIES),
        words="strategy {}",
        unsaid=True,
        column="first",
    )
    compression: str = _axis(
        "none",
        "Compression of gradients",
        choices=("none", "fp32", "fp16", "bf16"),
        words="compression {}",
        unsaid=True,
        exchangeable=True,
    )
    aggregate: int = _axis(
        1,
        "Steps whose gradients are added up before each all-reduce",
        least=1,
        words="all-reduce every {} steps",
        unsaid=True,
    )
    op: str = _axis(
        "average",
        "How the ranks' gradients are combined (adasum: by MPI only)",
        choices=("average", "adasum"),
        words="gradients by {}",
        unsaid=True,
        digested=False,
    )
    fusion_mb: int = _axis(
        128,
        "Size of Horovod's fusion buffer in MB; 0: none",
        least=0,
        title="fusion, MB",
        words="fusion up to {} MB",
        unsaid=True,
        exchangeable=True,
        digested=False,
    )
    cycle_us: int = _axis(
        1000,
        "Horovod's cycle time in microseconds",
        least=1,
        title="cycle, µs",
        words="cycle {} µs",
        unsaid=True,
        exchangeable=True,
        digested=False,
    )
    autotune: str = _axis(
        "off",
        "Let Horovod choose fusion buffer and cycle before the timed steps; its choice is kept",
        choices=("off", "on"),
        words="autotune {}",
        unsaid=True,
        exchangeable=True,
        digested=False,
    )
    micro_batches: int = _axis(
        1,
        "Number of micro-batches, into which a batch is cut for the stages of a split model",
        least=1,
        title="micro-batches",
        words="{} micro-batches",
        unsaid=True,
        exchangeable=True,
        digested=False,
    )
    stages: int = _axis(
        2,
        "With --strategy hybrid: number of GPUs over which one model is split",
        least=1,
        words="{} stages",
        unsaid=True,
        digested=False,
    )
    optimizer: str = _axis(
        "sgd",
        "Keras's optimizer (sgd with momentum)",
        choices=("sgd", "adam", "lamb"),
        words="optimizer {}",
        unsaid=True,
        digested=False,
    )
    rate_rule: str = _axis(
        "constant",
        "How the learning rate changes on N ranks (linear: times N; sqrt: times the root of N; warm-up: times N, "
        "reached over the first steps)",
        choices=("constant", "linear", "sqrt", "warm-up"),
        title="learning rate",
        words="learning rate {}",
        unsaid=True,
        digested=False,
    )
    until: str = _setting(
        "",
        "Train until this validation accuracy is reached, such as accuracy=0.95, and report the time",
        words="until {}",
        unsaid=True,
        digested=False,
    )
    max_epochs: int = _setting(20, "With --until: the most epochs to train", least=1, digested=False, column="none")
    epoch_samples: int = _setting(4096, "Samples per epoch of generated data", least=64, digested=False, column="none")
    memory_limit_mb: int = _axis(
        0,
        "Memory that a rank may take, in MiB, on its GPU, or on the host if there is no GPU; 0: all",
        least=0,
        title="memory limit, MiB",
        words="within {} MiB",
        unsaid=True,
        digested=False,
    )
    steps: int = _setting(40, "Timed steps per launch", least=2)
    warmup: int = _setting(10, "Untimed steps before the timed ones", least=1)
    data: str = _setting(
        "synthetic", "synthetic, generated (a task that can be learnt), or a directory of TFRecords", column="none"
    )
    seed: int = _setting(0, "Seed of weights and data", least=0, column="none")
    options: tuple[tuple[str, str], ...] = ()  # further options of the worker, sorted; only tests set them
    global_batch: int | None = _setting(
        None,
        "With --scaling strong: samples per step over all ranks, the same for each number of ranks",
        least=1,
        derived=True,
        words="{} over all ranks",
        unsaid=True,
    )

    @property
    def spread(self) -> strategies.Strategy:
        """The row of the table of strategies for this cell."""
        return strategies.of(self.strategy)

    @property
    def processes(self) -> int:
        """The number of processes that train: one per rank, unless the strategy gives a process several GPUs."""
        return max(1, self.ranks // self.gpus_per_process)

    @property
    def gpus_per_process(self) -> int:
        """The number of GPUs that a training process holds."""
        if self.spread.one_process:
            return self.ranks
        return self.stages if self.spread.splits else 1

    @property
    def sends_float32(self) -> bool:
        """True if most gradients are sent as float32. A compiled mixed_bfloat16 step may send bfloat16 on GPUs."""
        as_computed = self.precision == "mixed_bfloat16" and self.step == "compiled" and self.strategy == "horovod"
        narrow = as_computed and self.aggregate == 1 and self.op != "adasum"
        return self.compression == "fp32" or (self.compression == "none" and not narrow)

    @property
    def accuracy_wanted(self) -> float | None:
        """The accuracy that `until` names: 0.95 for `accuracy=0.95`; None if `until` is empty. ValueError for other
        text."""
        if not self.until:
            return None
        metric, _, value = self.until.partition("=")
        wanted = float(value)
        if metric != "accuracy" or not 0 < wanted < 1:
            raise ValueError(f"{self.until!r} is not accuracy=A with A between 0 and 1")
        return wanted

    @property
    def id(self) -> str:
        """A readable name from the main settings, with a short digest of all fields to make it unique."""
        left_out = {one.name for one in SETTINGS if not one.digested and getattr(self, one.name) == one.default}
        digested = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in left_out}
        digest = hashlib.sha256(json.dumps(digested, sort_keys=True).encode()).hexdigest()[:8]
        first = (self.model, f"n{self.ranks}", f"b{self.per_rank_batch}", self.feed, self.input_dtype)
        return "-".join((*first, self.step, self.precision, digest))

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"options": [list(pair) for pair in self.options]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Cell:
        """Read a cell from JSON; fields that this version does not know are ignored. Raises ValueError for a wrong
        type."""
        known = {name: value for name, value in data.items() if name in {one.name for one in fields(cls)}}
        for one in SETTINGS:
            value = known.get(one.name, one.default)
            may_be_null = one.derived or one.name not in known
            if type(value) is not (int if one.is_number else str) and not (value is None and may_be_null):
                raise ValueError(f"{one.name} is {value!r}, not {'a whole number' if one.is_number else 'text'}")
            if type(value) is int and not (one.name == "ranks") <= value <= MOST:
                raise ValueError(f"{one.name} is {value}, which is out of range")
        options = tuple((k, v) for k, v in data.get("options", ()))
        if not all(isinstance(text, str) for pair in options for text in pair):
            raise ValueError(f"options are {options}, not pairs of text")
        return cls(**(known | {"options": options}))


# All settings, in the order of the cell's fields.
SETTINGS: Final[tuple[Setting, ...]] = tuple(
    replace(one.metadata["setting"], name=one.name, default=None if one.default is MISSING else one.default)
    for one in fields(Cell)
    if one.metadata
)
AXES: Final = tuple(one for one in SETTINGS if one.axis)
# Settings in which the cells of a sweep may differ.
TELLING: Final = tuple(one for one in SETTINGS if one.axis or one.derived)


def in_words(cell: Cell) -> str:
    """The cell in words, with the settings that are not the default: `resnet50 x4, 256 per rank, feed device`."""
    shown = [one for one in AXES if one.name not in ("model", "ranks", "per_rank_batch")]
    parts = [f"{cell.model} x{cell.ranks}, {cell.per_rank_batch} per rank"]
    values = ((one, getattr(cell, one.name)) for one in shown)
    return ", ".join([*parts, *(one.words.format(value) for one, value in values if value != one.default)])


def setting(name: str) -> Setting:
    return next(one for one in SETTINGS if one.name == name)
