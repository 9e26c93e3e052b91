// cuDNN's interface: a convolution takes its direct operations at the planted share of its
// precision's rate. Of the algorithms that the heuristics name, the first needs more workspace than
// anybody has, the second is not supported, the third is the one, the fourth is half as fast, and
// the last, which is `conv_quick` times as fast on some shapes, is not named by them.
#include <algorithm>
#include <vector>

#include <cudnn.h>

#include "tests/gpu/fake/libraries.h"

namespace fake = ddpsim::fake;
using fake::plain;

namespace {

constexpr double kCallUs = 1;
constexpr std::size_t kHuge = std::size_t{1} << 40;

struct Tensor {
  cudnnDataType_t type;
  int n, c, h, w;
  std::int64_t elements() const { return static_cast<std::int64_t>(n) * c * h * w; }
};
struct Convolution {
  int pad, stride;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};
struct Handle {
  cudaStream_t stream = nullptr;
};

std::int64_t element(cudnnDataType_t t) {
  return t == CUDNN_DATA_FLOAT ? 4 : 2;
}
std::int64_t bytes(const Tensor& t) {
  return t.elements() * element(t.type);
}

bool fits(const Tensor& x, const Tensor& w, const Tensor& y, const Convolution& c) {
  return x.type == w.type && w.type == y.type && x.c == w.c && y.c == w.n && x.n == y.n &&
         (x.h + 2 * c.pad - w.h) / c.stride + 1 == y.h;
}

int chosen() {
  return static_cast<int>(fake::planted().conv_algorithm);
}
int quick() {
  return static_cast<int>(fake::planted().conv_quick_algorithm);
}
std::size_t needs(int algorithm) {
  if (algorithm == 0) return kHuge;
  if (algorithm == chosen()) return static_cast<std::size_t>(fake::planted().conv_workspace_bytes);
  if (algorithm == quick())
    return static_cast<std::size_t>(fake::planted().conv_quick_workspace_bytes);
  return 0;
}

double rate(const Tensor& x, const Convolution& c) {
  const fake::Planted& p = fake::planted();
  if (x.type == CUDNN_DATA_BFLOAT16) return p.bf16 * p.conv;
  if (x.type == CUDNN_DATA_HALF) return p.fp16 * p.conv;
  return (c.math == CUDNN_FMA_MATH ? p.fp32 : p.tf32) * p.conv;
}

// `algorithm`: its place in the list above, or the planted number.
double took_us(const Tensor& x, const Tensor& w, const Tensor& y, const Convolution& c,
               int algorithm) {
  bool suits = w.h == 3 && w.w == 3 && c.stride == 1;
  double share = algorithm == chosen()           ? 1
                 : algorithm == quick() && suits ? fake::planted().conv_quick
                                                 : 0.5;
  double flops = 2.0 * static_cast<double>(y.elements()) * w.c * w.h * w.w;
  return fake::product_us(flops, rate(x, c) * share,
                          static_cast<double>(bytes(x) + bytes(w) + bytes(y)));
}

cudnnStatus_t run(const char* name, cudnnHandle_t handle, const Tensor& x, const void* at_x,
                  const Tensor& w, const void* at_w, const Tensor& y, const void* at_y,
                  const Convolution& c, int algorithm, const void* workspace,
                  std::size_t workspace_bytes) {
  if (fake::called(name, fake::planted().launch_us + kCallUs)) return CUDNN_STATUS_EXECUTION_FAILED;
  if (!fits(x, w, y, c)) return CUDNN_STATUS_BAD_PARAM;
  if (algorithm == 1) return CUDNN_STATUS_NOT_SUPPORTED;
  if (workspace_bytes < needs(algorithm)) return CUDNN_STATUS_BAD_PARAM;
  bool ran = fake::product(plain<Handle>(handle).stream, took_us(x, w, y, c, algorithm),
                           {{at_x, bytes(x)}, {at_w, bytes(w)}, {at_y, bytes(y)}},
                           {workspace, static_cast<std::int64_t>(workspace_bytes)});
  return ran ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

template <class Result, class Algorithm>
cudnnStatus_t choose(const Tensor& x, const Tensor& w, const Tensor& y, const Convolution& c,
                     int wanted, int* count, Result* results) {
  if (fake::called("cudnnGetConvolutionAlgorithm_v7", 100)) return CUDNN_STATUS_NOT_SUPPORTED;
  if (!fits(x, w, y, c)) return CUDNN_STATUS_BAD_PARAM;
  *count = wanted < 4 ? wanted : 4;
  for (int i = 0; i < *count; ++i) {
    results[i] = {};
    results[i].algo = static_cast<Algorithm>(i == 2 ? chosen() : i);
    results[i].status = i == 1 ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
    results[i].memory = needs(results[i].algo);
    results[i].mathType = c.math == CUDNN_FMA_MATH ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t asked(int algorithm, std::size_t* workspace_bytes) {
  if (algorithm == 1) return CUDNN_STATUS_NOT_SUPPORTED;
  *workspace_bytes = needs(algorithm);
  return CUDNN_STATUS_SUCCESS;
}

// Runs what can run in this workspace. What cannot comes first in the answer, then the fastest.
template <class Result, class Algorithm>
cudnnStatus_t find(cudnnHandle_t handle, const Tensor& x, const void* at_x, const Tensor& w,
                   const void* at_w, const Tensor& y, const void* at_y, const Convolution& c,
                   int algorithms, int wanted, int* count, Result* results, const void* workspace,
                   std::size_t workspace_bytes) {
  std::vector<std::pair<double, int>> ran;
  *count = 0;
  for (int a = 0; a < algorithms; ++a) {
    if (a == 1 || needs(a) > workspace_bytes) {
      if (*count == wanted) continue;
      results[*count] = {};
      results[*count].algo = static_cast<Algorithm>(a);
      results[*count].status = a == 1 ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_INTERNAL_ERROR;
      results[(*count)++].time = -1;
      continue;
    }
    cudnnStatus_t status = run("cudnnFindConvolutionAlgorithmEx", handle, x, at_x, w, at_w, y, at_y,
                               c, a, workspace, workspace_bytes);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    ran.emplace_back(took_us(x, w, y, c, a), a == chosen() ? -1 : a);  // of two as fast its own
  }
  cudaStreamSynchronize(plain<Handle>(handle).stream);
  std::sort(ran.begin(), ran.end());
  for (auto [us, a] : ran) {
    if (*count == wanted) break;
    Result& r = results[(*count)++];
    r = {};
    r.algo = static_cast<Algorithm>(a < 0 ? chosen() : a);
    r.status = CUDNN_STATUS_SUCCESS;
    r.time = static_cast<float>(us / 1e3);
    r.memory = needs(r.algo);
    r.mathType = c.math == CUDNN_FMA_MATH ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH;
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

size_t cudnnGetVersion() {
  return CUDNN_VERSION;
}
const char* cudnnGetErrorString(cudnnStatus_t code) {
  switch (code) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    default:
      return "CUDNN_STATUS_EXECUTION_FAILED";
  }
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (fake::called("cudnnCreate", 1000)) return CUDNN_STATUS_NOT_INITIALIZED;
  fake::make(handle, Handle{});
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t s) {
  plain<Handle>(handle).stream = s;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* t) {
  fake::make(t, Tensor{});
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t t, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  if (format != CUDNN_TENSOR_NCHW) return CUDNN_STATUS_NOT_SUPPORTED;
  plain<Tensor>(t) = {type, n, c, h, w};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t t) {
  fake::drop<Tensor>(t);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* t) {
  fake::make(t, Tensor{});
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t t, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  if (format != CUDNN_TENSOR_NCHW) return CUDNN_STATUS_NOT_SUPPORTED;
  plain<Tensor>(t) = {type, k, c, h, w};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t t) {
  fake::drop<Tensor>(t);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* c) {
  fake::make(c, Convolution{});
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t c, int pad_h, int pad_w,
                                              int u, int v, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t, cudnnDataType_t) {
  if (pad_h != pad_w || u != v || dilation_h != 1 || dilation_w != 1)
    return CUDNN_STATUS_NOT_SUPPORTED;
  plain<Convolution>(c) = {pad_h, u};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t c, cudnnMathType_t math) {
  plain<Convolution>(c).math = math;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t c) {
  fake::drop<Convolution>(c);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t w,
                                                     const cudnnConvolutionDescriptor_t c,
                                                     const cudnnTensorDescriptor_t y,
                                                     const int wanted, int* count,
                                                     cudnnConvolutionFwdAlgoPerf_t* results) {
  return choose<cudnnConvolutionFwdAlgoPerf_t, cudnnConvolutionFwdAlgo_t>(
      plain<Tensor>(x), plain<Tensor>(w), plain<Tensor>(y), plain<Convolution>(c), wanted, count,
      results);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t c, const cudnnTensorDescriptor_t dx, const int wanted,
    int* count, cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return choose<cudnnConvolutionBwdDataAlgoPerf_t, cudnnConvolutionBwdDataAlgo_t>(
      plain<Tensor>(dx), plain<Tensor>(w), plain<Tensor>(dy), plain<Convolution>(c), wanted, count,
      results);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t c, const cudnnFilterDescriptor_t dw, const int wanted,
    int* count, cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  return choose<cudnnConvolutionBwdFilterAlgoPerf_t, cudnnConvolutionBwdFilterAlgo_t>(
      plain<Tensor>(x), plain<Tensor>(dw), plain<Tensor>(dy), plain<Convolution>(c), wanted, count,
      results);
}
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, const cudnnTensorDescriptor_t,
                                                      const cudnnFilterDescriptor_t,
                                                      const cudnnConvolutionDescriptor_t,
                                                      const cudnnTensorDescriptor_t,
                                                      cudnnConvolutionFwdAlgo_t algorithm,
                                                      size_t* bytes) {
  return asked(algorithm, bytes);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t, const cudnnFilterDescriptor_t, const cudnnTensorDescriptor_t,
    const cudnnConvolutionDescriptor_t, const cudnnTensorDescriptor_t,
    cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
  return asked(algorithm, bytes);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t, const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t,
    const cudnnConvolutionDescriptor_t, const cudnnFilterDescriptor_t,
    cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
  return asked(algorithm, bytes);
}
cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const void* at_x,
    const cudnnFilterDescriptor_t w, const void* at_w, const cudnnConvolutionDescriptor_t c,
    const cudnnTensorDescriptor_t y, void* at_y, const int wanted, int* count,
    cudnnConvolutionFwdAlgoPerf_t* results, void* workspace, size_t workspace_bytes) {
  return find<cudnnConvolutionFwdAlgoPerf_t, cudnnConvolutionFwdAlgo_t>(
      handle, plain<Tensor>(x), at_x, plain<Tensor>(w), at_w, plain<Tensor>(y), at_y,
      plain<Convolution>(c), CUDNN_CONVOLUTION_FWD_ALGO_COUNT, wanted, count, results, workspace,
      workspace_bytes);
}
cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const void* at_w,
    const cudnnTensorDescriptor_t dy, const void* at_dy, const cudnnConvolutionDescriptor_t c,
    const cudnnTensorDescriptor_t dx, void* at_dx, const int wanted, int* count,
    cudnnConvolutionBwdDataAlgoPerf_t* results, void* workspace, size_t workspace_bytes) {
  return find<cudnnConvolutionBwdDataAlgoPerf_t, cudnnConvolutionBwdDataAlgo_t>(
      handle, plain<Tensor>(dx), at_dx, plain<Tensor>(w), at_w, plain<Tensor>(dy), at_dy,
      plain<Convolution>(c), CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT, wanted, count, results,
      workspace, workspace_bytes);
}
cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const void* at_x,
    const cudnnTensorDescriptor_t dy, const void* at_dy, const cudnnConvolutionDescriptor_t c,
    const cudnnFilterDescriptor_t dw, void* at_dw, const int wanted, int* count,
    cudnnConvolutionBwdFilterAlgoPerf_t* results, void* workspace, size_t workspace_bytes) {
  return find<cudnnConvolutionBwdFilterAlgoPerf_t, cudnnConvolutionBwdFilterAlgo_t>(
      handle, plain<Tensor>(x), at_x, plain<Tensor>(dw), at_dw, plain<Tensor>(dy), at_dy,
      plain<Convolution>(c), CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT, wanted, count, results,
      workspace, workspace_bytes);
}
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void*,
                                      const cudnnTensorDescriptor_t x, const void* at_x,
                                      const cudnnFilterDescriptor_t w, const void* at_w,
                                      const cudnnConvolutionDescriptor_t c,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace,
                                      size_t workspace_bytes, const void*,
                                      const cudnnTensorDescriptor_t y, void* at_y) {
  return run("cudnnConvolutionForward", handle, plain<Tensor>(x), at_x, plain<Tensor>(w), at_w,
             plain<Tensor>(y), at_y, plain<Convolution>(c), algorithm, workspace, workspace_bytes);
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void*,
                                           const cudnnFilterDescriptor_t w, const void* at_w,
                                           const cudnnTensorDescriptor_t dy, const void* at_dy,
                                           const cudnnConvolutionDescriptor_t c,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           size_t workspace_bytes, const void*,
                                           const cudnnTensorDescriptor_t dx, void* at_dx) {
  return run("cudnnConvolutionBackwardData", handle, plain<Tensor>(dx), at_dx, plain<Tensor>(w),
             at_w, plain<Tensor>(dy), at_dy, plain<Convolution>(c), algorithm, workspace,
             workspace_bytes);
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void*,
                                             const cudnnTensorDescriptor_t x, const void* at_x,
                                             const cudnnTensorDescriptor_t dy, const void* at_dy,
                                             const cudnnConvolutionDescriptor_t c,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm,
                                             void* workspace, size_t workspace_bytes, const void*,
                                             const cudnnFilterDescriptor_t dw, void* at_dw) {
  return run("cudnnConvolutionBackwardFilter", handle, plain<Tensor>(x), at_x, plain<Tensor>(dw),
             at_dw, plain<Tensor>(dy), at_dy, plain<Convolution>(c), algorithm, workspace,
             workspace_bytes);
}

}  // extern "C"
