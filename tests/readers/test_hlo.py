"""What XLA's instructions multiply: built programs, programs of TensorFlow's that it counts itself, and recordings."""

from __future__ import annotations

import base64
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles import measure, read
from profiles.metrics.flop_counts import of_program
from profiles.readers import hlo, xplane
from tests.harness.running import prepared, run_python
from tests.made.planes import Plane
from tests.readers.test_xplane import GPUS
from tests.recordings import MORE, needs_shared

FLOAT32, BFLOAT16, UINT8, TUPLE = 11, 16, 6, 13
STEM = 2 * 118_013_952 * 8  # ResNet-50's first convolution, eight images
needs_tensorflow = pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="no TensorFlow here")


class Written:
    """A module being written: `put` adds an instruction to a computation and gives its number."""

    def __init__(self) -> None:
        self.proto = hlo.message()()
        self.proto.hlo_module.name = "jit_step"
        self.number = 0

    def computation(self, number: int) -> Any:
        return self.proto.hlo_module.computations.add(id=number)

    def put(self, into: Any, opcode: str, sizes: list[int], *operands: int, kind: int = FLOAT32, **more: Any) -> int:
        self.number += 1
        name = more.pop("name", f"{opcode}.{self.number}")
        one = into.instructions.add(id=self.number, name=name, opcode=opcode, operand_ids=operands, **more)
        one.shape.element_type = kind
        one.shape.dimensions.extend(sizes)
        return self.number

    def program(self) -> hlo.Program:
        found = hlo.program(self.proto.SerializeToString())
        assert found is not None
        return found


def gemm(made: Written, into: Any, left: list[int], right: list[int], out: list[int], name: str, **more: Any) -> None:
    a, b = (made.put(into, "parameter", sizes, kind=more.get("kind", FLOAT32)) for sizes in (left, right))
    config = {"dot_dimension_numbers": {"lhs_contracting_dimensions": [str(len(left) - 1)]}, **more.pop("config", {})}
    made.put(into, "custom-call", out, a, b, name=name, custom_call_target=more.pop("target", "__cublas$gemm"),
             backend_config=json.dumps({"gemm_backend_config": config}).encode(), **more)  # fmt: skip
    one = into.instructions[-1].shape
    result, room = one.tuple_shapes.add(), one.tuple_shapes.add(element_type=UINT8, dimensions=[1 << 20])
    result.CopyFrom(type(room)(element_type=one.element_type, dimensions=list(one.dimensions)))
    one.element_type = TUPLE
    del one.dimensions[:]


@pytest.mark.parametrize("opcode", ["dot", "fusion"])
def test_a_product_counts_whether_it_stands_alone_or_is_fused(opcode: str) -> None:
    """[4, 8, 16] x [4, 16, 32] for each of 4: 2 x 4 x 8 x 16 x 32; of a fusion, the bytes that leave and enter it."""
    made = Written()
    inner, outer = made.computation(1), made.computation(2)
    where = inner if opcode == "fusion" else outer
    a, b = made.put(where, "parameter", [4, 8, 16]), made.put(where, "parameter", [4, 16, 32])
    made.put(where, "dot", [4, 8, 32], a, b, name="dot", dot_dimension_numbers={"lhs_contracting_dimensions": [2]})
    if opcode == "fusion":
        made.put(where, "negate", [4, 8, 32], 3)
        a, b = made.put(outer, "parameter", [4, 8, 16]), made.put(outer, "parameter", [4, 16, 32])
        made.put(outer, "fusion", [4, 8, 32], a, b, name="gemm_fusion_dot.7", called_computation_ids=[1])
    name = "dot" if opcode == "dot" else "gemm_fusion_dot.7"
    found = of_program(made.program().of_kernel(name, "whatever"))
    assert found is not None and found.flops == 2 * 4 * 8 * 16 * 32
    assert found.bytes == 4 * (4 * 8 * 16 + 4 * 16 * 32 + 4 * 8 * 32)
    assert (found.dtype, found.shapes) == ("tf32", "[4, 8, 16] x [4, 16, 32]")


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [({}, "tf32"), ({"operand_precision": ["HIGHEST", "DEFAULT"]}, "float32"),
     ({"algorithm": "ALG_DOT_F32_F32_F32"}, "float32")],
)  # fmt: skip
def test_a_librarys_product_counts_without_its_room_for_work(precision: dict[str, Any], dtype: str) -> None:
    made = Written()
    gemm(made, made.computation(1), [8, 16], [16, 32], [8, 32], "gemm.1", config={"precision_config": precision})
    found = of_program(made.program().of_kernel("gemm.1", "nvjet_hsh"))
    assert found is not None and found.flops == 2 * 8 * 16 * 32 and found.dtype == dtype
    assert found.bytes == 4 * (8 * 16 + 16 * 32 + 8 * 32)


