"""Names are fitted as the regular expressions of Python do, whether they are few or many."""

from __future__ import annotations

import random
import re

import pandas as pd
import pytest

from profiles.model import names
from profiles.model.names import fitting, rows_of, wholly


@pytest.mark.parametrize("count", [0, 50, 5_000])
@pytest.mark.parametrize("pattern", [r"^step \d+$", r"(?i)ALLREDUCE", r"^(?!.*Async)", r"a.c"])
def test_each_name_is_told_as_by_re(count, pattern):
    chance = random.Random(3)
    texts = ["abc", "step 1", "ncclAllReduce", "cudaMemcpyAsync", "cudaMemcpy", "x"]
    some = [f"{chance.choice(texts)}{chance.choice(['', ' ', str(chance.randint(0, 99))])}" for _ in range(count)]
    index = pd.Index(some, dtype="str")
    assert (len(index) > names._FEW) == (count == 5_000)
    assert fitting(index, pattern).tolist() == [re.search(pattern, one) is not None for one in some]
    assert wholly(index, pattern).tolist() == [re.fullmatch(pattern, one) is not None for one in some]


def test_a_row_without_a_name_fits_nothing():
    index = pd.Index(["a", "b"], dtype="str")
    assert rows_of(pd.Categorical(["b", None, "a"], categories=index).codes, fitting(index, ".")).tolist() == [1, 0, 1]
