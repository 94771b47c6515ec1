"""Every input the fuzzer found worth keeping, and every one that once broke a reader, replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from .target import CORPUS, TARGETS, check


@pytest.mark.parametrize("reader", TARGETS)
def test_every_input_of_the_corpus_is_read_or_refused(reader: str) -> None:
    files = sorted(path for path in Path(CORPUS, reader).iterdir() if path.is_file())
    read = [check(reader, path) for path in files]
    # A corpus that is always refused, or never, tests half of the reader.
    assert any(read) and not all(read)
