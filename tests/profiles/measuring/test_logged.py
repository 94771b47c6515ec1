"""Logs of NCCL's Inspector: every number against plain loops over the lines, and what the verbs make of them."""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from profiles.ground.errors import NcclLog, RingscopeError, UnreadableRecording
from profiles.measuring import logged
from profiles.measuring.analysis import analyse
from profiles.measuring.subject import measured
from profiles.verbs.gate import command as gate
from profiles.verbs.timeline import command as timeline
from tests.recordings import DATA

REAL = sorted((DATA / "nccl-inspector").glob("*.log.xz"))
WAITED_FOR = ("AllReduce", "AllGather", "ReduceScatter")


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lzma.open(path)]


def line(rank: int, sequence: int, us: int, *, kind: str = "AllReduce", ranks: int = 4, **more: Any) -> dict[str, Any]:
    return {
        "header": {"id": "0xa", "rank": rank, "n_ranks": ranks, "nnodes": 1},
        "metadata": {"hostname": "node1", "pid": 100 + rank},
        "coll_perf": {
            "coll": kind,
            "coll_sn": sequence,
            "coll_msg_size_bytes": 1 << 20,
            "coll_exec_time_us": us,
            "coll_timing_source": "kernel_gpu",
            **more,
        },
    }


def write(folder: Path, *ranks: list[dict[str, Any]], end: str = "") -> list[Path]:
    found = []
    for rank, lines in enumerate(ranks):
        found.append(folder / f"node1-pid{100 + rank}.log")
        found[-1].write_text("".join(json.dumps(one) + "\n" for one in lines) + end)
    return found


def by_nccl_tests(kind: str, count: int, ranks: int, us: int) -> Fraction:
    """doc/PERFORMANCE.md of nccl-tests: S / t x factor, in GB/s; S of a gather or scatter is that of all ranks."""
    size = count * ranks if kind in ("AllGather", "ReduceScatter") else count
    factors = {"AllReduce": Fraction(2 * (ranks - 1), ranks), "Broadcast": Fraction(1)}
    return Fraction(size, us * 1000) * factors.get(kind, Fraction(ranks - 1, ranks))


def test_the_inspectors_own_bandwidths_follow_the_formula() -> None:
    for call in (one for path in REAL for one in lines_of(path)):
        perf = call["coll_perf"]
        mine = by_nccl_tests(
            perf["coll"], perf["coll_msg_size_bytes"], call["header"]["n_ranks"], perf["coll_exec_time_us"]
        )
        assert float(mine) == pytest.approx(perf["coll_busbw_gbs"], abs=1e-6)


def test_every_number_of_a_real_run_is_that_of_plain_loops() -> None:
    found = logged.measure(REAL)
    rows = [one for path in REAL for one in lines_of(path)]
    seen = defaultdict(lambda: defaultdict(dict))  # type: ignore[var-annotated]
    for row in rows:
        perf, header = row["coll_perf"], row["header"]
        seen[header["id"], perf["coll"]][perf["coll_sn"]][header["rank"]] = perf
    assert {(one.communicator, one.kind) for one in found.kinds} == set(seen) and len(seen) == 4
    for one in found.kinds:
        calls = seen[one.communicator, one.kind]
        assert one.count == len(calls)
        assert one.lasted_ns == 1000 * sum(p["coll_exec_time_us"] for call in calls.values() for p in call.values())
        if one.kind not in WAITED_FOR:
            assert (one.transfer_ns, one.bus_gb_per_s) == (None, None) and one.why
            continue
        whole = [call for call in calls.values() if len(call) == 2]
        least = [min(p["coll_exec_time_us"] for p in call.values()) for call in whole]
        assert (one.matched, one.transfer_ns) == (len(whole), 1000 * sum(least))
        size = sum(call[0]["coll_msg_size_bytes"] for call in whole)
        assert one.bus_gb_per_s == pytest.approx(float(by_nccl_tests(one.kind, size, 2, sum(least))), rel=1e-12)
        for rank in one.each:
            own = [call[rank.rank]["coll_exec_time_us"] for call in whole]
            assert rank.waiting_ns == 1000 * sum(mine - us for mine, us in zip(own, least, strict=True))
            later = [
                1 for mine, call in zip(own, whole, strict=True) if call[1 - rank.rank]["coll_exec_time_us"] > mine + 1
            ]
            assert rank.arrived_last == len(later)
    assert [one.rank for one in found.processes] == [0, 1]
    # Rank 1 of that run slept for 4 ms before each third step's exchange.
    assert found.processes[1].arrived_last_share > found.processes[0].arrived_last_share  # type: ignore[operator]
    assert not found.doubts


