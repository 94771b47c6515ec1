"""Threads for work that is worth them."""

from __future__ import annotations

import threading

import pytest

from profiles.ground.threads import each, spread


@pytest.mark.parametrize(("rows", "here"), [(0, True), (9_000, True), (1 << 18, False), (1 << 24, True)])
def test_small_and_large_work_is_done_where_it_is_asked_for(rows: int, here: bool) -> None:
    """A file a rank, of 512 ranks, would start a dozen threads each."""
    did = set(each(lambda _: threading.get_ident(), range(4), rows))
    assert (did == {threading.get_ident()}) is here


@pytest.mark.parametrize(("most", "here"), [(1, True), (2, False)])
def test_one_thread_is_the_one_that_asks(most: int, here: bool) -> None:
    did = set(spread(lambda _: threading.get_ident(), range(4), most))
    assert (did == {threading.get_ident()}) is here