@pytest.mark.parametrize(
    ("way", "operands", "result"),
    [
        ("Forward", ([8, 3, 224, 224], [64, 3, 7, 7]), [8, 64, 112, 112]),
        ("BackwardInput", ([8, 64, 112, 112], [64, 3, 7, 7]), [8, 3, 224, 224]),
        ("BackwardFilter", ([8, 3, 224, 224], [8, 64, 112, 112]), [64, 3, 7, 7]),
    ],
)
def test_a_convolution_counts_the_same_forward_and_for_each_gradient(
    way: str, operands: tuple[list[int], list[int]], result: list[int]
) -> None:
    made = Written()
    into = made.computation(1)
    a, b = (made.put(into, "parameter", sizes, kind=BFLOAT16) for sizes in operands)
    made.put(into, "custom-call", result, a, b, name="conv", kind=BFLOAT16, custom_call_target=f"__cudnn$conv{way}",
             convolution_dimension_numbers={"kernel_output_feature_dimension": 0})  # fmt: skip
    found = of_program(made.program().of_kernel("conv", "cutlass"))
    assert found is not None and (found.flops, found.dtype) == (STEM, "bfloat16")


def test_a_convolution_with_holes_is_not_counted() -> None:
    made = Written()
    into = made.computation(1)
    a, b = made.put(into, "parameter", [1, 5, 5, 4]), made.put(into, "parameter", [3, 3, 4, 8])
    made.put(into, "convolution", [1, 9, 9, 8], a, b, name="conv", window={"dimensions": [{"base_dilation": 2}]},
             convolution_dimension_numbers={"kernel_output_feature_dimension": 3})  # fmt: skip
    assert made.program().of_kernel("conv", "conv") == ""


def graph(*more: str) -> hlo.Program:
    """A CUDA graph of a fused product and two of a library."""
    made = Written()
    inner, body, entry = made.computation(1), made.computation(2), made.computation(3)
    a, b = made.put(inner, "parameter", [8, 16]), made.put(inner, "parameter", [16, 8])
    made.put(inner, "dot", [8, 8], a, b, dot_dimension_numbers={"lhs_contracting_dimensions": [1]})
    a, b = made.put(body, "parameter", [8, 16]), made.put(body, "parameter", [16, 8])
    made.put(body, "fusion", [8, 8], a, b, name="gemm_fusion_dot.3", called_computation_ids=[1])
    gemm(made, body, [8, 16], [16, 32], [8, 32], "gemm.1")
    gemm(made, body, [8, 32], [32, 32], [8, 32], "gemm.2")
    for opcode in more:
        made.put(body, opcode, [8, 8], custom_call_target="__cudnn$fmhaSoftmax" if opcode == "custom-call" else "")
    made.put(entry, "call", [8, 8], name="command_buffer", called_computation_ids=[2])
    return made.program()


def test_a_fusion_is_of_its_own_path_or_of_the_one_that_most_of_its_parts_have() -> None:
    made = Written()
    inner, outer = made.computation(1), made.computation(2)
    for path in ("net/a/mul", "net/b/add", "net/b/add", "no path", ""):
        made.put(inner, "add", [8], metadata={"op_name": path})
    for name, own in (("loop_add_fusion.1", "net/own/add"), ("loop_add_fusion.2", ""), ("add.9", "net/own/add")):
        made.put(outer, "fusion", [8], name=name, called_computation_ids=[1], metadata={"op_name": own})
    assert made.program().paths == {"loop_add_fusion_1": "net/own/add", "loop_add_fusion_2": "net/b/add"}


def test_in_a_graph_a_kernel_has_its_instruction_and_the_librarys_share_theirs() -> None:
    found = graph()
    named = of_program(found.of_kernel("command_buffer", "gemm_fusion_dot_3"))
    shared = of_program(found.of_kernel("command_buffer", "nvjet_hsh_64x64"))
    assert named is not None and named.flops == 2 * 8 * 8 * 16
    assert shared is not None and shared.flops == 2 * 8 * 32 * (16 + 32) and shared.shapes == "2 products"


@pytest.mark.parametrize("opcode", ["while", "custom-call"])
def test_in_a_graph_that_loops_or_calls_what_is_not_known_the_librarys_are_not_counted(opcode: str) -> None:
    assert graph(opcode).of_kernel("command_buffer", "nvjet_hsh_64x64") == ""