def test_calls_that_a_rank_does_not_tell_of_are_left_out_of_waiting_and_said(tmp_path: Path) -> None:
    logs = write(tmp_path, [line(0, 0, 30), line(0, 1, 50)], [line(1, 0, 10)], [line(2, 0, 20)], [line(3, 0, 40)])
    found = logged.measure(logs)
    (kind,) = found.kinds
    assert (kind.count, kind.matched, kind.transfer_ns) == (2, 1, 10_000)
    assert [one.waiting_ns for one in kind.each] == [20_000, 0, 10_000, 30_000]
    assert [one.arrived_last for one in kind.each] == [0, 1, 0, 0]
    assert [doubt.code for doubt in found.doubts] == ["calls-not-logged"]


def test_a_rank_without_a_log_makes_bounds_and_one_alone_makes_nothing(tmp_path: Path) -> None:
    logs = write(tmp_path, [line(0, 0, 30)], [line(1, 0, 10)])
    assert [doubt.code for doubt in logged.measure(logs).doubts] == ["ranks-not-logged"]
    (alone,) = logged.measure(logs[:1]).kinds
    assert alone.transfer_ns is None and alone.why and alone.each[0].waiting_ns is None
    assert alone.lasting_gb_per_s == pytest.approx((1 << 20) / 30_000 * 1.5)


def test_what_is_damaged_twice_or_timed_by_the_host_is_doubted(tmp_path: Path) -> None:
    rank0 = [line(0, 0, 30), line(0, 0, 30), line(0, 1, 30, coll_timing_source="kernel_cpu"), line(9, 2, 30)]
    logs = write(tmp_path, rank0, [line(1, 0, 10)], end='{"header": {"id"')
    codes = [doubt.code for doubt in logged.measure(logs).doubts]
    assert codes[:3] == ["damaged-lines", "logged-twice", "timed-on-host"]


def test_an_editor_on_windows_changes_no_number(tmp_path: Path) -> None:
    logs = write(tmp_path, [line(0, 0, 30)], [line(1, 0, 10)])
    before = logged.measure(logs)
    for log in logs:
        log.write_bytes(b"\xef\xbb\xbf" + log.read_bytes().replace(b"\n", b"\r\n"))
    assert logged.measure(logs) == before


def test_messages_between_two_ranks_have_a_length_and_no_waiting(tmp_path: Path) -> None:
    one = line(0, 0, 30)
    del one["coll_perf"]
    one["p2p_perf"] = {"p2p": "Send", "p2p_sn": 1, "p2p_msg_size_bytes": 30_000, "p2p_exec_time_us": 10}
    (kind,) = logged.measure(write(tmp_path, [one])).kinds
    assert (kind.kind, kind.bytes, kind.lasting_gb_per_s, kind.transfer_ns) == ("Send", 30_000, 3.0, None)


def test_a_process_has_its_rank_in_the_largest_communicator_and_the_parts_of_all_add_up(tmp_path: Path) -> None:
    ranks = []
    for rank in range(4):
        pair = line(rank % 2, 0, 10 + 10 * rank, kind="AllGather", ranks=2)
        pair["header"]["id"], pair["metadata"]["pid"] = f"0xb{rank // 2}", 100 + rank
        ranks.append([pair, line(rank, 0, 40)])
    found = logged.measure(write(tmp_path, *reversed(ranks)))
    assert [(one.rank, one.pid, one.count) for one in found.processes] == [(k, 100 + k, 2) for k in range(4)]
    assert [one.waiting_ns for one in found.processes] == [0, 10_000, 0, 10_000]
    assert [one.arrived_last_share for one in found.processes] == [0.5, 0, 0.5, 0]
    places = [[rank.process for rank in one.each] for one in found.kinds if one.kind == "AllGather"]
    assert sorted(places) == [[0, 1], [2, 3]] and not found.doubts


