"""Numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.ground import numbers


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (7, "7 ns"),
        (999, "999 ns"),
        (1000, "1.000 µs"),
        (12_345, "12.35 µs"),
        (999_960, "1.000 ms"),
        (156_312_345, "156.3 ms"),
        (1_500_000_000, "1.500 s"),
        (123_456_000_000_000, "123456 s"),
        (-4_712_000, "-4.712 ms"),
    ],
)
def test_a_duration_takes_the_largest_unit_that_leaves_a_whole(ns: int, text: str) -> None:
    assert numbers.duration(ns) == text


@given(st.integers(1, 10**15))
def test_a_duration_is_true_to_its_four_digits(ns: int) -> None:
    value, unit = numbers.duration(ns).split()
    back = float(value) * {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert abs(back - ns) <= 0.00051 * ns


def test_a_change_has_a_sign_unless_nothing_changed() -> None:
    assert [numbers.change(ns) for ns in (3_120_000, -3_120_000, 0, 0.0)] == ["+3.120 ms", "-3.120 ms", "0 ns", "0 ns"]
    assert numbers.change(None, "no API rows") == "n/a (no API rows)"


def test_a_median_of_counts_is_whole_or_lies_between_two() -> None:
    assert [numbers.plain(number) for number in (3.0, 3.5, None)] == ["3", "3.5", "n/a"]


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "cell", "1 cell"),
        (0, "cell", "0 cells"),
        (2048, "launch", "2,048 launches"),
        (2, "process", "2 processes"),
        (1, "copy", "1 copy"),
        (3, "copy", "3 copies"),
        (1, "earlier run", "1 earlier run"),
        (2, "more GPU", "2 more GPUs"),
    ],
)
def test_a_counted_noun_has_an_s_unless_there_is_one(number: int, noun: str, text: str) -> None:
    assert numbers.counted(number, noun) == text


def test_sizes_are_decimal() -> None:
    assert [numbers.size(n) for n in (0, 512, 1000, 77_070_336, 10**9)] == [
        "0 B",
        "512 B",
        "1.00 kB",
        "77.1 MB",
        "1.00 GB",
    ]


def test_a_small_share_is_never_shown_as_nothing() -> None:
    assert [numbers.share(x) for x in (0, 0.0001, -0.0001, 0.0005, 0.1234, 1)] == [
        "0 %",
        "<0.1 %",
        ">-0.1 %",
        "0.1 %",
        "12.3 %",
        "100.0 %",
    ]


def test_the_unknown_is_said_with_its_reason_and_never_zero() -> None:
    assert numbers.duration(None, "no API rows") == "n/a (no API rows)"
    assert numbers.duration(None) == numbers.share(None) == "n/a"
    assert numbers.share_of(0, 0) == "n/a"
    assert numbers.share_of(0, 10) == "0 %"


def test_gains_rates_and_counts() -> None:
    assert [numbers.gain(x) for x in (0.123, -0.05, 5.7)] == ["+12.3 %", "-5.0 %", "6.7 x"]
    assert [numbers.per_s(x, "images") for x in (4453.2, 12.34, 0.5)] == [
        "4,453 images/s",
        "12.3 images/s",
        "0.50 images/s",
    ]
    assert numbers.count(45_678) == "45,678"
    assert numbers.gb_per_s(9.8765) == "9.88 GB/s"
    assert numbers.gb_per_s(0.0009876) == "988 kB/s"
    assert numbers.gb_per_s(1946.1) == "1,946 GB/s"
    assert numbers.gb_per_s(0) == "0 B/s"
    assert numbers.factor(3.714) == "3.71 x"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")]
)
def test_durations_are_said_in_two_units_at_most(seconds: float, text: str) -> None:
    assert numbers.minutes(seconds) == text
