"""Kernels by their names, as TensorFlow, XLA, cuDNN and Horovod give them."""

from __future__ import annotations

import pandas as pd
import pytest

from profiles.metrics.kernels import of_group

EIGEN = "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<const Eigen::TensorAssignOp<Eigen::TensorMap<"
NAMES = {
    EIGEN + "Eigen::Tensor<float, 1>>, const Eigen::TensorConversionOp<float, const bfloat16>>>": "elementwise",
    EIGEN
    + "Eigen::Tensor<float, 1>>, const Eigen::TensorCwiseBinaryOp<Eigen::internal::scalar_sum_op>>>": "elementwise",
    "sm90_xmma_wgrad_indexed_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc": "convolution_matmul",
    "void cutlass__5x_cudnn::conv::kernel::ImplicitGemmConvolution<int>(T1::Params)": "convolution_matmul",
    "cudnn::cnn::conv2d_grouped_direct_kernel": "convolution_matmul",
    "input_convert_reduce_fusion_40": "fused",
    "triton_red_fused__native_batch_norm_legit_functional_3": "batch_norm",
    "triton_poi_fused_add_relu_7": "fused",
    "void tensorflow::functor::ColumnReduceKernel<float *, float *>": "reduction",
    "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgsStorage<4096>)": "collective",
}


@pytest.mark.parametrize(("name", "group"), NAMES.items())
def test_a_kernel_belongs_to_the_first_group_its_name_matches(name: str, group: str) -> None:
    assert of_group(pd.Index([name], dtype="str"), group).all()
