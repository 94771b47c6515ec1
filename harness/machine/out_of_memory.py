"""The texts by which programs say that they ran out of memory."""

from __future__ import annotations

import re

OUT_OF_MEMORY = re.compile(
    r"RESOURCE_EXHAUSTED|ResourceExhausted|OOM when|CUDA_ERROR_OUT_OF_MEMORY|out of memory|"
    r"CUDNN_STATUS_ALLOC_FAILED|CUBLAS_STATUS_ALLOC_FAILED|std::bad_alloc|MemoryError|Cannot allocate memory"
)
