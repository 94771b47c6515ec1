"""FLOP/s and MFU: published counts of models and of torch.utils.flop_counter's tests; hand-built and real ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles import measure
from profiles.metrics import peaks
from profiles.metrics.flop_counts import _COUNTS, of_call
from tests.made.build import Build
from tests.recordings import MORE, needs_shared

KINETO = MORE / "kineto"


def inputs(dims: list[Any], values: list[str] | None = None, kind: str = "c10::BFloat16") -> str:
    return json.dumps({"dims": dims, "types": [kind] * len(dims), "values": values or [""] * len(dims)})


CONV = ["", "", "", "[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1"]
BACK = ["", "", "", "[0]", "[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1"]
STEM = ([8, 3, 224, 224], [64, 3, 7, 7])
UP = ["", "", "", "[2, 2]", "[0, 0]", "[1, 1]", "True", "[0, 0]", "1"]
QUERY, KEY = [4, 8, 128, 64], [4, 8, 256, 64]


@pytest.mark.parametrize(
    ("name", "told", "flops", "moved"),
    [
        ("aten::mm", inputs([[4, 5], [5, 6]]), 240, 2 * (20 + 30 + 24)),
        ("aten::addmm", inputs([[6], [4, 5], [5, 6]]), 240, 2 * (20 + 30 + 24)),
        ("aten::bmm", inputs([[3, 4, 5], [3, 5, 6]]), 720, 2 * 3 * (20 + 30 + 24)),
        ("aten::mm", inputs([[4, 5], [5, 6]], kind="double"), 240, 8 * (20 + 30 + 24)),
        # ResNet-50's first convolution: 118 013 952 multiplications and additions an image.
        ("aten::convolution", inputs([*STEM, [], [], [], [], [], [], []], CONV), 8 * 2 * 118_013_952, None),
        (
            "aten::convolution_backward",
            inputs([[8, 64, 112, 112], *STEM, *[[]] * 8], [*BACK, "[False, True, False]"]),
            8 * 2 * 118_013_952,
            None,
        ),
        (
            "aten::convolution_backward",
            inputs([[8, 64, 112, 112], *STEM, *[[]] * 8], [*BACK, "[True, True, False]"]),
            2 * 8 * 2 * 118_013_952,
            None,
        ),
        # Depthwise, 3 x 3: each output takes nine.
        (
            "aten::convolution",
            inputs([[1, 32, 10, 10], [32, 1, 3, 3], *[[]] * 7], [*CONV[:3], "[1, 1]", "[1, 1]", *CONV[5:8], "32"]),
            2 * 9 * 32 * 100,
            None,
        ),
        # Transposed, 2 x 2 with stride 2: each input reaches four places in each of 8 channels.
        (
            "aten::convolution",
            inputs([[1, 4, 5, 5], [4, 8, 2, 2], *[[]] * 7], UP),
            2 * 4 * 25 * 8 * 4,
            2 * (4 * 25 + 4 * 8 * 4 + 8 * 100),
        ),
        # As torch's own test of its counter has them (test_sdpa, lengths 128 and 256): 939 524 096 both ways.
        ("aten::_scaled_dot_product_flash_attention", inputs([QUERY, KEY, KEY]), 268_435_456, None),
        ("aten::_scaled_dot_product_flash_attention_backward", inputs([QUERY, QUERY, KEY, KEY]), 671_088_640, None),
    ],
)  # fmt: skip
def test_calls_count_as_published(name: str, told: str, flops: int, moved: int | None) -> None:
    work = of_call(name, told)
    assert work is not None and work.flops == flops
    assert moved is None or work.bytes == moved


@pytest.mark.parametrize(
    "told",
    [
        "",
        "{",
        inputs([]),
        inputs([[4, 5], [6, 7]]),
        inputs([[4, 5], [5, 6]], kind="ScalarList"),
        inputs([[4, None], [5, 6]]),
        inputs([[], []]),
        inputs([["x", 1 << 45], [1 << 45, 1]]),  # the product of a text and a size is a longer text
        inputs([[[0], 1 << 45], [1 << 45, 1]]),
        inputs([[1, 1, 8, 8], [1, 1, 1 << 45, 3], *[[]] * 7], [*CONV[:5], '["x", 1]', *CONV[6:]]),
        '{"dims":[[1,2],[2,3]],"types":7,"values":[]}',
        '{"dims":{"a":1},"types":[],"values":[]}',
    ],
)
def test_what_is_not_told_well_is_unknown(told: str) -> None:
    assert of_call("aten::mm", told) is None
    assert of_call("aten::convolution", told) is None


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 1 << 70) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


@given(st.sampled_from(sorted(_COUNTS)), ANYTHING, ANYTHING, ANYTHING)
def test_whatever_a_file_says_of_shapes_ends_in_a_whole_number_or_in_nothing(
    name: str, dims: Any, types: Any, values: Any
) -> None:
    work = of_call(name, json.dumps({"dims": dims, "types": types, "values": values}))
    assert work is None or (type(work.flops) is int and type(work.bytes) is int and work.flops > 0)
    assert of_call(name, "[" * 100_000) is None


def built(name: str | None, *, kernel: str = "gemm", told: str = "") -> Build:
    made = Build()
    if name:
        made.device(0, name=name)
    for step in range(4):
        at = step * 1_000_000
        made.operator("aten::linear", at, at + 300)
        made.operator("aten::mm", at + 100, at + 200, inputs=told)
        made.kernel(at + 500_000, at + 1_000_000, kernel, call=(at + 150, at + 160))
    return made


def test_mfu_is_the_share_of_the_window_at_the_peak() -> None:
    """Four products of 2 x 1000 x 1000 x 1000 in 3.5 ms: 8e9 operations, 2.286e12/s, of the H200's 989.5e12."""
    made = built("NVIDIA H200", told=inputs([[1000, 1000], [1000, 1000]]))
    (gpu,) = measure([made.timeline()], window="capture").gpus
    found = gpu.arithmetic
    assert found is not None and found.flops == 8 * 10**9 and gpu.span_ns == 3_500_000
    assert found.flops_per_s == pytest.approx(8e9 / 3.5e-3, rel=1e-12)
    assert found.mfu == pytest.approx(8e9 / 989.5e12 / 3.5e-3, rel=1e-12)
    assert found.matrix_share == 1 and found.all_told
    (row,) = found.rows
    assert (row.calls, row.flops, row.bytes, row.kernel_ns) == (4, 8 * 10**9, 4 * 6 * 10**6, 2_000_000)
    # 333 operations a byte; the H200 has 206 at its peak.
    assert row.bound == "compute" and row.of_roof == row.of_peak == pytest.approx(8e9 / 2e-3 / 989.5e12)