def recorded(program: Written, *events: tuple[str, int, int, dict[str, Any]]) -> Any:
    """One GPU of a profile whose kernels are of `jit_step(5)`."""
    space = xplane.message()()
    told = Plane(space, "/host:metadata")
    entry = told.plane.event_metadata[5]
    entry.id, entry.name = 5, "jit_step(5)"
    told.plane.stat_metadata[1].name = "Hlo Proto"
    entry.stats.add(metadata_id=1, bytes_value=program.proto.SerializeToString())
    gpu = Plane(space, "/device:GPU:0", gpu_device_name="NVIDIA H200")
    of = {"kernel_details": "regs:32", "hlo_module": "jit_step", "program_id": 5}
    gpu.line(13, "Stream #13(Compute)", 0, *((name, start, lasts, of | more) for name, start, lasts, more in events))
    return space


def test_kernels_that_follow_each_other_are_one_execution_until_one_comes_again(tmp_path: Path) -> None:
    """Split along the sum: a product and what adds its parts up, twice in a row, then another instruction between."""
    made = Written()
    gemm(made, made.computation(1), [8, 16], [16, 32], [8, 32], "gemm.1")
    one = {"hlo_op": "gemm.1"}
    names = ["nvjet_splitK", "splitKreduce", "nvjet_splitK", "splitKreduce", "loop_add_fusion", "nvjet_splitK"]
    events = [(name, 10_000_000 * at, 8_000_000, one if "K" in name else {"hlo_op": "loop_add_fusion"})
              for at, name in enumerate(names)]  # fmt: skip
    path = tmp_path / "gpu.xplane.pb"
    path.write_bytes(recorded(made, *events).SerializeToString())
    (gpu,) = measure([path], window="capture").gpus
    assert gpu.arithmetic is not None
    (row,) = gpu.arithmetic.rows
    assert (row.calls, row.flops, row.kernel_ns, row.dtype) == (3, 3 * 2 * 8 * 16 * 32, 5 * 8_000, "tf32")
    assert gpu.arithmetic.matrix_share == 1
    assert gpu.arithmetic.mfu == pytest.approx(3 * 2 * 8 * 16 * 32 / 494.5e12 / 58e-6)


FORWARD = "jit(apply)/Dense_0/dot_general"
PASSES = {
    "forward": (False, [FORWARD, "jit(apply)/relu/max"]),
    "forward and backward": (True, ["jit(step)/jvp(Net)/dot_general", "jit(step)/transpose(jvp(Net))/dot_general"]),
    "a backward pass fused into others": (True, [FORWARD, "", "jit(f)/(transpose(jvp())/transpose:jvp()/reduce_sum)"]),
    "forward derivatives": (True, ["jit(step)/jvp()/mul", FORWARD]),
    "an axis swapped": (False, ["jit(apply)/transpose", FORWARD]),
    "gradients by hand": (None, ["jit(update_params)/dot_general", FORWARD]),
    "called after training": (None, ["jit(train_step)/dot_general"]),
    "TensorFlow's": (None, ["model/dense/MatMul", "gradient_tape/model/dense/MatMul"]),
    "no names": (None, ["", ""]),
}


@pytest.mark.parametrize("passes", PASSES)
def test_a_program_of_jax_differentiates_as_the_names_in_it_say(passes: str) -> None:
    told, names = PASSES[passes]
    made = Written()
    made.proto.hlo_module.name = "jit__lambda"
    into = made.computation(1)
    a, b = made.put(into, "parameter", [2, 2]), made.put(into, "parameter", [2, 2])
    for name in names:
        made.put(into, "dot", [2, 2], a, b, metadata={"op_name": name})
    assert made.program().differentiates is told


def test_a_program_that_multiplies_nothing_tells_nothing() -> None:
    made = Written()
    into = made.computation(1)
    made.put(into, "negate", [2, 2], made.put(into, "parameter", [2, 2]), metadata={"op_name": "jit(apply)/neg"})
    assert made.program().differentiates is None