def run(command: Any, *arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(one) for one in arguments])


def test_timeline_shows_the_table_and_writes_what_was_measured() -> None:
    shown = run(timeline, *REAL)
    assert shown.exit_code == 0 and "AllReduce" in shown.output and "182 GB/s" in shown.output
    written = json.loads(run(timeline, REAL[0].parent, "--json", "-").output)
    assert written["schema"] == "ringscope.collectives/1" and len(written["processes"]) == 2
    refused = run(timeline, *REAL, "--perfetto", "trace.json")
    assert isinstance(refused.exception, RingscopeError) and "--perfetto" in str(refused.exception)


def test_markdown_has_a_row_for_each_kind_and_rank_and_a_log_is_never_written_over(tmp_path: Path) -> None:
    logs = write(tmp_path, *([line(rank, 0, 10 + rank, ranks=20)] for rank in range(20)))
    text = tmp_path / "m.md"
    assert run(timeline, *logs, "--markdown", text).exit_code == 0
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in text.read_text().splitlines() if "0xa" in row]
    assert rows[0][1] == "AllReduce" and rows[0][4:8] == ["1", "1.05 MB", "390.0 µs", "10.00 µs"]
    assert [(row[2], row[5], row[7]) for row in rows[1:3]] == [("0", "0 ns", "0 %"), ("1", "1.000 µs", "0 %")]
    assert len(rows) == 17 and "the 16 ranks" in text.read_text() and "Only 16 of 20" in text.read_text()
    before = logs[0].read_bytes()
    for option in ("--markdown", "--html", "--json"):
        assert "does not overwrite it" in str(run(timeline, *logs, option, logs[0]).exception)
    assert logs[0].read_bytes() == before


def test_logs_beside_a_recording_are_doubted_and_other_files_beside_logs_too(tmp_path: Path) -> None:
    recording = DATA / "lstm-1gpu.rank0.sqlite.xz"
    assert "unreadable" in {doubt.code for doubt in analyse([recording, *REAL]).measures.doubts}
    (tmp_path / "notes.txt").write_text("nothing")
    (log,) = write(tmp_path, [line(0, 0, 30)])
    assert "skipped-files" in {doubt.code for doubt in logged.measure([tmp_path]).doubts}
    with pytest.raises(NcclLog):
        analyse([tmp_path])
    log.write_text('{"header": {"id": 1}, "coll_perf": 7}\n')
    with pytest.raises(UnreadableRecording, match="without a complete line") as refused:
        logged.measure([log])
    assert "\n" not in str(refused.value)


def test_gate_holds_bandwidth_and_waiting_and_a_baseline_of_as_many_ranks(tmp_path: Path) -> None:
    budgets = ("--min", "bus_gb_per_s[AllReduce]=120", "--max", "waiting_share=0.95")
    assert run(gate, *REAL, *budgets).exit_code == 0
    broken = run(gate, *REAL, "--min", "bus_gb_per_s[AllReduce]=200", "--max", "waiting_share=0.5")
    assert broken.exit_code == 1 and broken.output.count("broken:") == 2
    assert run(gate, *REAL, "--max", "feed_gap_share=0.1").exit_code == 2  # no timeline of a GPU
    baseline = tmp_path / "baseline.json"
    assert run(gate, *REAL, "--write-baseline", baseline).exit_code == 0
    assert run(gate, *REAL, "--baseline", baseline).exit_code == 0
    logs = write(tmp_path, *([line(rank, 0, 30)] for rank in range(4)))
    other = run(gate, *logs, "--baseline", baseline)
    assert other.exit_code == 2 and "unlike work" in other.output


def test_a_verb_that_needs_a_timeline_names_the_log_once() -> None:
    with pytest.raises(RingscopeError, match="no timeline of a GPU") as refused:
        measured(REAL[:1])
    assert str(refused.value).count(str(REAL[0])) == 1