def test_few_operations_a_byte_are_bound_by_the_memory() -> None:
    made = built("NVIDIA H200", told=inputs([[1, 1000], [1000, 1000]]))
    found = measure([made.timeline()], window="capture").gpus[0].arithmetic
    assert found is not None
    (row,) = found.rows
    least_ns = 4 * 2 * (1000 + 1_000_000 + 1000) / 4800
    assert row.bound == "memory" and row.of_roof == pytest.approx(least_ns / 2_000_000)


@pytest.mark.parametrize(("kernel", "dtype"), [("sm80_xmma_gemm_tf32f32", "tf32"), ("ampere_sgemm", "float32")])
def test_float32_on_matrix_units_has_their_peak(kernel: str, dtype: str) -> None:
    made = built("NVIDIA A100-SXM4-80GB", kernel=kernel, told=inputs([[64, 64], [64, 64]], kind="float"))
    found = measure([made.timeline()], window="capture").gpus[0].arithmetic
    assert found is not None and list(found.flops_by_dtype) == [dtype]
    assert found.peak_flops_per_s == {dtype: 156e12 if dtype == "tf32" else 19.5e12}


@pytest.mark.parametrize(("name", "why"), [(None, "a GPU without a name"), ("Quadro P400", "Quadro P400")])
def test_without_a_peak_there_is_no_mfu_and_a_doubt_says_so(name: str | None, why: str) -> None:
    measures = measure([built(name, told=inputs([[64, 64], [64, 64]])).timeline()], window="capture")
    found = measures.gpus[0].arithmetic
    assert found is not None and found.mfu is None and found.mfu_unknown == f"no peak FLOP/s of {why} is known"
    assert found.rows[0].bound is None and found.flops_per_s > 0
    assert "peak-unknown" in {doubt.code for doubt in measures.doubts}


