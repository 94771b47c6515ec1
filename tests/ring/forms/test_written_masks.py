"""Scores that several masks hide, of attention that users write out: values and gradients are those of what is written,
also of queries that see no key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from ringscope.ring.forms import hashed, written
from tests.ring.forms import test_written
from tests.ring.forms.test_written import LENGTH, SIZE, Attend, Called, trained
from tests.tiers import few

CAUSAL = np.tri(LENGTH, dtype=bool)
FAR = np.arange(LENGTH, dtype=np.float32)[None] - np.arange(LENGTH, dtype=np.float32)[:, None]


def _scores(q: Any, k: Any) -> Any:
    return ops.cast(ops.einsum("bqhd,bkhd->bhqk", q, k) * SIZE**-0.5, "float32")


def _attended(scores: Any, v: Any, layer: Any) -> Any:
    return ops.einsum("bhqk,bkhd->bqhd", layer.dropped(ops.cast(ops.softmax(scores), v.dtype)), v)


def _sees(seen: Any) -> Any:
    return seen[:, None, None] > 0


def one_mask(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    return _attended(ops.where(CAUSAL & _sees(seen), _scores(q, k), -1e4), v, layer)


def one_mask_after_alibi(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    return _attended(ops.where(CAUSAL & _sees(seen), _scores(q, k) + FAR, -1e9), v, layer)


def both_added(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    scores = _scores(q, k) - 1e9 * (1 - np.tri(LENGTH, dtype=np.float32)) + ops.where(_sees(seen), 0.0, -1e9)
    return _attended(scores, v, layer)


def one_added(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    return _attended(_scores(q, k) - 1e4 * ops.cast(ops.logical_not(CAUSAL & _sees(seen)), "float32"), v, layer)


def one_mask_before_alibi(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    return _attended(ops.where(CAUSAL & _sees(seen), _scores(q, k), -1e4) + FAR, v, layer)


def one_mask_before_unknown_alibi(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    far = FAR * ops.cast(ops.max(seen), "float32")
    return _attended(ops.where(CAUSAL & _sees(seen), _scores(q, k), -1e4) + far, v, layer)


def two_low_numbers(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    return _attended(ops.where(CAUSAL, ops.where(_sees(seen), _scores(q, k), -1e9), float("-inf")), v, layer)


def padding_added_to_a_causal_where(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    return _attended(ops.where(CAUSAL, _scores(q, k), -1e9) + ops.where(_sees(seen), 0.0, -1e9), v, layer)


def later_keys_added_to_a_where_of_padding(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    scores = ops.where(_sees(seen), _scores(q, k), -1e4) - 1e4 * (1 - np.tri(LENGTH, dtype=np.float32))
    return _attended(scores, v, layer)


def padding_added_to_the_first_gpt2s(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    lets = np.tri(LENGTH, dtype=np.float32)[None, None]
    scores = _scores(q, k) * lets - 1e4 * (1 - lets)
    return _attended(scores - 1e4 * (1 - ops.cast(_sees(seen), "float32")), v, layer)


ONCE = [one_mask, one_mask_after_alibi, both_added, one_added, test_written.with_a_query_that_weighs_low_numbers]
TWICE = [
    one_mask_before_alibi,
    one_mask_before_unknown_alibi,
    two_low_numbers,
    padding_added_to_a_causal_where,
    later_keys_added_to_a_where_of_padding,
    padding_added_to_the_first_gpt2s,
]


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Called:
    return test_written.defined(monkeypatch)


def _is_as_written(attend: Attend, rate: float, is_left: bool) -> None:
    exact = trained(attend, rate, "float32", form=False, is_left=is_left)
    fused = trained(attend, rate, "mixed_bfloat16", form=True, is_left=is_left)
    for mine, theirs in zip(fused, exact, strict=True):
        assert np.linalg.norm(mine - theirs) < 2e-2 * np.linalg.norm(theirs)


# Padding on the left hides all keys from the first queries.
@pytest.mark.parametrize(
    ("attend", "is_left"),
    few(((attend, is_left) for is_left in (True, False) for attend in (*TWICE, *ONCE)), 2),
    ids=lambda value: getattr(value, "__name__", None),
)
def test_all_masks_together_hide_what_is_written(
    attend: Attend, is_left: bool, called: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(written, "once", said.append)
    _is_as_written(attend, 0.0, is_left)
    assert len(called.causal) == 1
    assert (written.TWICE in said) == (attend in TWICE)


@pytest.mark.parametrize("attend", TWICE[2:4], ids=lambda value: value.__name__)
def test_shares_of_keys_that_are_taken_twice_are_dropped_once(
    attend: Attend, called: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Draws are of another shape then. If all shares are kept, they are larger by as much as is written."""
    monkeypatch.setattr(hashed, "kept", lambda seed, shape, rate: tf.ones(shape, tf.bool))
    _is_as_written(attend, 0.25, is_left=True)
    assert len(called.causal) == 1


def test_known_masks_that_let_each_query_see_a_key_are_one_mask(
    called: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attend(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
        first = np.where(np.arange(LENGTH) < 7, 0.0, -1e9).astype(np.float32)
        return _attended(ops.where(CAUSAL, _scores(q, k), -1e9) + first, v, layer)

    said: list[str] = []
    monkeypatch.setattr(written, "once", said.append)
    _is_as_written(attend, 0.0, is_left=False)
    assert len(called.causal) == 1 and written.TWICE not in said
