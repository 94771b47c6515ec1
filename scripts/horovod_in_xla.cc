// Horovod's all-reduce inside a program of XLA (ringscope/ring/gradients/overlap/xla_calls.py writes the calls). On a GPU nothing waits but
// its stream.
//
// `ring_sum` hands over gradients, of several types too, and waits until Horovod has them summed: on the program's own
// stream, between what computes them and what reads the sums. In one call: what the host launched between two would
// come before the sums on one rank and after them on another, as it happens, and each would wait for the other's.
//
// `ring_exchange` hands over gradients of one type while the program goes on, and `ring_exchanged` waits for all that
// was handed over. NCCL runs on a stream of its own then: once more streams than a handful have launched kernels, a GPU
// takes 0.3 us longer from each kernel to the next.
//
// Put in the place of Horovod's own XLA operations (xla_mpi_ops.cc), of which TensorFlow no longer ships the headers.
// What is called here is XLA's foreign function interface, a C interface that is kept stable.

#include <condition_variable>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#if HAVE_CUDA
#include <cuda_runtime.h>
#endif

#define OMPI_SKIP_MPICXX
#include "../common/common.h"
#include "../common/operations.h"
#include "xla/ffi/api/ffi.h"

namespace horovod {
namespace in_xla {
namespace {

namespace ffi = ::xla::ffi;

// What a program has handed over and not got back yet. Programs run one at a time, and each to its end.
struct Exchange {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t open = 0;
  common::Status failed;
};

Exchange& ExchangeOf(const std::string& program) {
  static std::mutex mutex;
  static std::map<std::string, Exchange> all;
  std::lock_guard<std::mutex> lock(mutex);
  return all[program];
}

// A gradient where it lies in XLA's memory.
class Lying : public common::Tensor {
public:
  Lying(common::DataType type, common::TensorShape shape, void* data)
      : type_(type), shape_(std::move(shape)), data_(data) {}
  const common::DataType dtype() const override { return type_; }
  const common::TensorShape shape() const override { return shape_; }
  const void* data() const override { return data_; }
  int64_t size() const override { return shape_.num_elements() * common::DataType_Size(type_); }

private:
  common::DataType type_;
  common::TensorShape shape_;
  void* data_;
};

// Horovod's buffer for several tensors, allocated when it is used first: NCCL sums them where they lie.
class Buffer : public common::PersistentBuffer {
public:
  Buffer(int device, int64_t size) : device_(device), size_(size) {}
  ~Buffer() override {
#if HAVE_CUDA
    if (device_ != CPU_DEVICE_ID) {
      cudaFree(data_);
      return;
    }
#endif
    std::free(data_);
  }
  const void* AccessData(std::shared_ptr<common::OpContext>) const override {
    if (data_ == nullptr) {
#if HAVE_CUDA
      if (device_ != CPU_DEVICE_ID) {
        if (cudaMalloc(&data_, size_) != cudaSuccess) {
          throw std::runtime_error("no GPU memory for Horovod's fusion buffer");
        }
        return data_;
      }
#endif
      data_ = std::malloc(size_);
    }
    return data_;
  }

private:
  int device_;
  int64_t size_;
  mutable void* data_ = nullptr;
};

class Context : public common::OpContext {
public:
  Context(int device, void* stream) : device_(device), stream_(stream) {}
  common::Status AllocatePersistent(int64_t size, std::shared_ptr<common::PersistentBuffer>* buffer) override {
    *buffer = std::make_shared<Buffer>(device_, size);
    return common::Status::OK();
  }
  common::Status AllocateOutput(common::TensorShape, std::shared_ptr<common::Tensor>*,
                                std::shared_ptr<common::ReadyEvent>*) override {
    return common::Status::PreconditionError("XLA allocates its buffers itself");
  }
  common::Status AllocateZeros(int64_t, common::DataType, std::shared_ptr<common::Tensor>*) override {
    return common::Status::PreconditionError("XLA allocates its buffers itself");
  }
  common::Framework framework() const override { return common::Framework::XLA; }
  void* InStream() const override { return stream_; }

private:
  int device_;
  void* stream_;
};

bool TypeOf(ffi::DataType type, common::DataType* found) {
  switch (type) {
  case ffi::DataType::F16: *found = common::HOROVOD_FLOAT16; return true;
  case ffi::DataType::BF16: *found = common::HOROVOD_BFLOAT16; return true;
  case ffi::DataType::F32: *found = common::HOROVOD_FLOAT32; return true;
  case ffi::DataType::F64: *found = common::HOROVOD_FLOAT64; return true;
  default: return false;
  }
}

// Those from `first` on, `count` of them, are summed. Results lie where the arguments lie. device, stream: where Horovod
// is to sum. ready: when the arguments are computed.
ffi::Error HandOver(int device, void* stream, const common::ReadyEventList& ready, ffi::RemainingArgs arguments,
                    ffi::RemainingRets results, const std::string& program, const std::string& name, int64_t op,
                    int64_t first, int64_t count) {
  std::vector<std::shared_ptr<common::OpContext>> contexts(count, std::make_shared<Context>(device, stream));
  std::vector<common::ReadyEventList> readies(count, ready);
  std::vector<std::shared_ptr<common::Tensor>> tensors, outputs;
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) {
    auto argument = arguments.get<ffi::AnyBuffer>(first + i);
    auto result = results.get<ffi::AnyBuffer>(first + i);
    common::DataType type;
    if (!argument.has_value() || !result.has_value() || !TypeOf(argument->element_type(), &type)) {
      return ffi::Error(ffi::ErrorCode::kInvalidArgument, "ranks sum gradients of a floating type alone");
    }
    common::TensorShape shape;
    for (auto dimension : argument->dimensions()) {
      shape.AddDim(dimension);
    }
    tensors.push_back(std::make_shared<Lying>(type, shape, argument->untyped_data()));
    outputs.push_back(std::make_shared<Lying>(type, shape, (*result)->untyped_data()));
    // As Horovod's operations name them: a rank whose step is not compiled exchanges by these.
    names.push_back(name + "_" + std::to_string(i + 1) + "of" + std::to_string(count));
  }
  Exchange& exchange = ExchangeOf(program);
  auto close = [&exchange, stream](const common::Status& status, int64_t closed) {
#if HAVE_CUDA
    // Where Horovod sums on a stream of its own after all, as its hierarchical all-reduce does, this one waits for it.
    if (stream != nullptr && status.event.event && status.event.stream != stream) {
      cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), *status.event.event, 0);
    }
#endif
    std::lock_guard<std::mutex> lock(exchange.mutex);
    exchange.open -= closed;
    if (!status.ok()) {
      exchange.failed = status;
    }
    if (exchange.open == 0) {
      exchange.changed.notify_all();
    }
  };
  {
    std::lock_guard<std::mutex> lock(exchange.mutex);
    exchange.open += count;
  }
  std::vector<common::StatusCallback> callbacks(count, [close](const common::Status& status) { close(status, 1); });
  auto enqueued = common::EnqueueTensorAllreduces(contexts, tensors, outputs, readies, names, device, callbacks,
                                                  static_cast<common::ReduceOp>(op));
  if (!enqueued.ok()) {  // told at the end: what was handed over before is to come back first
    close(enqueued, count);
  }
  return ffi::Error::Success();
}

