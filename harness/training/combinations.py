"""The combinations of a cell's settings that can run; checked without TensorFlow, so also before a launch."""

from __future__ import annotations

from profiles.runs.cell import SETTINGS, setting
from profiles.runs.records import Cell
from profiles.runs.strategies import OWN_SETTINGS, STRATEGIES, TENSORFLOW

from .models import MODELS
from .strategies import Unsupported

LEARNING = ("horovod", "independent", "mirrored")  # strategies that can train until an accuracy is reached


def check(cell: Cell, *, gpus: int | None) -> None:
    """Raise Unsupported, with the reason, for a cell that cannot run on a host with this many GPUs (None: unknown)."""
    for one in SETTINGS:
        value, known = getattr(cell, one.name), tuple(MODELS) if one.name == "model" else one.choices
        if known and value not in known:
            raise Unsupported(f"{one.name} {value!r} is not one of {', '.join(known)}")
    if cell.feed == "pinned" and gpus == 0:
        raise Unsupported("the feed `pinned` copies to a GPU, and this host has none; use `prefetch`")
    spread = cell.spread
    if cell.step not in spread.steps or cell.feed not in spread.feeds:
        raise Unsupported(
            f"{cell.strategy} works with --step {', '.join(spread.steps)} and the feeds {', '.join(spread.feeds)}"
        )
    for name in OWN_SETTINGS:
        if name not in spread.heeds and getattr(cell, name) != setting(name).default:
            heeding = (one.name for one in STRATEGIES.values() if name in one.heeds)
            raise Unsupported(
                f"--{name.replace('_', '-')} does not work with --strategy {cell.strategy}; use {', '.join(heeding)}"
            )
    if spread.backend != TENSORFLOW and (cell.data != "synthetic" or cell.memory_limit_mb):
        raise Unsupported(f"{cell.strategy} takes only --data synthetic, and no --memory-limit-mb")
    own = (setting(name) for name in ("fusion_mb", "cycle_us"))
    if cell.autotune == "on" and any(getattr(cell, one.name) != one.default for one in own):
        raise Unsupported("autotune chooses fusion and cycle by itself; leave out --fusion-mb and --cycle-us")
    _check_learning(cell)


def _check_learning(cell: Cell) -> None:
    try:
        wanted = cell.accuracy_wanted
    except ValueError as error:
        raise Unsupported(f"--until {error}") from None
    if wanted is not None and (cell.data != "generated" or cell.feed == "resident"):
        raise Unsupported("--until needs --data generated, and a feed with more than one batch")
    if wanted is not None and cell.strategy not in LEARNING:
        raise Unsupported(f"--until does not work with the strategy {cell.strategy}; use {', '.join(LEARNING)}")
    if cell.rate_rule == "warm-up" and cell.strategy not in ("horovod", "independent"):
        raise Unsupported(
            f"only ring warms up the learning rate, and {cell.strategy} does not use ring; use --rate-rule linear"
        )
    if cell.rate_rule != "constant" and cell.spread.splits:
        raise Unsupported(
            f"{cell.strategy} splits one batch over its GPUs, so the learning rate stays; leave --rate-rule out"
        )
    if cell.optimizer == "lamb" and cell.strategy == "sharded":
        raise Unsupported("LAMB needs the norms of whole weights, but sharded gives each rank only a part of them")
