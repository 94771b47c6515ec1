"""Many GPUs on a terminal: the planted rank is named at once, and the whole fits a screen or three."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.training import Shape
from benchmarks.write_sqlite import write_nsys
from profiles.ground.errors import RingscopeError
from profiles.runs.rank_records import RankRecord, write_rank
from profiles.verbs.timeline import command
from tests.figures import figures

SHAPE = Shape(
    steps=12,
    kernels=12,
    gpus=32,
    processes=32,
    skew_ns=50,
    hidden_ns=150_000,
    kernel_ns=20_000,
    feed_ns=100_000,
    slow_gpus=(19,),
    late_ns=2_000_000,
)


def record(shape: Shape, folder: Path, per_host: int = 8) -> Path:
    """The recordings of all ranks, with the records that tell their hosts beside them."""
    for rank in range(shape.gpus):
        write_nsys(shape, folder / f"rank{rank}.sqlite", range(rank, rank + 1))
        host = RankRecord(rank, shape.gpus, rank % per_host, f"node{rank // per_host:02}", None, 0, 1, 1, [1], [0])
        write_rank(folder / f"rank{rank}.jsonl", host)
    return folder


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(SHAPE, tmp_path_factory.mktemp("many"))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(one) for one in arguments])


def test_a_summary_tells_the_verdict_then_who_differs_then_all_gpus_hosts_and_doubts(
    recordings: Path, tmp_path: Path
) -> None:
    result = run(recordings, "--json-summary", tmp_path / "s.json", "--json", tmp_path / "all.json")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert len(lines) <= 60 and max(map(len, lines)) <= 120
    titles = ["what to change", "who differs", "over all gpus", "hosts", "what to doubt"]
    assert [line for line in lines if line in titles] == titles
    assert lines[0].startswith("32 GPUs on 4 hosts, ")
    change, outliers, all_gpus, hosts, doubts = (lines.index(title) for title in titles)
    assert "rank 19, GPU 19" in lines[change + 1]
    (outlier,) = (line for line in lines[outliers:all_gpus] if "rank 19, GPU 19" in line)
    assert "node02" in outlier and "+2.000 ms" in figures(outlier)
    (last,) = (line for line in lines[hosts:doubts] if "node03" in line)
    assert "ranks 24 to 31" in " ".join(last.split())
    summary, measures = (json.loads((tmp_path / name).read_text()) for name in ("s.json", "all.json"))
    assert summary["schema"] == "ringscope.summary/1" and summary["outliers"][0]["gpus"] == [19]
    assert measures["schema"] == "ringscope.measures/1" and len(measures["gpus"]) == 32
    assert [one["code"] for one in summary["findings"]] == [one["code"] for one in measures["findings"]]


@pytest.fixture(scope="module")
def partial(recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("partial") / "all.partial"  # not among the recordings, which are read as a folder
    result = run(recordings, "--partial", path)
    assert result.exit_code == 0, result.output
    return path


@pytest.mark.parametrize("columns", [80, 100, 120, 200])
def test_a_narrow_terminal_has_no_more_lines_and_the_planted_rank_first(partial: Path, columns: int) -> None:
    result = CliRunner().invoke(command, [str(partial)], env={"COLUMNS": str(columns)})
    lines = result.stdout.splitlines()
    assert len(lines) <= 60 and max(map(len, lines)) <= columns
    change = lines.index("what to change")
    assert "rank 19, GPU 19" in lines[change + 1]
    for title in ("who differs", "over all gpus", "hosts", "what to doubt"):
        assert title in lines
    assert "straggler" in result.stdout  # shown, or named among those that are not


@pytest.mark.exhaustive
def test_ranks_asked_for_follow_the_summary_in_full_and_full_shows_all(recordings: Path) -> None:
    some = run(recordings, "--ranks", "7,19").stdout
    assert "who differs" in some and some.count("\nLedger\n") == 1
    assert "rank 7, GPU 7" in some and "rank 8, GPU 8  " not in some
    whole = run(recordings, "--full").stdout
    assert "who differs" not in whole and all(f"rank {rank}, GPU {rank}" in whole for rank in range(32))


def test_of_few_gpus_the_ranks_asked_for_are_the_columns(recordings: Path) -> None:
    paths = [recordings / f"rank{rank}.sqlite" for rank in (0, 1)]
    both, one = run(*paths).stdout, run(*paths, "--ranks", "1").stdout
    assert "who differs" not in both and "rank 0, GPU 0" in both
    with pytest.raises(RingscopeError, match=r"no GPU of rank 1; there are recordings of rank 0$"):
        raise run(paths[0], "--ranks", "1").exception
    assert "rank 1, GPU 1" in one and "rank 0, GPU 0" not in one.split("what to change")[0]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--ranks", "19,40"], "no GPU of rank 40; there are recordings of ranks 0 to 31"),
        (["--ranks", "a"], "give ranks as whole numbers"),
        (["--show", "gpus", "--full"], "has no effect with --show"),
        (["--json", "-", "--json-summary", "-"], "cannot both go to stdout"),
        (["--info", "--json-summary", "x"], "has no effect with --info"),
    ],
)
def test_what_cannot_be_shown_is_said(recordings: Path, arguments: list[str], told: str) -> None:
    result = run(recordings, *arguments)
    assert isinstance(result.exception, RingscopeError) and told in str(result.exception)
