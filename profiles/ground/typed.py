"""Read JSON from untrusted files: numbers must be finite and in range, and fields of their declared types."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

Made = TypeVar("Made")
# Errors that a dataclass's own code may raise if a field has a value of a wrong type.
_OF_FIELDS: Final = (RecursionError, KeyError, AttributeError, TypeError)

_INT64: Final = 1 << 63
# Counts of arithmetic operations may exceed 64 bits: a GPU does 2**63 of them within hours.
_OF_WORK: Final = ("flops", "flops_by_dtype")
_MOST_WORK: Final = 1 << 100
_SHOWN: Final = 60  # number of characters of a wrong value that an error quotes

# Most values in a JSON text. This limits memory, since two bytes of text may take a hundred bytes when decoded. The
# measures of 512 GPUs with every step have 2.5 million values.
_MOST_VALUES: Final = 12 << 20


def loads(text: str | bytes) -> Any:
    """Decode JSON. Raises ValueError also for NaN and infinities, too deep nesting, and too many values."""
    refuse_many(text)
    try:
        return json.loads(text, parse_constant=_refused, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deep") from None


def known(kind: type, data: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of `data` that are fields of the dataclass `kind`. A file of another version may have more
    entries."""
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in data.items() if name in names}


def decoded(kind: type[Made], text: bytes, other: Callable[[Any, Any], Any] | None = None) -> Made:
    """Decode JSON into the dataclass `kind`, each field of its declared type; a number may be written as text. Raises
    ValueError for other types, missing fields, integers beyond 64 bits, too deep nesting, and too many values. `other`:
    makes values of types that JSON lacks, called with type and decoded value."""
    import msgspec

    refuse_many(text)
    try:
        return _checked(msgspec.json.decode(text, type=kind, strict=False, dec_hook=other))
    except (msgspec.MsgspecError, *_OF_FIELDS) as error:
        raise ValueError(_why(error)) from None


def made(kind: type[Made], data: Any, *, texts: bool = True) -> Made:
    """As `decoded`, for data that is decoded already. `texts`: True if a number may be written as text."""
    import msgspec

    try:
        return _checked(msgspec.convert(data, kind, strict=not texts))
    except (msgspec.MsgspecError, *_OF_FIELDS) as error:
        raise ValueError(_why(error)) from None


def refuse_many(text: str | bytes) -> None:
    """Raises ValueError if a JSON text holds more values than ringscope writes in any file; counts without decoding."""
    signs = map(text.count, ",[{") if isinstance(text, str) else map(text.count, (b",", b"[", b"{"))
    if sum(signs) > _MOST_VALUES:  # a comma or an opening bracket precedes each value
        raise ValueError(f"it holds more than {_MOST_VALUES:,} values")


def _why(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deep"
    if isinstance(error, KeyError):
        return f"{error} is missing"
    return f"a value of another type: {error}" if isinstance(error, (AttributeError, TypeError)) else str(error)


def _checked(found: Made) -> Made:
    _check_numbers([found], _INT64)
    return found


def _check_numbers(values: Iterable[Any], limit: int) -> None:
    """Raises ValueError for a number, at any depth, that is not finite or an integer outside [-limit, limit)."""
    for value in values:
        if type(value) is int:
            if not -limit <= value < limit:
                raise ValueError(f"{str(value)[:_SHOWN]} is too large a number")
        elif type(value) is float:
            if not math.isfinite(value):
                _refused(str(value))
        elif isinstance(value, (list, tuple, frozenset)):
            _check_numbers(value, limit)
        elif isinstance(value, dict):
            _check_numbers(value.values(), limit)
        elif is_dataclass(value):
            for one in fields(value):
                _check_numbers([getattr(value, one.name)], _MOST_WORK if one.name in _OF_WORK else limit)


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:_SHOWN]} is too large a number")
    return number


def check_fields(kind: type, data: dict[str, Any]) -> None:
    """Raises ValueError for an entry of `data` whose type differs from the declared one in the dataclass `kind`."""
    hints = get_type_hints(kind)
    for name, value in data.items():
        check(hints[name], value, name)


def check(hint: Any, value: Any, name: str) -> None:
    """Raises ValueError if the value is not of the type `hint`. Any JSON object passes as a dataclass, with any
    fields."""
    if not _fits(hint, value):
        shown = repr(value)
        raise ValueError(f"{name} is {shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '...'}, not {_said(hint)}")


def _fits(hint: Any, value: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (UnionType, Union):
        return any(_fits(one, value) for one in inner)
    if hint is float:
        return type(value) in (int, float) and abs(value) < math.inf
    if hint is int:
        return type(value) is int and -_INT64 <= value < _INT64
    if hint in (str, bool, NoneType):
        return type(value) is hint
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(_fits(inner[1], one) for one in value.values())
    if origin in (list, tuple, Sequence):
        return isinstance(value, (list, tuple)) and all(_fits(inner[0], one) for one in value)
    return isinstance(value, dict)


def _said(hint: Any) -> str:
    origin = get_origin(hint)
    if origin in (UnionType, Union):
        return " or ".join(_said(one) for one in get_args(hint) if one is not NoneType)
    if origin in (list, tuple, Sequence):
        return "a list"
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    return words.get(hint, "an object")
