"""What is printed on a terminal of 60, 80 and 120 columns: the words and numbers of a wide one, whole."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from rich.console import Console
from rich.text import Text

from profiles import analyse, rules
from profiles.comparing import compare
from profiles.gate.judgement import judge
from profiles.many_gpus import ranks_summary
from profiles.measuring import subject
from profiles.measuring.subject import Subject
from profiles.model.measures import Measures
from profiles.predicting import step_time, throughput
from profiles.predicting.curve import Point
from profiles.scaling.remedies import remedies as remedies_of
from profiles.views.terminal import compare as compare_view
from profiles.views.terminal import fits as fits_view
from profiles.views.terminal import gate as gate_view
from profiles.views.terminal import inference as inference_view
from profiles.views.terminal import predicted_step_time as predict_view
from profiles.views.terminal import predicted_throughput as forecast_view
from profiles.views.terminal import ranks as ranks_view
from profiles.views.terminal import recording as terminal
from profiles.views.terminal import rules as rules_view
from profiles.views.terminal import sweep
from profiles.views.terminal.widths import Column, Fitted, Prose, broken
from tests.made import hand
from tests.profiles.explaining import test_explained
from tests.profiles.scaling import test_fits, test_learning
from tests.profiles.test_rules import planted
from tests.profiles.views import test_inference, test_strategies
from tests.recordings import DATA

TWO = [DATA / f"resnet50-2gpu-prefetch.rank{rank}.sqlite.xz" for rank in (0, 1)]
KERNELS = "void cask_plugin__5x_cudnn::xmma_new::gemm::kernel<cudnn::Params{}>(float*, int)"
_VALUE = re.compile(r"(?<![\w.])[-+±~<>]*\d[\d,.]* (?:ns|µs|ms|s|kB|MB|GB|%|x|GB/s|MB/s|samples/s)(?![\w/])")


def until(to: Console) -> None:
    sweep.show(
        test_learning.scaling(
            test_learning.launch(test_learning.ONE, 0, test_learning.learnt(8.0, 4)),
            test_learning.launch(test_learning.ONE, 1, test_learning.learnt(40.0, 20, reached=False)),
            test_learning.launch(test_learning.TWO, 0, *[test_learning.learnt(4.9, 6)] * 2),
        ),
        "runs/x",
        to,
    )


def fits(to: Console) -> None:
    runs = (test_fits.launched(8, 648_000), test_fits.launched(16, 688_000), test_fits.launched(100, None))
    found = test_fits.found(*runs)
    cell = replace(test_fits.CELL, per_rank_batch=100)
    known = test_fits.known(cell, list(runs))
    fits_view.show(replace(found, remedies=remedies_of(cell, known, capacity_bytes=1_000_000)), "runs/x", to)


def rules_of_thumb(to: Console) -> None:
    rules_view.show([rules.judge(rule, planted(1.25), "mlp") for rule in rules.RULES.values()], to)


@cache
def measured() -> Measures:
    return analyse(TWO).measures


def timeline(to: Console) -> None:
    terminal.show(measured(), to, per_step=True)


def many(to: Console) -> None:
    gpus = [hand.gpu(rank=rank, ledger={"compute": 5_000_000 + 900_000 * (rank == 7)}) for rank in range(32)]
    found = hand.measures(gpus)
    ranks_view.show(found, ranks_summary.summarise(found), to)


def recordings(to: Console) -> None:
    compare_view.show(compared(), to)


@cache
def compared() -> compare.Comparison:
    before, after = (subject.load([path]) for path in TWO)
    return compare.compare(before, after)


KEPT = TemporaryDirectory()


@cache
def directory() -> Path:
    """Of a run with what explains it."""
    folder = test_explained.write(Path(KEPT.name) / "run", test_explained.SMALL)
    test_explained.write(folder / "explain", test_explained.WITHOUT, launches=2)
    return folder


def losses(to: Console) -> None:
    scaling, found = test_explained.read(directory())
    sweep.show(scaling, "runs/x", to, found)


def sweeps(to: Console) -> None:
    both = subject.load([directory()])
    compare_view.show(replace(compare.compare(both, both), before="x", after="y"), to)


def more_gpus(to: Console) -> None:
    forecast_view.show([throughput.of_points("measured", [Point(1, 1492), Point(2, 2935)], [4, 128], None)], to)


def replayed(to: Console) -> None:
    one, two = (
        Subject(f"{ranks}", hand.measures([hand.gpu(rank=k, waiting=0, transfer=10) for k in range(ranks)]), None)
        for ranks in (1, 2)
    )
    to.print(Prose(predict_view.text(step_time.outlook(one, two, [4, 8], None))))


def budgets(to: Console) -> None:
    found = judge(
        Subject("both", measured(), None), at_most={"feed_gap_share": 0.001, "idle_sync_share": 0.5}, at_least={}
    )
    to.print(Prose(gate_view.text(found)))


REPORTS: dict[str, Callable[[Console], None]] = {
    "bench --until": until,
    "bench, strategies": lambda to: sweep.show(test_strategies.scaling(compiled="it fell"), "runs/x", to),
    "fits": fits,
    "rules": rules_of_thumb,
    "infer": lambda to: inference_view.show(test_inference.FOUND, "runs/x", to),
    "timeline": timeline,
    "timeline of many": many,
    "bench, explained": losses,
    "compare": recordings,
    "compare, runs": sweeps,
    "predict": replayed,
    "predict, more GPUs": more_gpus,
    "gate": budgets,
}


def printed(report: Callable[[Console], None], width: int) -> str:
    out = io.StringIO()
    report(Console(file=out, width=width, highlight=False, markup=False, emoji=False))
    return out.getvalue()


@cache
def in_one_line(name: str) -> str:
    return printed(REPORTS[name], 2000)


def words(text: str) -> set[str]:
    """But for those of bars, which are as long as there is room."""
    return {word for word in text.split() if not re.search("[█░·▏▎▍▌▋▊▉]", word)}


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_word_and_no_value_is_split_and_none_is_lost(name: str, width: int) -> None:
    wide, narrow = in_one_line(name), printed(REPORTS[name], width)
    assert max(map(len, narrow.splitlines())) <= width
    too_wide = {word for word in words(wide) if len(word) > width - 8}  # a path: it can only be cut
    if not too_wide:
        assert words(narrow) == words(wide)
    values = Counter(_VALUE.findall(wide))
    assert (values or name == "gate") and not values - Counter(_VALUE.findall(narrow))


def test_the_report_of_reaching_an_accuracy_says_why_there_is_no_time() -> None:
    text = " ".join(printed(until, 2000).split())
    assert "n/a (1 of 2 launches reach the accuracy)" in text


@pytest.mark.parametrize("width", [16, 20, 40, 60])
def test_a_table_of_any_width_holds_every_cell(width: int) -> None:
    columns = [Column("name of it"), *(Column(f"of column {number}", right=True) for number in range(5))]
    rows = [[f"row {row}", *(f"{row}{number}.0 ms" for number in range(5))] for row in range(3)]
    text = printed(lambda to: to.print(Fitted(columns, rows)), width)
    assert max(map(len, text.splitlines())) <= width
    assert all(text.count(cell) == 1 for row in rows for cell in row[1:])


def test_what_names_a_row_stands_above_it_where_it_is_too_wide() -> None:
    table = Fitted([Column(), Column("before", right=True)], [[KERNELS, "1.0 ms"], [KERNELS + "2", "2.0 ms"]])
    lines = printed(lambda to: to.print(table), 60).splitlines()
    assert lines[0].strip() == "before" and [line.strip() for line in lines if " ms" in line] == ["1.0 ms", "2.0 ms"]
    assert "".join("".join(lines).split()).count("".join(KERNELS.split())) == 2


def test_lines_that_go_on_stand_under_their_beginning() -> None:
    lines = [line.plain for line in broken(Text("• one two 3 ms four\n  → five six"), 12)]
    assert lines == ["• one two", "  3 ms four", "  → five six"]


def test_a_word_that_is_wider_than_the_line_keeps_the_indent() -> None:
    lines = [line.plain for line in broken(Text("  • abcdefghijklmnopqrstuvw end"), 12)]
    assert lines == ["  • abcdefgh", "    ijklmnop", "    qrstuvw", "    end"]


def test_a_doubt_of_check_goes_on_below_its_text() -> None:
    assert [line.plain for line in broken(Text("· one two three"), 9)] == ["· one two", "  three"]
