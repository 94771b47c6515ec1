"""The edits that Horovod 0.28.1 needs in its source to build and run well with today's TensorFlow."""

from pathlib import Path

IN_XLA = Path(__file__).with_name("horovod_in_xla.cc").read_text()

# (file, text, what replaces it)
EDITS = (
    # TensorFlow no longer exports AsGpuStreamValue; the stream's own handle is what it gave.
    (
        "horovod/tensorflow/mpi_ops.cc",
        "GpuStreamHandle AsGpuStreamValue(Stream* stream);\n",
        "",
    ),
    (
        "horovod/tensorflow/mpi_ops.cc",
        "#endif // TENSORFLOW_VERSION >= 2011000000\n#endif // HAVE_GPU\n",
        "#endif // TENSORFLOW_VERSION >= 2011000000\n"
        "namespace stream_executor { namespace gpu {\n"
        "inline GpuStreamHandle AsGpuStreamValue(Stream* stream) {\n"
        "  return static_cast<GpuStreamHandle>(stream->platform_specific_handle().stream);\n"
        "}\n} }\n"
        "#endif // HAVE_GPU\n",
    ),
    # Built for TensorFlow alone, a third of what is compiled is linked nowhere: Gloo as C++11, beside the one as C++17.
    # Debug information is stripped afterwards.
    (
        "CMakeLists.txt",
        "    add_subdirectory(third_party/gloo)\n",
        "    add_subdirectory(third_party/gloo EXCLUDE_FROM_ALL)\n",
    ),
    (
        "CMakeLists.txt",
        'string(REPLACE "-O2" "-O3" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")\n',
        'string(REPLACE "-O2 -g" "-O3" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")\n',
    ),
    # An all-reduce or broadcast whose name says `in_stream` runs on TensorFlow's own stream of the GPU, between what
    # computes its input and what reads its output, not on Horovod's: a GPU goes slower from kernel to kernel once more
    # than a handful of a process's streams have launched any (docs/results). Not where Horovod copies or scales what it
    # reduces, since it does so on its own stream.
    (
        "horovod/common/common.h",
        "  virtual Framework framework() const = 0;\n  virtual ~OpContext() = default;\n",
        "  virtual Framework framework() const = 0;\n"
        "  virtual void* InStream() const { return nullptr; }\n"
        "  virtual ~OpContext() = default;\n",
    ),
    (
        "horovod/tensorflow/mpi_ops.cc",
        "  virtual common::Framework framework() const override;\n",
        "  virtual common::Framework framework() const override;\n"
        "#if HAVE_GPU\n"
        "  void* InStream() const override {\n"
        "    auto device_context = context_->op_device_context();\n"
        '    bool asked = context_->op_kernel().name().find("in_stream") != std::string::npos;\n'
        "    return asked && device_context != nullptr\n"
        "        ? stream_executor::gpu::AsGpuStreamValue(device_context->stream()) : nullptr;\n"
        "  }\n"
        "#endif\n",
    ),
    (
        "horovod/common/ops/nccl_operations.cc",
        "  gpu_op_context_.InitGPUQueue(entries, response);\n"
        "\n  WaitForData(entries);\n\n  ncclRedOp_t ncclOp = ncclSum;\n",
        "  gpu_op_context_.InitGPUQueue(entries, response);\n"
        "#ifdef NCCL_AVG_SUPPORTED\n"
        "  auto in_stream = static_cast<gpuStream_t>(first_entry.context->InStream());\n"
        "  for (auto& e : entries) {\n"
        "    if (e.context->InStream() != in_stream) in_stream = nullptr;\n"
        "  }\n"
        "  if (response.prescale_factor() != 1.0 || response.postscale_factor() != 1.0) in_stream = nullptr;\n"
        "  if (in_stream != nullptr) {\n"
        "    gpu_op_context_.stream = &in_stream;\n"
        "  }\n"
        "#endif\n"
        "\n  WaitForData(entries);\n\n  ncclRedOp_t ncclOp = ncclSum;\n",
    ),
    # Several of them: NCCL sums each where it lies, all in one launch, with no copies into and out of a buffer. What
    # comes after it comes after it in its stream: the thread that tells of ends has nothing to wait for.
    (
        "horovod/common/ops/nccl_operations.cc",
        "  const void* fused_input_data;\n  void* buffer_data;\n  size_t buffer_len;\n\n"
        "  // Copy (and possibly scale) tensors into the fusion buffer.\n",
        "#ifdef NCCL_AVG_SUPPORTED\n"
        "  if (in_stream != nullptr && entries.size() > 1) {\n"
        "    auto& comm = *nccl_op_context_.nccl_comm_;\n"
        '    nccl_context_->ErrorCheck("ncclGroupStart", ncclGroupStart(), comm);\n'
        "    for (auto& e : entries) {\n"
        "      auto result = ncclAllReduce(e.tensor->data(), (void*)e.output->data(),\n"
        "                                  (size_t)e.tensor->shape().num_elements(),\n"
        "                                  GetNCCLDataType(e.tensor), ncclOp, comm, in_stream);\n"
        '      nccl_context_->ErrorCheck("ncclAllReduce", result, comm);\n'
        "    }\n"
        '    nccl_context_->ErrorCheck("ncclGroupEnd", ncclGroupEnd(), comm);\n'
        "    if (global_state_->timeline.Initialized()) {\n"
        "      gpu_context_->RecordEvent(gpu_op_context_.event_queue, NCCL_ALLREDUCE, in_stream);\n"
        "    }\n"
        "    if (global_state_->enable_async_completion && !global_state_->elastic_enabled &&\n"
        "        !global_state_->timeline.Initialized()) {\n"
        "      return Status::OK();\n"
        "    }\n"
        "    return gpu_op_context_.FinalizeGPUQueue(entries, true, nccl_op_context_.error_check_callback_);\n"
        "  }\n"
        "#endif\n"
        "  const void* fused_input_data;\n  void* buffer_data;\n  size_t buffer_len;\n\n"
        "  // Copy (and possibly scale) tensors into the fusion buffer.\n",
    ),
    # On a GPU gradients are summed in place, where nobody else reads them.
    (
        "horovod/tensorflow/mpi_ops.cc",
        "      auto tensor = context->input(i);\n"
        "      OP_REQUIRES_OK_ASYNC(\n"
        "          context, context->allocate_output(i, tensor.shape(), &outputs[i]),\n"
        "          done);\n",
        "      auto shape = context->input(i).shape();\n"
        "      OP_REQUIRES_OK_ASYNC(\n"
        "          context, device == CPU_DEVICE_ID\n"
        "              ? context->allocate_output(i, shape, &outputs[i])\n"
        "              : context->forward_input_or_allocate_output({i}, i, shape, &outputs[i]),\n"
        "          done);\n",
    ),
    (
        "horovod/common/ops/nccl_operations.cc",
        "  WaitForData(entries);\n\n  // On root rank, ncclbcast sends data, on other ranks it receives data.\n",
        "  auto in_stream = static_cast<gpuStream_t>(e.context->InStream());\n"
        "  if (in_stream != nullptr) {\n"
        "    gpu_op_context_.stream = &in_stream;\n"
        "  }\n"
        "\n  WaitForData(entries);\n\n  // On root rank, ncclbcast sends data, on other ranks it receives data.\n",
    ),
    # bfloat16 as a type of its own, which NCCL sums. All else (MPI, Gloo, Adasum, scaling) ends in an error where it
    # looks the type up. The all-reduces take it only in a build in which NCCL runs them on GPUs, and so tell that they
    # can (`sums_bfloat16` in ringscope/ring/gradients/types.py).
    (
        "horovod/common/message.h",
        "  HOROVOD_BOOL = 9,\n",
        "  HOROVOD_BOOL = 9,\n  HOROVOD_BFLOAT16 = 10,\n",
    ),
    (
        "horovod/common/message.cc",
        "      return float16;\n",
        "      return float16;\n"
        "    case HOROVOD_BFLOAT16:\n"
        '      static const std::string bfloat16("bfloat16");\n'
        "      return bfloat16;\n",
    ),
    (
        "horovod/common/message.cc",
        "    case HOROVOD_FLOAT16:\n      return 2;\n",
        "    case HOROVOD_FLOAT16:\n    case HOROVOD_BFLOAT16:\n      return 2;\n",
    ),
    # MPI has no name for it; how many bytes it has is asked outside of what turns exceptions into errors.
    (
        "horovod/common/mpi/mpi_controller.cc",
        "  return mpi_ctx_.GetMPITypeSize(dtype);\n",
        "  return (int)DataType_Size(dtype);\n",
    ),
    (
        "horovod/common/ops/nccl_operations.cc",
        "  case HOROVOD_FLOAT32:\n    return ncclFloat32;\n",
        "#ifdef NCCL_AVG_SUPPORTED\n"
        "  case HOROVOD_BFLOAT16:\n    return ncclBfloat16;\n"
        "#endif\n"
        "  case HOROVOD_FLOAT32:\n    return ncclFloat32;\n",
    ),
    # These sum a part by MPI, or scale what they have summed: bfloat16 goes past them to NCCL's own all-reduce.
    (
        "horovod/common/ops/nccl_operations.cc",
        "  return param_manager.HierarchicalAllreduce();\n",
        "  return param_manager.HierarchicalAllreduce() && entries[0].tensor->dtype() != HOROVOD_BFLOAT16;\n",
    ),
    (
        "horovod/common/ops/nccl_operations.cc",
        "  return param_manager.TorusAllreduce();\n",
        "  return param_manager.TorusAllreduce() && entries[0].tensor->dtype() != HOROVOD_BFLOAT16;\n",
    ),
    (
        "horovod/tensorflow/mpi_ops.cc",
        "    return DT_HALF;\n",
        "    return DT_HALF;\n  case common::HOROVOD_BFLOAT16:\n    return DT_BFLOAT16;\n",
    ),
    (
        "horovod/tensorflow/mpi_ops.cc",
        "    return common::HOROVOD_FLOAT16;\n",
        "    return common::HOROVOD_FLOAT16;\n  case DT_BFLOAT16:\n    return common::HOROVOD_BFLOAT16;\n",
    ),
    (
        "horovod/tensorflow/mpi_ops.cc",
        "class HorovodAllreduceOp : public AsyncOpKernel {\n",
        "#if HAVE_NCCL && HOROVOD_GPU_ALLREDUCE == 'N'\n"
        '#define BFLOAT16_ON_GPUS ", bfloat16"\n'
        "#else\n"
        '#define BFLOAT16_ON_GPUS ""\n'
        "#endif\n\n"
        "class HorovodAllreduceOp : public AsyncOpKernel {\n",
    ),
    *(
        (
            "horovod/tensorflow/mpi_ops.cc",
            f'REGISTER_OP("{operation}")\n    .Attr("T: {{uint8, int8, int32, int64, float16, float32, float64}}")\n',
            f'REGISTER_OP("{operation}")\n'
            '    .Attr("T: {uint8, int8, int32, int64, float16, float32, float64" BFLOAT16_ON_GPUS "}")\n',
        )
        for operation in ("HorovodAllreduce", "HorovodGroupedAllreduce")
    ),
    # The thread that exchanges sleeps up to a cycle (1 ms) after a group of gradients was given to it: woken at once, a
    # small model's step is shorter by half of that. Not for single tensors, which a cycle collects into one message.
    # A rank asks again at once for a tensor that another rank has not given yet, and waits for that rank without a
    # cycle in between.
    (
        "horovod/common/global_state.h",
        "  // Time point when last cycle started.\n",
        "  // A group of tensors was enqueued since the last cycle.\n"
        "  std::mutex wake_mutex;\n"
        "  std::condition_variable wake;\n"
        "  bool woken = false;\n\n"
        "  // Time point when last cycle started.\n",
    ),
    (
        "horovod/common/global_state.h",
        "#include <thread>\n",
        "#include <condition_variable>\n#include <mutex>\n#include <thread>\n",
    ),
    (
        "horovod/common/operations.cc",
        "  auto sleep_duration = state.last_cycle_start +\n"
        "                        std::chrono::microseconds(long(\n"
        "                            state.parameter_manager.CycleTimeMs() * 1000.)) -\n"
        "                        start_time;\n"
        "  if (sleep_duration > std::chrono::steady_clock::duration::zero()) {\n"
        "    std::this_thread::sleep_for(sleep_duration);\n"
        "  }\n",
        "  auto cycle = std::chrono::microseconds(\n"
        "      long(state.parameter_manager.CycleTimeMs() * 1000.));\n"
        "  if (state.process_set_table.Get(0).tensor_queue.IsWaiting()) {\n"
        "    cycle = std::chrono::microseconds::zero();\n"
        "  }\n"
        "  {\n"
        "    std::unique_lock<std::mutex> lock(state.wake_mutex);\n"
        "    state.wake.wait_for(lock, state.last_cycle_start + cycle - start_time,\n"
        "                        [&state] { return state.woken; });\n"
        "    state.woken = false;\n"
        "  }\n",
    ),
    (
        "horovod/common/tensor_queue.h",
        "  void PopMessagesFromQueue(",
        "  // Whether tensors of a cycle before wait for other ranks.\n"
        "  bool IsWaiting() const;\n\n"
        "  void PopMessagesFromQueue(",
    ),
    (
        "horovod/common/tensor_queue.cc",
        "// Execute callback for each tensor and clear tensor queue\n",
        "bool TensorQueue::IsWaiting() const {\n"
        "  std::lock_guard<std::mutex> guard(mutex_);\n"
        "  return !message_queue_.empty();\n"
        "}\n\n"
        "// Execute callback for each tensor and clear tensor queue\n",
    ),
    (
        "horovod/common/operations.cc",
        "  // Only create groups larger than 1 tensor, unless disable_group_fusion is\n",
        '  bool wakes = tensors.size() > 1 || names[0].find("in_stream") != std::string::npos;\n\n'
        "  // Only create groups larger than 1 tensor, unless disable_group_fusion is\n",
    ),
    (
        "horovod/common/operations.cc",
        "      message.set_group_id(group_id);\n    }\n  }\n\n"
        "  status = process_set.tensor_queue.AddToTensorQueueMulti(entries, messages);\n\n"
        "  return status;\n}\n\n"
        "// Contexts and controller must be initialized and the background thread\n"
        "// must be running before this function is called.\n"
        "Status EnqueueTensorAllgather(",
        "      message.set_group_id(group_id);\n    }\n  }\n\n"
        "  status = process_set.tensor_queue.AddToTensorQueueMulti(entries, messages);\n"
        "  if (wakes && status.ok()) {\n"
        "    std::lock_guard<std::mutex> lock(horovod_global.wake_mutex);\n"
        "    horovod_global.woken = true;\n"
        "    horovod_global.wake.notify_one();\n"
        "  }\n\n"
        "  return status;\n}\n\n"
        "// Contexts and controller must be initialized and the background thread\n"
        "// must be running before this function is called.\n"
        "Status EnqueueTensorAllgather(",
    ),
    # Horovod's XLA operations include headers that TensorFlow no longer ships: others in their place.
    (
        "horovod/tensorflow/xla_mpi_ops.cc",
        "#if TENSORFLOW_VERSION >= 2006000000",
        IN_XLA + "\n#if 0 && TENSORFLOW_VERSION >= 2006000000",
    ),
    # Open MPI 5 takes long options with two dashes only.
    (
        "horovod/runner/mpi_run.py",
        "['-bind-to none', '-map-by slot']",
        "['--bind-to none', '--map-by slot']",
    ),
    # The process that horovodrun starts on each host to find the way between hosts waits for ever: cut off from
    # a launcher that has died it would stay. Nothing there is to last longer than the launcher waits for it.
    (
        "horovod/runner/task_fn.py",
        "    _task_fn(index, num_hosts, driver_addresses, settings)\n",
        "    import signal\n"
        "    signal.alarm(max(1, int(settings.start_timeout._timeout)))\n"
        "    _task_fn(index, num_hosts, driver_addresses, settings)\n",
    ),
)
# Compilers from g++ 13 on no longer pull these in by way of others.
HEADERS = ("string", "cstdint", "stdexcept", "memory", "functional", "algorithm", "mutex", "cstring")