ffi::Error WaitFor(const std::string& program) {
  Exchange& exchange = ExchangeOf(program);
  std::unique_lock<std::mutex> lock(exchange.mutex);
  exchange.changed.wait(lock, [&exchange] { return exchange.open == 0; });
  common::Status failed = exchange.failed;
  exchange.failed = common::Status::OK();
  if (failed.ok()) {
    return ffi::Error::Success();
  }
  switch (failed.type()) {  // as ConvertStatus in mpi_ops.cc
  case common::ABORTED: return ffi::Error(ffi::ErrorCode::kAborted, failed.reason());
  case common::INVALID_ARGUMENT: return ffi::Error(ffi::ErrorCode::kInvalidArgument, failed.reason());
  case common::PRECONDITION_ERROR: return ffi::Error(ffi::ErrorCode::kFailedPrecondition, failed.reason());
  default: return ffi::Error(ffi::ErrorCode::kUnknown, failed.reason());
  }
}

// Of the first `count` arguments; the others only come after them. Each type by the name that a rank without XLA gives it.
ffi::Error Sum(int device, void* stream, const common::ReadyEventList& ready, ffi::RemainingArgs arguments,
               ffi::RemainingRets results, const std::string& program, const std::string& name, int64_t op,
               int64_t count) {
  ffi::Error error = ffi::Error::Success();
  for (int64_t first = 0, next; first < count && error.success(); first = next) {
    auto type = [&arguments](int64_t i) { return arguments.get<ffi::AnyBuffer>(i)->element_type(); };
    for (next = first + 1; next < count && type(next) == type(first); ++next) {
    }
    common::DataType found = common::HOROVOD_FLOAT32;
    TypeOf(type(first), &found);
    auto named = name + "_" + common::DataType_Name(found);
    error = HandOver(device, stream, ready, arguments, results, program, named, op, first, next - first);
  }
  ffi::Error waited = WaitFor(program);
  return error.success() ? waited : error;
}

