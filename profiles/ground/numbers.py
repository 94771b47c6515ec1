"""Turn numbers into text with a unit; an unknown number is "n/a", with the reason if one is known.

All views and findings use these functions, so that the terminal, the page and the Markdown show the same digits.
"""

from __future__ import annotations

from collections.abc import Iterable

UNKNOWN = "n/a"
_TIME = (("ns", 1), ("µs", 10**3), ("ms", 10**6), ("s", 10**9))
_RATE = (("B/s", 1), ("kB/s", 10**3), ("MB/s", 10**6), ("GB/s", 10**9))
_ENERGY = (("mJ", 1), ("J", 10**3), ("kJ", 10**6), ("MJ", 10**9))
_SIZE = (("B", 1), ("kB", 10**3), ("MB", 10**6), ("GB", 10**9), ("TB", 10**12))


def duration(ns: int | float | None, why: str = "") -> str:
    """A time in ns to four digits: `4.712 ms`."""
    return unknown(why) if ns is None else _scaled(ns, _TIME, digits=4)


def change(ns: int | float | None, why: str = "") -> str:
    """A difference of two times, with its sign: `+3.120 ms`; a difference of nothing has none: `0 ns`."""
    return unknown(why) if ns is None else f"{'+' if ns > 0 else ''}{duration(ns)}"


def minutes(seconds: float) -> str:
    """A time in seconds, for a person who waits: `45 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def size(count: int | float | None) -> str:
    """Bytes to three digits, decimal units (GB is 1e9 bytes): `77.1 MB`."""
    return UNKNOWN if count is None else _scaled(count, _SIZE, digits=3)


def gigabytes(number: float | None) -> str:
    """A size given in GB, to three digits: `77.1 GB`, `512 MB`."""
    return UNKNOWN if number is None else size(number * 1e9)


def share(part: float | None) -> str:
    """A share (0 to 1) as percent with one decimal; a share that would round to 0 is `<0.1 %`."""
    if part is None:
        return UNKNOWN
    if 0 < abs(part) < 0.0005:
        return "<0.1 %" if part > 0 else ">-0.1 %"
    return "0 %" if part == 0 else f"{100 * part:.1f} %"


def share_of(part_ns: int | None, whole_ns: int | None) -> str:
    """`share` of a part in a whole, both in ns; n/a if either is unknown or the whole is 0."""
    return UNKNOWN if part_ns is None or not whole_ns else share(part_ns / whole_ns)


def gain(ratio_less_one: float | None) -> str:
    """A ratio of two throughputs, given minus 1: `+12.3 %`; from twice on as a factor, `6.7 x`."""
    if ratio_less_one is None:
        return UNKNOWN
    if ratio_less_one >= 1:
        return f"{1 + ratio_less_one:.1f} x"
    return f"{100 * ratio_less_one:+.1f} %"


def count(number: int | None) -> str:
    """A whole number with thousands separators: `45,678`."""
    return UNKNOWN if number is None else f"{number:,}"


def counted(number: int, noun: str) -> str:
    """A number with its noun, which has an s for all numbers but 1: `1 cell`, `2,048 launches`, `0 copies`."""
    if number != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith(("ch", "s")) else f"{noun}s"
    return f"{count(number)} {noun}"


def ranges(several: Iterable[int]) -> str:
    """Whole numbers; three or more in a row are joined: `0, 8 to 15, 37`."""
    runs: list[list[int]] = []
    for one in sorted(set(several)):
        if runs and one == runs[-1][-1] + 1:
            runs[-1].append(one)
        else:
            runs.append([one])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def per_s(rate: float | None, what: str = "samples") -> str:
    """A rate per second: `4,453 samples/s`, with decimals only below 100."""
    if rate is None:
        return UNKNOWN
    digits = 0 if abs(rate) >= 100 else 1 if abs(rate) >= 10 else 2
    return f"{rate:,.{digits}f} {what}/s"


def gb_per_s(rate: float | None) -> str:
    """Bandwidth, given in GB/s, to three digits: `9.87 GB/s`, `1,521 GB/s`, `3.10 MB/s`."""
    if rate is None:
        return UNKNOWN
    return f"{rate:,.0f} GB/s" if rate >= 1000 else _scaled(rate * 1e9, _RATE, digits=3)


def energy(joules: float | None) -> str:
    """An energy in joules to three digits: `214 J`, `19.5 J`, `1.20 kJ`."""
    return UNKNOWN if joules is None else _scaled(1000 * joules, _ENERGY, digits=3)


def watts(power: float | None) -> str:
    """Whole watts: `382 W`."""
    return UNKNOWN if power is None else f"{power:,.0f} W"


def flop_per_s(rate: float | None) -> str:
    """Operations per second to three digits: `616 TFLOP/s`, `4.87 TFLOP/s`, `35.8 GFLOP/s`."""
    if rate is None:
        return UNKNOWN
    scale, prefix = next(((s, p) for s, p in ((1e12, "T"), (1e9, "G"), (1e6, "M")) if rate >= s), (1.0, ""))
    return f"{rate / scale:,.{0 if rate >= 100 * scale else 1 if rate >= 10 * scale else 2}f} {prefix}FLOP/s"


def factor(ratio: float | None) -> str:
    """A speed-up: `3.71 x`."""
    return UNKNOWN if ratio is None else f"{ratio:.2f} x"


def figure(value: float | None) -> str:
    """A number without a unit, such as a loss, to four significant digits: `2.303`."""
    return UNKNOWN if value is None else _significant(value, 4)


def plain(number: float | None) -> str:
    """A whole number, or one between two whole numbers, such as a median of counts: `3`, `3.5`."""
    return UNKNOWN if number is None else f"{number:g}"


def unknown(why: str = "") -> str:
    return f"{UNKNOWN} ({why})" if why else UNKNOWN


def _scaled(value: int | float, units: tuple[tuple[str, int], ...], *, digits: int) -> str:
    """The number in the largest unit in which it is at least 1 after rounding (999,960 ns are 1.000 ms, not 1000
    µs)."""
    magnitude = abs(value)
    for unit, scale in reversed(units):
        if scale == 1 or float(f"{magnitude / scale:.{digits}g}") >= 1:
            text = _significant(value / scale, digits) if scale > 1 else f"{value:.{digits}g}"
            return f"{text} {unit}"
    raise AssertionError("the smallest unit takes everything")


def _significant(value: float, digits: int) -> str:
    """The number with `digits` significant digits: trailing zeros are kept, exponents never used."""
    if value == 0:
        return "0"
    whole = len(str(int(float(f"{abs(value):.{digits}g}")))) if abs(value) >= 1 else 1
    return f"{value:.{max(0, digits - whole)}f}"
