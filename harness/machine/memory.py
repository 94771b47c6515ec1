"""The words with which frameworks, CUDA and the C library say that memory is out."""

from __future__ import annotations

import re

OUT_OF_MEMORY = re.compile(
    r"RESOURCE_EXHAUSTED|ResourceExhausted|OOM when|CUDA_ERROR_OUT_OF_MEMORY|out of memory|"
    r"std::bad_alloc|MemoryError|Cannot allocate memory"
)