ffi::Error SumOnHost(ffi::RemainingArgs arguments, ffi::RemainingRets results, std::string_view program,
                     std::string_view name, int64_t op, int64_t count) {
  return Sum(CPU_DEVICE_ID, nullptr, {}, arguments, results, std::string(program), std::string(name), op, count);
}

ffi::Error OnHost(ffi::RemainingArgs arguments, ffi::RemainingRets results, std::string_view program,
                  std::string_view name, int64_t op, int64_t count) {
  return HandOver(CPU_DEVICE_ID, nullptr, {}, arguments, results, std::string(program), std::string(name), op, 0,
                  count);
}

ffi::Error DoneOnHost(ffi::RemainingArgs, ffi::RemainingRets, std::string_view program) {
  return WaitFor(std::string(program));
}

// What a call that hands over is bound to; on a GPU after its stream.
template <typename Binding> auto Exchanging(Binding binding) {
  return std::move(binding).RemainingArgs().RemainingRets().template Attr<std::string_view>("program")
      .template Attr<std::string_view>("name").template Attr<int64_t>("op").template Attr<int64_t>("count");
}

template <typename Binding> auto Waiting(Binding binding) {
  return std::move(binding).RemainingArgs().RemainingRets().template Attr<std::string_view>("program");
}

XLA_FFI_DEFINE_HANDLER(kSumOnHost, SumOnHost, Exchanging(ffi::Ffi::Bind()));
XLA_FFI_DEFINE_HANDLER(kOnHost, OnHost, Exchanging(ffi::Ffi::Bind()));
XLA_FFI_DEFINE_HANDLER(kDoneOnHost, DoneOnHost, Waiting(ffi::Ffi::Bind()));

#if HAVE_CUDA
// Reached when a stream has come so far.
class Reached : public common::ReadyEvent {
public:
  explicit Reached(cudaStream_t stream) {
    cudaEventCreateWithFlags(&event_, cudaEventDisableTiming);
    cudaEventRecord(event_, stream);
  }
  ~Reached() override { cudaEventDestroy(event_); }
  bool Ready() const override { return cudaEventQuery(event_) != cudaErrorNotReady; }
  gpuEvent_t event() const override { return event_; }

private:
  cudaEvent_t event_;
};

// Of the GPU that is current: where NCCL sums, before what waits to be computed. None where it cannot be made.
cudaStream_t SideStream(int device) {
  static std::mutex mutex;
  static std::map<int, cudaStream_t> all;
  std::lock_guard<std::mutex> lock(mutex);
  auto found = all.find(device);
  if (found == all.end()) {
    int least, greatest;
    cudaStream_t stream = nullptr;
    if (cudaDeviceGetStreamPriorityRange(&least, &greatest) != cudaSuccess ||
        cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest) != cudaSuccess) {
      return nullptr;
    }
    found = all.emplace(device, stream).first;
  }
  return found->second;
}

