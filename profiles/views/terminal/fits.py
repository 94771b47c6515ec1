"""Show on a terminal which batch fits in memory: the answer, the tries, predictions, and changes that save memory."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from ...ground import numbers
from ...scaling.first_looks import options
from ...scaling.fits import Expected, Fits, Prediction
from ...scaling.look import ranks
from ...scaling.remedies import Remedy
from ...scaling.search import Try
from .recording import doubted
from .widths import Column, Fitted, Prose, Row


def show(fits: Fits, directory: str, console: Console) -> None:
    """Print the result of a search for the largest batch."""
    console.print(Prose(f"\n{answer(fits)}", "bold"))
    console.print(Prose(f"{options(fits.cell)} ({directory})", "dim"))
    rows: list[Row] = []
    for batch in sorted({one.batch for one in fits.tries}):
        found = [one for one in fits.tries if one.batch == batch]
        style = "" if all(one.fits for one in found) else "red"
        rows.append((f"{batch:,}", str(len(found)), Text(outcome(found), style)))
    if rows:
        console.print(Fitted([Column("batch", right=True), Column("launches", right=True), Column("memory")], rows))
    for one in fits.predictions:
        whole = fits.failing and fits.done  # an unfinished search has no result with which to compare a prediction
        console.print(Prose(predicted(one, fits.largest if whole else None)))
    if fits.remedies and fits.failing:
        _remedies(fits, console)
    for doubt in fits.doubts:
        console.print(Prose(doubted(doubt), "dim"))


def answer(fits: Fits) -> str:
    """The answer in one sentence: the largest batch per rank that fits, or that no batch fits or was tried."""
    who = f"{fits.cell.model} on {ranks(fits.cell.ranks)}"
    room = f"{numbers.size(fits.plan.capacity_bytes)} of " if fits.plan.capacity_bytes else ""
    where = f"in {room}{'GPU' if fits.device == 'GPU' else 'host'} memory"
    if fits.stopped:
        return f"{who}: the search stopped at {fits.stopped}" + (f"; {fits.largest:,} fit" if fits.largest else "")
    if not fits.tries:
        return f"{who}: no batch was tried yet"
    if not fits.largest:
        most = "not even 1 sample fits" if fits.failing == 1 else "no batch that was tried fits"
        return f"{who}: {most} {where}"
    fitting = f"{numbers.counted(fits.largest, 'sample')} per rank {'fits' if fits.largest == 1 else 'fit'}"
    if fits.all_fit:
        return f"{who}: {fitting} {where}; larger batches were not tried (--up-to)"
    ending = f"; {fits.failing:,} do not" if fits.failing else ""
    so_far = "" if fits.done else "at least "
    return f"{who}: {so_far}{fitting} {where}{ending}"


def outcome(tries: Sequence[Try]) -> str:
    """The result of the launches of one batch, such as `1.2 GB`, `out of memory` or `1.2 GB, or failed` if launches
    differ."""
    took = [one.memory_bytes for one in tries if one.memory_bytes is not None]
    words = [numbers.size(max(took))] if took else []
    words += ["out of memory"] if any(one.out_of_memory for one in tries) else []
    words += ["failed"] if any(one.failure for one in tries) else []
    return ", or ".join(words)


def predicted(one: Prediction, found: int | None) -> str:
    """A prediction in words. found: the largest batch found by trying, with which the prediction is compared; None: no
    comparison."""
    batches = ", ".join(map(str, one.batches))
    least = "at least " if len(one.batches) == 1 else ""
    text = (
        f"predicted from {one.of} ({batches} per rank): {least}{one.largest:,} per rank "
        f"({numbers.size(one.line.fixed_bytes)}, and {numbers.size(one.line.per_sample_bytes)} more per sample)"
    )
    return (
        text
        if not found
        else f"{text}, {numbers.gain(one.largest / found - 1)} compared with the batch found by trying"
    )


def _remedies(fits: Fits, console: Console) -> None:
    some = "" if fits.needed_bytes is None else f", which takes some {numbers.size(fits.needed_bytes)}"
    console.print(Prose(f"\nWhat would make {fits.failing:,} fit{some}", "bold"))
    console.print(remedy_table(fits.remedies))


def remedy_table(remedies: Sequence[Remedy]) -> Fitted:
    rows = []
    for one in remedies:
        fits = {True: "yes", False: "no", None: numbers.UNKNOWN}[one.enough]
        change = f"{one.code}: {one.option}\n{one.how}"
        rows.append((numbers.size(one.saves_bytes), numbers.size(one.needs_bytes), fits, change))
    titles = [Column("saves", right=True), Column("then", right=True), Column("fits"), Column("change")]
    return Fitted(titles, rows, keys=3)


def show_expected(found: Sequence[Expected], console: Console) -> None:
    """Print, per cell, the memory of finished runs and the largest batch predicted from them."""
    for one in found:
        who = f"{one.cell.model} on {ranks(one.cell.ranks)}"
        console.print(Prose(f"{who}: batches expected to fit in {numbers.size(one.capacity_bytes)} of memory", "bold"))
        # The batch is that of one of the runs, and not an answer.
        console.print(Prose(options(one.cell, without="per_rank_batch"), "dim"))
        for each in one.measured:
            console.print(f"  {each.batch:,} per rank took {numbers.size(each.memory_bytes)}", highlight=False)
        for prediction in one.predictions:
            console.print(Prose(f"  {predicted(prediction, None)}"))
        if not one.predictions:
            console.print(Prose("  no prediction: the memory of these runs does not grow with the batch"))
