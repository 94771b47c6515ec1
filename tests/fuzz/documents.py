"""JSON that ringscope wrote, with one or a few of its values changed into what they never are."""

from __future__ import annotations

import copy
import json
import math
import random
from typing import Any

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 7, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308, "", "x", "7",
    math.nan, -math.inf, "\x1b[31m\n", "é" * 300, [], [[]], [None], [1, "x"], {}, {"a": {}}, {"": None},
)  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where every value in the document stands: keys and places, from the outermost."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, one in inner for place in places(one, (*at, key)))]


def changed(document: Any, dice: random.Random) -> Any:
    """A copy in which one to three values are others, or gone, or there twice; or deep lists stand in their place."""
    made = copy.deepcopy(document)
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        found = places(made)[1:]
        if not found:
            break
        (*outer, last), holder = dice.choice(found), made
        for key in outer:
            holder = holder[key]
        how = dice.randrange(8)
        if how == 0:
            del holder[last]
        elif how == 1 and isinstance(holder, list):
            holder.insert(last, copy.deepcopy(holder[last]))
        elif how == 2 and isinstance(holder, dict):
            holder[dice.choice(("", "a", "idle_launch", "\x00"))] = holder.pop(last)
        elif how == 3:
            holder[last] = copy.deepcopy(holder[dice.choice(list(holder))] if isinstance(holder, dict) else holder[0])
        else:
            holder[last] = copy.deepcopy(dice.choice(ODD))  # which is changed in its turn
    return made


def written(document: Any, dice: random.Random) -> bytes:
    """As a file, which may break off, or hold one list in another a hundred thousand times."""
    text = json.dumps(document)
    how = dice.randrange(20)
    if how == 0:
        text = text[: dice.randrange(len(text))]
    elif how == 1 and len(text) > 3:
        at = text.rfind(": ", 0, dice.randrange(3, len(text))) + 2
        text = text[:at] + "[" * 100_000 + text[at:]
    return text.encode()