common::ReadyEventList Computed(cudaStream_t stream) {
  common::ReadyEventList ready;
  ready.AddReadyEvent(std::make_shared<Reached>(stream));
  return ready;
}

ffi::Error SumOnGpu(cudaStream_t stream, ffi::RemainingArgs arguments, ffi::RemainingRets results,
                    std::string_view program, std::string_view name, int64_t op, int64_t count) {
  int device;
  if (cudaGetDevice(&device) != cudaSuccess) {
    return ffi::Error(ffi::ErrorCode::kInternal, "ring_sum finds no GPU");
  }
  return Sum(device, stream, Computed(stream), arguments, results, std::string(program), std::string(name), op, count);
}

ffi::Error OnGpu(cudaStream_t stream, ffi::RemainingArgs arguments, ffi::RemainingRets results,
                 std::string_view program, std::string_view name, int64_t op, int64_t count) {
  int device;
  if (cudaGetDevice(&device) != cudaSuccess || SideStream(device) == nullptr) {
    return ffi::Error(ffi::ErrorCode::kInternal, "ring_exchange finds no GPU, or cannot make a stream on it");
  }
  return HandOver(device, SideStream(device), Computed(stream), arguments, results, std::string(program),
                  std::string(name), op, 0, count);
}

ffi::Error DoneOnGpu(cudaStream_t stream, ffi::RemainingArgs, ffi::RemainingRets, std::string_view program) {
  ffi::Error error = WaitFor(std::string(program));
  int device;
  if (error.success() && cudaGetDevice(&device) == cudaSuccess) {
    Reached summed(SideStream(device));
    cudaStreamWaitEvent(stream, summed.event(), 0);
  }
  return error;
}

XLA_FFI_DEFINE_HANDLER(kSumOnGpu, SumOnGpu, Exchanging(ffi::Ffi::Bind().Ctx<ffi::PlatformStream<cudaStream_t>>()));
XLA_FFI_DEFINE_HANDLER(kOnGpu, OnGpu, Exchanging(ffi::Ffi::Bind().Ctx<ffi::PlatformStream<cudaStream_t>>()));
XLA_FFI_DEFINE_HANDLER(kDoneOnGpu, DoneOnGpu, Waiting(ffi::Ffi::Bind().Ctx<ffi::PlatformStream<cudaStream_t>>()));
#endif

bool Registers(const XLA_FFI_Api* api, const char* name, const char* platform, XLA_FFI_Handler* handler) {
  XLA_FFI_Error* error = ffi::Ffi::RegisterStaticHandler(api, name, platform, handler);
  if (error != nullptr) {
    ffi::internal::DestroyError(api, error);
  }
  return error == nullptr;
}

} // namespace
} // namespace in_xla
} // namespace horovod

// Make all calls known to XLA, of which `api` is the interface. Whether all are: 1 or 0. Of another name than before
// there was `ring_sum`: a Horovod that was built then has none.
extern "C" int horovod_register_sums_in_xla(const XLA_FFI_Api* api) {
  using namespace horovod::in_xla;
  bool known = Registers(api, "ring_sum", "Host", (XLA_FFI_Handler*)kSumOnHost) &&
               Registers(api, "ring_exchange", "Host", (XLA_FFI_Handler*)kOnHost) &&
               Registers(api, "ring_exchanged", "Host", (XLA_FFI_Handler*)kDoneOnHost);
#if HAVE_CUDA
  known = known && Registers(api, "ring_sum", "CUDA", (XLA_FFI_Handler*)kSumOnGpu) &&
          Registers(api, "ring_exchange", "CUDA", (XLA_FFI_Handler*)kOnGpu) &&
          Registers(api, "ring_exchanged", "CUDA", (XLA_FFI_Handler*)kDoneOnGpu);
#endif
  return known ? 1 : 0;
}
