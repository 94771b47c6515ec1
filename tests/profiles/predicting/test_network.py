"""What the network adds, against sums made by hand and against Horovod's published 512 GPUs."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.ground.errors import RingscopeError
from profiles.predicting.network import Network, added, between_hosts_ns, measured, network

TEN = Network(1, 1e9, 1_000)  # 1 GB/s, 1 µs


def test_a_network_is_written_as_links_speed_and_latency() -> None:
    assert network("8x200Gb/s,2us") == Network(8, 25e9, 2_000)
    assert network("25Gb/s") == Network(1, 3.125e9, 5_000)
    assert network("4 x 100 Gbit/s, 1.5 us").host_bytes_per_s == 50e9
    for bad in (
        "",
        "fast",
        "8x",
        "200GB/s",
        "0x200Gb/s",
        "8x0Gb/s",
        "8x200Gb/s,soon",
        "1x25Gb/s,-5us",
        f"{'9' * 400}x1Gb/s",
    ):
        with pytest.raises(RingscopeError, match="write it as 8x200Gb/s,2us"):
            network(bad)


def test_the_all_reduce_between_hosts_counted_by_hand() -> None:
    assert between_hosts_ns(1, 1_000_000, TEN) == 0
    # ring of 2: every byte crosses once each way, 2 * 1/2 * 1 ms, and 2 messages of latency
    assert between_hosts_ns(2, 1_000_000, TEN) == pytest.approx(1_000_000 + 2_000)
    # 64 hosts, 1 kB: a ring has 126 latencies, a tree 12
    assert between_hosts_ns(64, 1_000, TEN) == pytest.approx(12 * 1_000 + 2_000)


def sweep(tmp_path: Path, hosts: int, times: dict[int, int]) -> Path:
    """As `python -m harness.doctor.allreduce` writes it."""
    path = tmp_path / "net.json"
    path.write_text(json.dumps({"hosts": hosts, "sweep": [{"bytes": s, "time_ns": t} for s, t in times.items()]}))
    return path


def test_the_network_of_a_measured_sweep_is_the_one_that_made_its_times(tmp_path: Path) -> None:
    sizes = (1 << 16, 1 << 20, 1 << 24, 1 << 26)
    # 4 hosts: 6 latencies of 20 us, and each byte 3/2 times over 5 GB/s, 0.2 ns a byte
    found = measured(sweep(tmp_path, 4, {size: 6 * 20_000 + round(1.5 * size * 0.2) for size in sizes}))
    assert found.latency_ns == pytest.approx(20_000, rel=1e-4)
    assert found.host_bytes_per_s == pytest.approx(5e9, rel=1e-4)
    # Below nothing is no latency: what the bytes alone tell, to which their relative errors give the least squares.
    odd = measured(sweep(tmp_path, 2, {1_000_000: 900_000, 2_000_000: 2_000_000}))
    assert odd.latency_ns == 0
    best = min((abs(1 - b / 0.9) ** 2 + abs(1 - b) ** 2, b) for b in (i / 10_000 for i in range(5_000, 15_000)))[1]
    assert 1e9 / odd.host_bytes_per_s == pytest.approx(best, abs=1e-4)


@given(st.lists(st.floats(0.8, 1.25), min_size=3, max_size=6), st.floats(1e2, 1e6), st.floats(0.01, 10))
def test_no_latency_and_bandwidth_beside_those_found_are_nearer_to_the_times(
    noise: list[float], latency_ns: float, byte_ns: float
) -> None:
    times = {4**i << 12: round((2 * latency_ns + (4**i << 12) * byte_ns) * n) for i, n in enumerate(noise)}
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = measured(sweep(Path(folder), 2, times))
        except RingscopeError as error:
            assert "took no longer" in str(error)
            return

    def error(latency: float, byte: float) -> float:
        return sum((1 - (2 * latency + size * byte) / took) ** 2 for size, took in times.items())

    own = found.latency_ns, 1e9 / found.host_bytes_per_s
    for more in (0.99, 1.01):
        assert error(*own) <= error(own[0] * more, own[1]) + 1e-12
        assert error(*own) <= error(own[0], own[1] * more) + 1e-12


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not a file that python -m harness.doctor.allreduce wrote"),
        (
            '{"hosts": 2, "sweep": [{"bytes": 1, "time_ns": NaN}]}',
            "not a file that python -m harness.doctor.allreduce wrote",
        ),
        (
            '{"hosts": 2, "sweep": [{"bytes": 1, "time_ns": 1%s}]}' % ("0" * 400),
            "not a file that python -m harness.doctor",
        ),
        ("[" * 100_000, "not a file that python -m harness.doctor.allreduce wrote"),
        ('{"hosts": 2}', "not a file that python -m harness.doctor.allreduce wrote"),
        ('{"hosts": 1, "sweep": [{"bytes": 1, "time_ns": 1}, {"bytes": 2, "time_ns": 2}]}', "at least two hosts"),
        ('{"hosts": 2, "sweep": [{"bytes": 1, "time_ns": 1}]}', "two sizes"),
        ('{"hosts": 2, "sweep": [{"bytes": 1, "time_ns": 0}, {"bytes": 2, "time_ns": 2}]}', "two sizes"),
        ('{"hosts": 2, "sweep": [{"bytes": 1000, "time_ns": 900}, {"bytes": 2000, "time_ns": 1}]}', "took no longer"),
    ],
)
def test_what_tells_of_no_network_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "net.json").write_text(text)
    with pytest.raises(RingscopeError, match=says):
        measured(tmp_path / "net.json")


def test_what_backward_can_hide_bounds_the_estimate() -> None:
    # 1.002 ms of all-reduce under a step of 0.9 ms: at most 0.6 ms hidden
    found = added(2, 1_000_000, TEN, 900_000)
    assert found.most_ns == pytest.approx(1_002_000)
    assert found.least_ns == pytest.approx(402_000)
    assert found.expected_ns == pytest.approx(702_000)
    known = added(2, 1_000_000, TEN, 900_000, overlap=0.25)
    assert known.expected_ns == known.least_ns == known.most_ns == pytest.approx(751_500)


# Sergeev, Del Balso 2018 (arXiv 1802.05799, figure 6): 512 Pascal GPUs, 4 a host, 25 Gbit/s. One GPU's rate from
# TensorFlow's table of 2017 for a P100, batch 64; float32 gradients of 23.9 and 138.4 million parameters.
@pytest.mark.parametrize(("rate", "parameters", "published"), [(142, 23.9e6, 0.90), (154, 138.4e6, 0.68)])
def test_of_horovods_512_gpus_what_was_published_lies_between_all_and_nothing_hidden(
    rate: float, parameters: float, published: float
) -> None:
    step_ns = 64 / rate * 1e9
    found = added(128, int(4 * parameters), network("25Gb/s,30us"), step_ns)
    least, expected, most = (step_ns / (step_ns + ns) for ns in (found.most_ns, found.expected_ns, found.least_ns))
    assert least <= published <= most
    assert expected == pytest.approx(published, abs=0.05)


@given(st.integers(1, 512), st.integers(0, 10**9), st.integers(1, 10**9), st.none() | st.floats(0, 1))
def test_more_hosts_or_bytes_never_cost_less(hosts: int, size: int, compute: int, overlap: float | None) -> None:
    found = added(hosts, size, TEN, compute, overlap=overlap)
    assert 0 <= found.least_ns <= found.expected_ns <= found.most_ns
    assert added(hosts + 1, size, TEN, compute, overlap=overlap).expected_ns >= found.expected_ns - 1e-6
    assert added(hosts, size + 1, TEN, compute, overlap=overlap).expected_ns >= found.expected_ns - 1e-6
