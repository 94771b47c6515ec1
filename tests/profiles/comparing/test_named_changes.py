"""What changed by kernel, operator and layer: hand-built pairs, and real ones that must add up to the ledger."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from profiles import measure
from profiles.comparing.compare import compare, to_json
from profiles.comparing.loss_ledger import losses
from profiles.comparing.named_changes import NamedChanges, by_kernel, by_layer, by_operator
from profiles.ground import terminals
from profiles.ground.errors import RingscopeError
from profiles.measuring.subject import Subject
from profiles.model.measures import Measures
from profiles.views.terminal import compare as view
from tests.figures import figures
from tests.made.build import Build
from tests.recordings import DATA, MORE, needs_shared

US = 1_000


def trained(kernels: dict[str, int], *, steps: int = 6, operator: bool = True) -> Measures:
    """Steps of these kernels, each so many ns long, 2 us apart, under operators of their names."""
    made, now = Build(), 100 * US
    for step in range(steps):
        mark = now - 60 * US
        made.mark(f"step {step}", mark, now - US)
        for place, (name, lasts) in enumerate(kernels.items()):
            call = (mark + US + 300 * place, mark + US + 300 * place + 100)
            if operator:
                made.operator(f"op {name}", call[0] - 10, call[1] + 10)
            made.kernel(now, now + lasts, name, call=call)
            now += lasts + 2 * US
        now += 100 * US
    return measure([made.timeline()])


def states(found: NamedChanges | None) -> dict[str, tuple[str, Fraction]]:
    assert found is not None
    return {row.name: (row.state, row.after_ns - row.before_ns) for row in found.rows}


def test_kernels_and_operators_are_slower_faster_new_or_gone() -> None:
    before = trained({"gemm": 40 * US, "relu": 10 * US, "copy": 5 * US})
    after = trained({"gemm": 50 * US, "relu": 10 * US, "fused": 3 * US})
    found = by_kernel(before, after, 0.02)
    assert found.per == "step" and found.others.change_ns == 0
    assert states(found) == {
        "gemm": ("slower", 10 * US), "copy": ("gone", -5 * US), "fused": ("new", 3 * US), "relu": ("same", 0),
    }  # fmt: skip
    assert [row.name for row in found.rows] == ["gemm", "copy", "fused", "relu"]
    operators = by_operator(before, after, 0.02)
    assert {name.removeprefix("op "): change for name, (_, change) in states(operators).items()} == {
        name: change for name, (_, change) in states(found).items()
    }
    assert by_layer(before, after, 0.02) is None


def test_without_steps_whole_recordings_are_compared() -> None:
    pair = []
    for lasts in (100, 150):
        made = Build()
        made.kernel(0, 1000, "a", call=(-10, -5))
        made.kernel(2000, 2000 + lasts, "b", call=(-4, -2))
        pair.append(measure([made.timeline()]))
    found = compare(Subject("a", pair[0], None), Subject("b", pair[1], None))
    assert found.kernels is not None and found.kernels.per == "recording" and found.ledger is None
    assert states(found.kernels)["b"] == ("slower", 50) and states(found.kernels)["a"] == ("same", 0)
    assert to_json(found)["kernels"]["rows"][0] == {
        "name": "b", "state": "slower", "before_ns": 100, "after_ns": 150, "idle_before_ns": 0, "idle_after_ns": 0,
    }  # fmt: skip


def test_with_steps_on_one_side_alone_nothing_is_compared_by_name() -> None:
    made = Build()
    made.kernel(0, 1000, "a", call=(-10, -5))
    with pytest.raises(RingscopeError, match="only some of the GPUs have steps"):
        by_kernel(trained({"a": 40 * US}), measure([made.timeline()]), 0.02)


def test_a_name_that_a_cut_list_does_not_hold_is_not_called_new() -> None:
    """The list of one side ends at 100 names: what the other side lists beyond them may well have been there."""
    many = {f"kernel {place}": (200 - place) * US for place in range(120)}
    few = {"kernel 119": 300 * US, "kernel 0": 200 * US}
    found = by_kernel(trained(many, operator=False), trained(few, operator=False), 0.02)
    assert "kernel 119" not in states(found) and states(found)["kernel 1"][0] == "gone"
    total = sum(many.values()) - sum(few.values())
    assert sum(row.change_ns for row in (*found.rows, found.others)) == -total
    assert found.others.change_ns == 300 * US - sum((200 - place) * US for place in range(100, 120))


def test_measures_of_an_older_version_have_no_times_by_name() -> None:
    old = trained({"gemm": 40 * US})
    for kernel in old.gpus[0].kernels.top:
        kernel.owned_ns = None
    found = compare(Subject("a", old, None), Subject("b", trained({"gemm": 50 * US}), None))
    assert found.kernels is None and found.ledger is not None
    assert "measure it again" in found.reasons[0]


PAIRS = [
    (DATA / "resnet50-2gpu-pinned.rank0.sqlite.xz", DATA / "resnet50-2gpu-in-stream.rank0.sqlite.xz"),
    (DATA / "lstm-1gpu.rank0.sqlite.xz", DATA / "gru-1gpu.rank0.sqlite.xz"),
    pytest.param(
        MORE / "kineto" / "kineto__resnet50_w0_a.pt.trace.json.gz",
        MORE / "kineto" / "kineto__resnet50_w4_a.pt.trace.json.gz",
        marks=needs_shared,
    ),
]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda path: path.name)
def test_real_pairs_add_up_to_the_change_of_the_ledger_exactly(one: Path, other: Path) -> None:
    before, after = measure([one]), measure([other])
    ledger = losses(before, after).loss_ns
    busy = sum((ledger[owner] or Fraction(0) for owner in ("compute", "collective")), Fraction(0))
    idle = sum((ns or Fraction(0) for owner, ns in ledger.items() if owner.startswith("idle")), Fraction(0))
    for found in (by_kernel(before, after, 0.02), by_operator(before, after, 0.02), by_layer(before, after, 0.02)):
        if found is not None:
            rows = [*found.rows, found.others]
            assert sum((row.after_ns - row.before_ns for row in rows), Fraction(0)) == busy
            assert sum((row.idle_after_ns - row.idle_before_ns for row in rows), Fraction(0)) == idle * found.with_idle
            assert Counter(row.name for row in found.rows).most_common(1)[0][1] == 1


def test_the_terminal_shows_the_largest_changes_and_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    before = Subject("a", trained({"gemm": 40 * US, "relu": 10 * US}), None)
    after = Subject("b", trained({"gemm": 50 * US, "relu": 10 * US}), None)
    view.show(compare(before, after), terminals.console(width=100))
    said = capsys.readouterr().out
    assert "Kernels, per step" in said and "Operators, per step" in said and "Layers" not in said
    (row,) = [line for line in said.splitlines() if line.startswith("gemm")]
    assert figures(row) == ["40.00 µs", "50.00 µs", "+10.00 µs"] and row.split()[-1] == "slower"


def test_names_that_begin_and_end_alike_are_shown_by_what_they_differ_in() -> None:
    tiles = ("256x64x32", "128x128x64", "128x256x64")
    same = [f"sm90_xmma_fprop_implicit_gemm_bf16bf16_nhwc_tilesize{tile}_execute_kernel__5x_cudnn" for tile in tiles]
    other = "sm90_xmma_wgrad_implicit_gemm_bf16bf16_nhwc_tilesize64x64x64_execute_kernel__5x_cudnn"
    short = view.shortened([*same, other, "short"])
    assert len(set(short.values())) == 5 and all(len(one) <= view.NAME_WIDTH for one in short.values())
    assert all(tile in short[name] for tile, name in zip(tiles, same, strict=True))
    assert short["short"] == "short" and short[other].endswith("cudnn")


def test_a_part_that_grows_by_more_than_the_step_is_told_in_percent_of_it(capsys) -> None:
    before, after = trained({"a": 10 * US}), trained({"a": 1_010 * US})
    found = compare(Subject("before", before, None), Subject("after", after, None))
    view.show(found, terminals.console(width=100))
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("compute")]
    share = 100 * float(next(change.share_of_step for change in found.changes if change.owner == "compute"))
    assert share > 100 and line.split()[-2:] == [f"{share:+,.1f}", "%"]


def test_recordings_that_do_not_tell_their_model_are_not_called_alike_in_it(capsys) -> None:
    same = trained({"a": 10 * US})
    view.show(compare(Subject("before", same, None), Subject("after", same, None)), terminals.console(width=100))
    assert "the recordings do not say which model was trained" in capsys.readouterr().out


@pytest.mark.parametrize(("names", "told"), [("abc", ""), ("abd", ""), ("xy", "3 kernels per step before, 2 here")])
def test_recordings_of_other_kernels_are_said_to_be_of_another_model_perhaps(names, told, capsys) -> None:
    before, after = (trained(dict.fromkeys(one, 10 * US)) for one in ("abc", names))
    found = compare(Subject("before", before, None), Subject("after", after, None))
    view.show(found, terminals.console(width=100))
    assert found.other_work[:33] == told and (to_json(found)["other_work"] or "") == found.other_work
    assert ("another model, or the same model" in capsys.readouterr().out) == bool(told)
