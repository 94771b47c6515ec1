"""XLA's names in words, and on real recordings: what stands beside a kernel is what the recording tells of it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from profiles import analyse
from profiles.model.xla_names import compiled
from profiles.views import spoken
from profiles.views.files import markdown
from profiles.views.tables.table import document_of
from profiles.views.terminal import named, recording
from tests.recordings import DATA

COMPILED = DATA / "resnet50-4gpu-compiled.rank0.sqlite.xz"
JAX = DATA / "xplane" / "jax-2gpu-5-steps.xplane.pb"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ("Thunk:#name=net/net/conv_1/convolution,hlo_op=loop_add_fusion.3#", "XLA, net/conv_1 (loop_add_fusion.3)"),
        ("Thunk:#name=gradient_tape/net/pool/MaxPoolGrad,hlo_op=f.1#", "XLA, net/pool, backward (f.1)"),
        ("Thunk:#name=compile_loss/mse/mul,hlo_op=f.1#", "XLA, compile_loss/mse (f.1)"),
        ("Thunk:#hlo_op=input_reduce_fusion.225#", "XLA, a reduction (input_reduce_fusion.225)"),
        ("Thunk:#hlo_op=command_buffer#", "XLA, a CUDA graph (command_buffer)"),
        ("XlaModule:#hlo_module=a_step.7,program_id=2#", "XLA's program a_step.7"),
        ("#edge_name=edge_N#", "#edge_name=edge_N#"),
        ("cudaLaunchKernel", "cudaLaunchKernel"),
        ("void cudnn::fusion::compute<int>(int)", "void cudnn::fusion::compute<int>(int)"),
        ("input_reduce_fusion_225", "input_reduce_fusion_225: a reduction"),
        ("loop_add_multiply_fusion_3", "loop_add_multiply_fusion_3: element-wise work (add, multiply)"),
        ("wrapped_concatenate", "wrapped_concatenate: a copy"),
    ],
)
def test_a_name_of_xla_s_is_said_in_words_and_others_stay(told: str, words: str) -> None:
    assert spoken.name(told) == words


def test_a_kernel_stands_beside_the_layer_that_it_is_of() -> None:
    path = "jit(s)/transpose(jvp(Net))/Dense_0/dot_general"
    assert spoken.name("gemm_fusion_dot_2", path) == "gemm_fusion_dot_2: Net/Dense_0, backward"


@pytest.mark.parametrize(("file", "least"), [(COMPILED, 2), (JAX, 7)])
def test_kernels_know_the_paths_that_the_recording_tells(file: Path, least: int) -> None:
    """Each path is one that operators have, too, and only kernels that XLA compiled have one."""
    for gpu in analyse([str(file)]).measures.gpus:
        assert gpu.operators is not None
        told = {kernel.name: kernel.operator for kernel in gpu.kernels.top if kernel.operator}
        assert len(told) >= least and all(map(compiled, told))
        assert set(told.values()) <= {row.name for row in gpu.operators.rows}


def test_no_view_shows_a_range_of_xla_s_executor_as_it_is_and_the_json_does() -> None:
    measures = analyse([str(COMPILED)]).measures
    out = io.StringIO()
    to = Console(file=out, width=100, highlight=False, markup=False, emoji=False)
    recording.show(measures, to)
    for name in named.NAMES:
        named.show(measures, name, to)
    document = document_of(measures)
    for text in (out.getvalue(), markdown.of_recordings(document, title="t", command="c")):
        assert "Thunk:#" not in text and "XLA, a CUDA graph (command_buffer)" in text
    assert "Thunk:#" in json.dumps(document.json)
