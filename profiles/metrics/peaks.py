"""Peaks of GPUs: dense operations per second by type, and bytes per second of their memory.

From the makers' data sheets, at the boost clock, without sparsity. The peak of a GPU that is not listed is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# Types of operands; tf32: float32 operands that a matrix product rounds for the tensor cores.
DTYPES: Final = ("float64", "float32", "tf32", "float16", "bfloat16", "float8", "int8")


@dataclass(frozen=True, slots=True)
class Peak:
    """Peak rates of a GPU. flops_per_s: by type, of the matrix units if they support it. bytes_per_s: of the memory;
    None if variants of the GPU differ."""

    flops_per_s: Mapping[str, float]
    bytes_per_s: float | None
    source: str


def _peak(source: str, gb_per_s: float | None, **tera: float) -> Peak:
    if "half" in tera:
        half = tera.pop("half")
        tera |= {"float16": half, "bfloat16": half}
    return Peak({name: 1e12 * value for name, value in tera.items()}, gb_per_s and 1e9 * gb_per_s, source)


_HOPPER: Final = "NVIDIA H100 Tensor Core GPU data sheet; its figures with sparsity, halved"
_AMPERE: Final = "NVIDIA A100 Tensor Core GPU data sheet, 2021"
_VOLTA: Final = "NVIDIA V100 Tensor Core GPU data sheet, 2020"
_SXM: Final = {"float64": 67.0, "float32": 67.0, "tf32": 494.5, "half": 989.5, "float8": 1979.0, "int8": 1979.0}
_A100: Final = {"float64": 19.5, "float32": 19.5, "tf32": 156.0, "half": 312.0, "int8": 624.0}
# The first pattern that is found in the GPU's name gives its peak.
_PEAKS: Final = (
    (r"H200(?! NVL)", _peak("NVIDIA H200 Tensor Core GPU data sheet; with sparsity, halved", 4800, **_SXM)),
    (
        r"H100 PCIe",
        _peak(_HOPPER, 2000, float64=51.0, float32=51.0, tf32=378.0, half=756.5, float8=1513.0, int8=1513.0),
    ),
    (r"H100 80GB HBM3|H100 SXM", _peak(_HOPPER, 3350, **_SXM)),
    (r"A100[ -]SXM4?-80GB", _peak(_AMPERE, 2039, **_A100)),
    (r"A100[ -]SXM4?-40GB|A100-PCIE-40GB", _peak(_AMPERE, 1555, **_A100)),
    (r"A100 80GB PCIe", _peak(_AMPERE, 1935, **_A100)),
    (r"A100", _peak(_AMPERE, None, **_A100)),
    (r"V100-SXM2", _peak(_VOLTA, 900, float64=7.8, float32=15.7, float16=125.0)),
    (r"V100-PCIE", _peak(_VOLTA, 900, float64=7.0, float32=14.0, float16=112.0)),
    (r"Tesla T4$|NVIDIA T4$", _peak("NVIDIA T4 data sheet", 300, float32=8.1, float16=65.0, int8=130.0)),
    (r"\bA10$", _peak("NVIDIA A10 data sheet", 600, float32=31.2, tf32=62.5, half=125.0, int8=250.0)),
    (
        r"\bL4$",
        _peak("NVIDIA L4 data sheet; with sparsity, halved", 300, float32=30.3, tf32=60.0, half=121.0, float8=242.5),
    ),
    (r"L40S", _peak("NVIDIA L40S data sheet", 864, float32=91.6, tf32=183.0, half=362.0, float8=733.0, int8=733.0)),
    (
        r"MI300X",
        _peak(
            "AMD Instinct MI300X data sheet, matrix units", 5300,
            float64=163.4, float32=163.4, tf32=653.7, half=1307.4, float8=2614.9, int8=2614.9,
        ),
    ),
)  # fmt: skip


# GPUs whose tensor cores take no float32 (TF32 came with compute capability 8.0) and no bfloat16; the RTX 2050 is an
# Ampere.
_VOLTA_AND_TURING: Final = re.compile(r"V100|TITAN (?:V|RTX)\b|\bT4\b|Quadro RTX|RTX 20[6-8]0")


_BEFORE_VOLTA: Final = re.compile(r"GTX|(?:Tesla|Quadro) [KMP]\d|\bP100|TITAN X")  # and Turing's GTX 16


def lacks_tensor_cores(name: str | None) -> bool:
    """True for a GPU that is known to have no tensor cores."""
    return bool(name and _BEFORE_VOLTA.search(name))


def lacks_tf32(name: str | None) -> bool:
    """True for a GPU that is known to have tensor cores for float16, but not for TF32 and bfloat16."""
    return bool(name and _VOLTA_AND_TURING.search(name))


def of(name: str | None) -> Peak | None:
    """The peak rates of the GPU with this name; None if not known."""
    return next((peak for pattern, peak in _PEAKS if name and re.search(pattern, name)), None)
