"""Measures as JSON and back: the contract of `timeline --json` (docs/reference/measures.md), exact both ways."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from . import typed
from .errors import RingscopeError
from .files import text_of
from .measures import SCHEMA, Measures

# Nanoseconds of an epoch exceed 2**53, which many JSON readers take for the largest integer: written as text.
_AS_TEXT = ("origin_ns", "origin_utc_ns")


def to_json(measures: Measures, *, per_step: bool = True) -> dict[str, Any]:
    """What `json.dumps` takes. Without `per_step` the rows of the steps are left out; then it is no inverse."""
    if not per_step:  # rows are most of what there is
        gpus = [replace(gpu, steps=replace(gpu.steps, rows=[])) for gpu in measures.gpus]
        measures = replace(measures, gpus=gpus)
    found = plain(measures)
    return {"schema": found.pop("schema"), **found}


def from_json(data: Any) -> Measures:
    """The measures again. Keys it does not know are left aside. Raises RingscopeError for what is not measures."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else None
        raise RingscopeError(f"not measures of schema {SCHEMA} (found {found!r}): measure the recording again")
    try:
        made: Measures = made_of(Measures, data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RingscopeError(
            f"damaged measures: {type(error).__name__}: {error}; measure the recording again"
        ) from error
    return made


def dumps(measures: Measures, *, per_step: bool = True) -> str:
    """The text of the file: readable, ending in a newline, without NaN."""
    return json.dumps(to_json(measures, per_step=per_step), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def load(path: Path) -> Measures:
    """Measures from a file. Raises RingscopeError where it holds none."""
    try:
        return from_json(typed.loads(text_of(path)))
    except (OSError, ValueError) as error:
        raise RingscopeError(f"{path}: cannot be read as measures ({error}); measure the recording again") from error
    except RingscopeError as error:
        raise RingscopeError(f"{path}: {error}") from error


def plain(value: Any) -> Any:
    """Dataclasses as objects, with all in them that JSON has no type for."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            one.name: _text(getattr(value, one.name)) if one.name in _AS_TEXT else plain(getattr(value, one.name))
            for one in fields(value)
        }
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def made_of(kind: Any, value: Any) -> Any:
    """The inverse of `plain`: dataclasses from objects, tuples from lists, integers from their text."""
    origin = get_origin(kind)
    if origin in (UnionType, Union):
        if value is None:
            return None
        kinds = [inner for inner in get_args(kind) if inner is not type(None)]
        if len(kinds) == 1:
            return made_of(kinds[0], value)
        typed.check(kind, value, "a value")
        return value
    if is_dataclass(kind) and isinstance(kind, type):
        hints = _hints(kind)
        if not isinstance(value, dict):
            raise ValueError(f"no object where {kind.__name__} was expected")
        return kind(**{name: made_of(hint, value[name]) for name, hint in hints.items() if name in value})
    if origin in (list, tuple) and not isinstance(value, list | tuple):
        raise ValueError(f"{str(value)[:60]} is no list")
    if origin is dict and not isinstance(value, dict):
        raise ValueError(f"{str(value)[:60]} is no object")
    if origin is list:
        return [made_of(get_args(kind)[0], inner) for inner in value]
    if origin is tuple:
        return tuple(made_of(get_args(kind)[0], inner) for inner in value)
    if origin is dict:
        return {key: made_of(get_args(kind)[1], inner) for key, inner in value.items()}
    made = int(value) if kind is int and isinstance(value, str) else value
    typed.check(kind, made, "a value")
    return made


@cache
def _hints(kind: type) -> dict[str, Any]:
    """The types of a dataclass's fields."""
    hints = get_type_hints(kind)
    return {one.name: hints[one.name] for one in fields(kind)}