@pytest.mark.parametrize(
    ("mark", "name", "unit"),
    [
        ("train", "jit(step)/transpose(jvp())/dot_general", "step"),
        ("train", FORWARD, "batch"),  # the word of JAX's documentation, copied
        ("eval", "jit(train_step)/dot_general", "batch"),
        ("work", "jit(train_step)/dot_general", "step"),
        ("work", FORWARD, "batch"),
    ],
)
def test_what_is_marked_in_jax_is_a_batch_where_nothing_is_differentiated(
    mark: str, name: str, unit: str, tmp_path: Path
) -> None:
    made = Written()
    made.proto.hlo_module.name = "jit__lambda"
    into = made.computation(1)
    a, b = made.put(into, "parameter", [8, 16]), made.put(into, "parameter", [16, 32])
    made.put(into, "dot", [8, 32], a, b, name="dot.1", metadata={"op_name": name})
    us = 1_000_000
    every = range(0, 6000 * us, 1000 * us)
    called = [{"hlo_op": "dot.1", "correlation_id": number} for number in range(1, 7)]
    space = recorded(made, *(("dot_1", at + 300 * us, 500 * us, of) for at, of in zip(every, called, strict=True)))
    host = Plane(space, "/host:CPU")
    host.line(1, "python", 0, *((mark, at, 950 * us, {"step_num": at // (1000 * us)}) for at in every))
    Plane(space, "/host:CUPTI").line(
        1, "python", 0, *(("cuLaunchKernel", at + 200 * us, 10 * us, of) for at, of in zip(every, called, strict=True))
    )
    path = tmp_path / "gpu.xplane.pb"
    path.write_bytes(space.SerializeToString())
    (gpu,) = measure([path]).gpus
    assert (gpu.steps.source, gpu.steps.unit) == ("marks", unit) and gpu.steps.count >= 4


def test_what_calls_itself_or_has_no_end_of_products_is_left_out() -> None:
    """Each of 30 computations fuses the next one ten times, and the last the first: followed, it would never end."""
    made = Written()
    for number in range(30):
        into = made.computation(number)
        a, b = made.put(into, "parameter", [2, 2]), made.put(into, "parameter", [2, 2])
        made.put(into, "dot", [2, 2], a, b, dot_dimension_numbers={"lhs_contracting_dimensions": [1]})
        for _ in range(10):
            made.put(into, "fusion", [2, 2], a, b, name=f"fusion.{number}", called_computation_ids=[(number + 1) % 30])
    wide = made.computation(99)
    a = made.put(wide, "parameter", [1 << 62] * 100_000)
    made.put(wide, "dot", [2], a, a, name="wide", dot_dimension_numbers={"lhs_contracting_dimensions": [0]})
    found = made.program()
    assert found.of_kernel("fusion.3", "kernel") == found.of_kernel("wide", "kernel") == ""


@given(st.binary(max_size=200))
def test_whatever_stands_where_a_program_should_is_a_program_or_none(serialized: bytes) -> None:
    found = hlo.program(serialized)
    assert found is None or found.of_kernel("fusion", "kernel") == ""


@pytest.mark.exhaustive
@pytest.mark.train
@pytest.mark.beside
@needs_tensorflow
def test_tensorflow_counts_the_same(tmp_path: Path) -> None:
    """By its profiler, of the operations of its graph: MobileNetV2, and training of dense layers."""
    out = tmp_path / "programs.json"
    done = run_python(str(Path(__file__).with_name("hlo_by_tensorflow.py")), str(out), prefix=prepared())
    assert done.returncode == 0, done.stderr
    for name, told in json.loads(out.read_text()).items():
        program = hlo.program(b"\n" + _varint(base64.b64decode(told["hlo"])))
        assert program is not None
        flops = 0
        for text in program.instructions.values():
            work = of_program(text)
            assert work is not None
            flops += work.flops
        assert flops == told["flops"] > 0, name


def _varint(module: bytes) -> bytes:
    """A module as the first field of HloProto."""
    length, found = len(module), b""
    while length > 127:
        length, found = length >> 7, found + bytes([length & 127 | 128])
    return found + bytes([length]) + module


def test_a_training_step_of_jax_computes_what_its_model_does() -> None:
    """Its program: 128 rows per GPU times [512, 512], and the gradient of that. 2 x 2 x 128 x 512 x 512 per step."""
    for gpu in measure([GPUS], window="capture").gpus:
        assert gpu.arithmetic is not None and gpu.arithmetic.flops == 5 * 2 * 2 * 128 * 512 * 512
        assert gpu.arithmetic.all_told and gpu.arithmetic.flops_by_dtype == {"tf32": gpu.arithmetic.flops}


@needs_shared
def test_a_transformer_of_jax_on_amd_computes_what_its_shapes_say() -> None:
    """Three layers on 4 x 2048 tokens of width 1024: four projections, scores and their use, and two dense of 4096."""
    (gpu, *_) = measure([MORE / "xplane" / "tracelens__mi300__jax08_attention__tw003.xplane.pb"], window="capture").gpus
    tokens, width = 4 * 2048, 1024
    layer = 4 * tokens * width**2 + 2 * tokens * 2048 * width + 2 * tokens * width * 4 * width
    assert gpu.arithmetic is not None and gpu.arithmetic.flops == 3 * 2 * layer
    assert gpu.arithmetic.matrix_share == 1 and read(GPUS).kernels["work"].cat.categories.size > 1
