// Attention with dropout as one fused kernel of cuDNN inside a program of XLA (ringscope/ring/forms/attention_dropout.py
// writes the calls). XLA's own call of that kernel takes the seed as a constant of the program; here it lies in the
// GPU's memory, so that each step, layer and rank draws its own mask, and the way back draws the same one again.
//
// `ring_attention`: query, key, value[, bias], seed, offset -> out, statistics, workspace.
// `ring_attention_back`: query, key, value, out, upstream, statistics[, bias], seed, offset -> their gradients, workspace.
// Tensors are (batch, length, heads, size) in memory; statistics (batch, heads, queries) are the scores' logsumexp;
// bias (batch or 1, heads or 1, queries, keys) is added to the scores. seed, offset: an int64 each.
//
// cuDNN's graph is built once for each call's shapes. The host asks `ring_attention_workspace` for the bytes that it
// needs while the step is traced, which also tells whether this cuDNN and GPU have the kernel.

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace {

namespace fe = cudnn_frontend;
namespace ffi = ::xla::ffi;

enum Uid : int64_t { kQuery = 1, kKey, kValue, kBias, kSeed, kOffset, kOut, kStatistics, kUpstream, kDq, kDk, kDv };

// Everything that a graph of cuDNN depends on.
struct Shape {
  int64_t batch, queries, keys, heads, shared, size;
  int64_t bias_batch, bias_heads;  // 0: no bias
  int64_t is_half;                 // float16; else bfloat16
  int64_t is_causal, is_back;
  float scale, dropout;
  auto operator<=>(const Shape&) const = default;
};

struct Plan {
  std::shared_ptr<fe::graph::Graph> graph;
  int64_t workspace_bytes = -1;
  std::string problem;
};

std::shared_ptr<fe::graph::Tensor_attributes> Heads(fe::graph::Graph& graph, Uid uid, int64_t batch, int64_t length,
                                                    int64_t heads, int64_t size) {
  return graph.tensor(fe::graph::Tensor_attributes().set_uid(uid).set_dim({batch, heads, length, size}).set_stride(
      {length * heads * size, size, heads * size, 1}));
}

std::shared_ptr<fe::graph::Tensor_attributes> Number(fe::graph::Graph& graph, Uid uid) {
  return graph.tensor(fe::graph::Tensor_attributes().set_uid(uid).set_dim({1, 1, 1, 1}).set_stride({1, 1, 1, 1})
                          .set_data_type(fe::DataType_t::INT64));
}

std::shared_ptr<fe::graph::Tensor_attributes> Statistics(fe::graph::Graph& graph, const Shape& s) {
  return graph.tensor(fe::graph::Tensor_attributes().set_uid(kStatistics).set_dim({s.batch, s.heads, s.queries, 1})
                          .set_stride({s.heads * s.queries, s.queries, 1, 1}).set_data_type(fe::DataType_t::FLOAT));
}

void Returned(std::shared_ptr<fe::graph::Tensor_attributes>& tensor, Uid uid, int64_t batch, int64_t length,
              int64_t heads, int64_t size) {
  tensor->set_output(true).set_uid(uid).set_dim({batch, heads, length, size}).set_stride(
      {length * heads * size, size, heads * size, 1});
}

template <typename Options> Options OptionsOf(fe::graph::Graph& graph, const Shape& s) {
  Options options;
  options.set_name("ring_attention").set_attn_scale(s.scale).set_causal_mask(s.is_causal != 0);
  if (s.bias_batch > 0) {
    auto plane = s.queries * s.keys;
    options.set_bias(graph.tensor(fe::graph::Tensor_attributes().set_uid(kBias)
                                      .set_dim({s.bias_batch, s.bias_heads, s.queries, s.keys})
                                      .set_stride({s.bias_heads * plane, plane, s.keys, 1})));
  }
  options.set_dropout(s.dropout, Number(graph, kSeed), Number(graph, kOffset));
  return options;
}

Plan Built(const Shape& s, cudnnHandle_t handle) {
  Plan plan;
  plan.graph = std::make_shared<fe::graph::Graph>();
  auto& graph = *plan.graph;
  graph.set_io_data_type(s.is_half ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT).set_compute_data_type(fe::DataType_t::FLOAT);
  auto query = Heads(graph, kQuery, s.batch, s.queries, s.heads, s.size);
  auto key = Heads(graph, kKey, s.batch, s.keys, s.shared, s.size);
  auto value = Heads(graph, kValue, s.batch, s.keys, s.shared, s.size);
  if (s.is_back) {
    auto out = Heads(graph, kOut, s.batch, s.queries, s.heads, s.size);
    auto upstream = Heads(graph, kUpstream, s.batch, s.queries, s.heads, s.size);
    auto options = OptionsOf<fe::graph::SDPA_backward_attributes>(graph, s);
    auto [dq, dk, dv] = graph.sdpa_backward(query, key, value, out, upstream, Statistics(graph, s), options);
    Returned(dq, kDq, s.batch, s.queries, s.heads, s.size);
    Returned(dk, kDk, s.batch, s.keys, s.shared, s.size);
    Returned(dv, kDv, s.batch, s.keys, s.shared, s.size);
  } else {
    auto options = OptionsOf<fe::graph::SDPA_attributes>(graph, s);
    options.set_generate_stats(true);
    auto [out, statistics] = graph.sdpa(query, key, value, options);
    Returned(out, kOut, s.batch, s.queries, s.heads, s.size);
    statistics->set_output(true).set_uid(kStatistics).set_data_type(fe::DataType_t::FLOAT)
        .set_dim({s.batch, s.heads, s.queries, 1}).set_stride({s.heads * s.queries, s.queries, 1, 1});
  }
  auto built = graph.build(handle, {fe::HeurMode_t::A});
  if (built.is_good()) {
    built = graph.get_workspace_size(plan.workspace_bytes);
  }
  if (built.is_bad()) {
    plan.workspace_bytes = -1;
    plan.problem = built.get_message();
  }
  return plan;
}

// A process trains on one GPU, and its programs run one at a time: one handle, whose stream is set before each call.
struct CuDNN {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  std::map<Shape, Plan> plans;
};

CuDNN& Cudnn() {
  static CuDNN* one = new CuDNN;  // never ended: at exit the driver may be gone before it
  return *one;
}

// With the mutex held. None: no cuDNN here.
Plan* PlanFor(CuDNN& cudnn, const Shape& shape) {
  if (cudnn.handle == nullptr) {
    fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
    if (fe::cudnn_dlhandle == nullptr || fe::detail::create_handle(&cudnn.handle) != CUDNN_STATUS_SUCCESS) {
      cudnn.handle = nullptr;
      return nullptr;
    }
  }
  auto found = cudnn.plans.find(shape);
  if (found == cudnn.plans.end()) {
    found = cudnn.plans.emplace(shape, Built(shape, cudnn.handle)).first;
  }
  return &found->second;
}

ffi::Error Run(cudaStream_t stream, ffi::RemainingArgs arguments, ffi::RemainingRets results, bool is_back, float scale,
               float dropout, int64_t is_causal) {
  std::vector<ffi::AnyBuffer> given, made;
  for (size_t i = 0; i < arguments.size(); ++i) {
    given.push_back(*arguments.get<ffi::AnyBuffer>(i));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    made.push_back(**results.get<ffi::AnyBuffer>(i));
  }
  const size_t fixed = is_back ? 6 : 3;
  const bool has_bias = given.size() == fixed + 3;
  auto query = given[0].dimensions(), key = given[1].dimensions();
  Shape shape{query[0], query[1], key[1], query[2], key[2], query[3], 0, 0,
              given[0].element_type() == ffi::DataType::F16, is_causal, is_back, scale, dropout};
  std::unordered_map<int64_t, void*> where{
      {kQuery, given[0].untyped_data()}, {kKey, given[1].untyped_data()}, {kValue, given[2].untyped_data()}};
  if (has_bias) {
    auto bias = given[fixed].dimensions();
    shape.bias_batch = bias[0];
    shape.bias_heads = bias[1];
    where[kBias] = given[fixed].untyped_data();
  }
  where[kSeed] = given[given.size() - 2].untyped_data();
  where[kOffset] = given[given.size() - 1].untyped_data();
  if (is_back) {
    where[kOut] = given[3].untyped_data();
    where[kUpstream] = given[4].untyped_data();
    where[kStatistics] = given[5].untyped_data();
    where[kDq] = made[0].untyped_data();
    where[kDk] = made[1].untyped_data();
    where[kDv] = made[2].untyped_data();
  } else {
    where[kOut] = made[0].untyped_data();
    where[kStatistics] = made[1].untyped_data();
  }
  CuDNN& cudnn = Cudnn();
  std::lock_guard<std::mutex> lock(cudnn.mutex);
  Plan* plan = PlanFor(cudnn, shape);
  if (plan == nullptr || plan->workspace_bytes < 0) {
    return ffi::Error(ffi::ErrorCode::kInternal, "ring_attention: " + (plan ? plan->problem : "no cuDNN 9 is found"));
  }
  if (fe::detail::set_stream(cudnn.handle, stream) != CUDNN_STATUS_SUCCESS) {
    return ffi::Error(ffi::ErrorCode::kInternal, "ring_attention: cuDNN does not take the program's stream");
  }
  auto ran = plan->graph->execute(cudnn.handle, where, made.back().untyped_data());
  return ran.is_good() ? ffi::Error::Success() : ffi::Error(ffi::ErrorCode::kInternal, ran.get_message());
}

ffi::Error Forward(cudaStream_t stream, ffi::RemainingArgs arguments, ffi::RemainingRets results, float scale,
                   float dropout, int64_t is_causal) {
  return Run(stream, arguments, results, false, scale, dropout, is_causal);
}

ffi::Error Backward(cudaStream_t stream, ffi::RemainingArgs arguments, ffi::RemainingRets results, float scale,
                    float dropout, int64_t is_causal) {
  return Run(stream, arguments, results, true, scale, dropout, is_causal);
}

auto Binding() {
  return ffi::Ffi::Bind().Ctx<ffi::PlatformStream<cudaStream_t>>().RemainingArgs().RemainingRets()
      .Attr<float>("scale").Attr<float>("dropout").Attr<int64_t>("is_causal");
}

// What they launch may be kept in a CUDA graph: the seed is read from memory each time.
XLA_FFI_DEFINE_HANDLER(kForward, Forward, Binding(), {ffi::Traits::kCmdBufferCompatible});
XLA_FFI_DEFINE_HANDLER(kBackward, Backward, Binding(), {ffi::Traits::kCmdBufferCompatible});

bool Registers(const XLA_FFI_Api* api, const char* name, XLA_FFI_Handler* handler, XLA_FFI_Handler_Traits traits) {
  XLA_FFI_Error* error = ffi::Ffi::RegisterStaticHandler(api, name, "CUDA", handler, traits);
  if (error != nullptr) {
    ffi::internal::DestroyError(api, error);
  }
  return error == nullptr;
}

}  // namespace

// Make both calls known to XLA, of which `api` is the interface. Whether both are: 1 or 0.
extern "C" __attribute__((visibility("default"))) int ring_attention_register(const XLA_FFI_Api* api) {
  return Registers(api, "ring_attention", (XLA_FFI_Handler*)kForward, XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE) &&
                 Registers(api, "ring_attention_back", (XLA_FFI_Handler*)kBackward,
                           XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE)
             ? 1
             : 0;
}

// The bytes of workspace that cuDNN needs for these shapes; -1: it has no kernel for them here. numbers: the int64s of
// Shape in their order.
extern "C" __attribute__((visibility("default"))) int64_t ring_attention_workspace(const int64_t* numbers, float scale, float dropout) {
  Shape shape{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5],
              numbers[6], numbers[7], numbers[8], numbers[9], numbers[10], scale, dropout};
  CuDNN& cudnn = Cudnn();
  std::lock_guard<std::mutex> lock(cudnn.mutex);
  Plan* plan = PlanFor(cudnn, shape);
  return plan == nullptr ? -1 : plan->workspace_bytes;
}
