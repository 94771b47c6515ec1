"""The longest gaps: when, how long, what ended each, and what the host did in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiles import analyse
from profiles.views.tables import table, time
from tests.made.build import Build
from tests.profiles.verdicts.test_people import MS, US
from tests.recordings import OURS, timeline


def gapped() -> Build:
    """Kernels with gaps of 1, 3 and 2 ms: before a kernel, before a copy under cudaFree, and before a kernel."""
    made = Build()
    made.kernel(0, MS, "a", call=(-2 * US, -US))
    made.kernel(2 * MS, 3 * MS, "b", call=(2 * MS - 2 * US, 2 * MS - US))
    made.mark("around it all", MS, 12 * MS, domain="")
    made.api("cudaFree", 3 * MS + 100 * US, 5 * MS + 900 * US)
    made.copy("h2d", 6 * MS, 7 * MS, 4096, call=(6 * MS - 2 * US, 6 * MS - US))
    made.operator("aten::add", 7 * MS + 500 * US, 9 * MS)
    made.kernel(9 * MS, 10 * MS, "c", call=(9 * MS - 2 * US, 9 * MS - US))
    return made


def test_the_longest_gap_comes_first_with_what_ended_it_and_what_the_host_did() -> None:
    (gpu,) = analyse([gapped().timeline()]).measures.gpus
    told = [(gap.start_ns, gap.ns, gap.ended_by, gap.name, gap.bytes) for gap in gpu.idle_gaps]
    assert told == [
        (3 * MS, 3 * MS, "h2d", None, 4096),
        (7 * MS, 2 * MS, "compute", "c", None),
        (MS, MS, "compute", "b", None),
    ]
    first, second, third = gpu.idle_gaps
    assert [gap.launched_ns for gap in gpu.idle_gaps] == [None, US, US]  # none of a copy, which its call may be
    assert [(one["name"], one["ns"]) for one in first.host[:2]] == [("cudaFree", 2_800 * US), ("around it all", 3 * MS)]
    assert second.host[0] == {"kind": "operator", "name": "aten::add", "ns": 1_500 * US}
    assert third.call == "cudaLaunchKernel_v7000" and third.causes_ns == {"idle_launch": MS}


def test_the_table_says_where_the_timeline_shows_each() -> None:
    measures = analyse([gapped().timeline()]).measures
    shown = time.idle_gaps(table.document_of(measures))
    assert [row[0].when for row in shown.rows] == [
        (0, gap.start_ns, gap.start_ns + gap.ns) for gap in measures.gpus[0].idle_gaps
    ]


@pytest.mark.parametrize("path", OURS[:4], ids=lambda path: path.name)
def test_the_longest_gaps_of_a_recording_are_those_of_a_plain_loop(path: Path) -> None:
    read = timeline(path)
    (gpu,) = analyse([read], window="capture").measures.gpus
    ran = sorted(
        (int(start), int(end))
        for rows in (read.kernels, read.graphs, read.copies, read.memsets)
        for start, end in zip(rows["start_ns"], rows["end_ns"], strict=True)
        if end > start
    )
    gaps, reach = [], ran[0][0]
    for start, end in ran:
        if start > reach:
            gaps.append((start - reach, reach))
        reach = max(reach, end)
    expected = sorted(gaps, key=lambda gap: (-gap[0], gap[1]))[:10]
    assert [(gap.ns, gap.start_ns) for gap in gpu.idle_gaps] == expected