def test_products_of_unknown_shape_make_it_a_lower_bound() -> None:
    made = built("NVIDIA H200", told=inputs([[64, 64], [64, 64]]))
    made.kernel(5_000_000, 7_000_000, "gemm", call=(4_999_000, 4_999_500))
    measures = measure([made.timeline()], window="capture")
    found = measures.gpus[0].arithmetic
    assert found is not None and found.matrix_share == 0.5
    assert "flops-partly-told" in {doubt.code for doubt in measures.doubts}


def test_a_call_within_a_counted_call_is_not_counted_again() -> None:
    made = built("NVIDIA H200", told=inputs([[64, 64], [64, 64]]))
    made.operator("aten::mm", 110, 190, inputs=inputs([[64, 64], [64, 64]]))
    found = measure([made.timeline()], window="capture").gpus[0].arithmetic
    assert found is not None and found.flops == 4 * 2 * 64**3


def test_without_shapes_nothing_is_said() -> None:
    assert measure([built("NVIDIA H200").timeline()], window="capture").gpus[0].arithmetic is None


@needs_shared
def test_a_resnet_18_computes_what_is_published_of_it() -> None:
    """1.814 G multiplications and additions an image forward (torchvision's weights say so), thrice that to train, less
    the gradient of the images: 0.118 G, which nobody asks for."""
    found = measure([KINETO / "tracelens__ddp_resnet18.json.gz"], window="capture").gpus[0].arithmetic
    assert found is not None and found.all_told
    forward = sum(row.flops for row in found.rows if row.name in ("aten::convolution", "aten::addmm"))
    images = 5 * 512
    assert forward / images / 2 == pytest.approx(1.814e9, rel=1e-3)
    assert found.flops / images / 2 == pytest.approx((3 * 1.814 - 0.118) * 1e9, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "bfloat16"),
    [
        ("NVIDIA H100 80GB HBM3", 989.5e12),
        ("NVIDIA H100 PCIe", 756.5e12),
        ("NVIDIA H200", 989.5e12),
        ("NVIDIA A100-PG509-200", 312e12),
        ("AMD Instinct MI300X", 1307.4e12),
        ("Tesla V100-SXM2-32GB", None),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA GeForce RTX 2080 Ti", None),
    ],
)
def test_a_peak_is_that_of_the_gpu_of_this_name(name: str, bfloat16: float | None) -> None:
    peak = peaks.of(name)
    assert (peak.flops_per_s.get("bfloat16") if peak else None) == bfloat16
    assert peak is None or (peak.source and set(peak.flops_per_s) <= set(peaks.DTYPES))


@pytest.mark.parametrize(
    ("name", "lacks"),
    [("Tesla T4", True), ("NVIDIA GeForce RTX 2080 Ti", True), ("NVIDIA GeForce RTX 2060", True)]
    + [("NVIDIA GeForce RTX 2050", False), ("NVIDIA RTX 2000 Ada Generation", False), ("NVIDIA H200", False)],
)
def test_volta_and_turing_lack_tf32_and_the_ampere_named_like_them_has_it(name: str, lacks: bool) -> None:
    assert peaks.lacks_tf32(name) == lacks
