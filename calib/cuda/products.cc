#include "calib/cuda/products.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "calib/cuda/libraries.h"

namespace ddpsim::calib::cuda {
namespace {

std::int64_t padded(std::int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}
cudaDataType_t data_type(Precision p) {
  return p == Precision::Bf16 ? CUDA_R_16BF : p == Precision::Fp16 ? CUDA_R_16F : CUDA_R_32F;
}

cublasLtHandle_t blas_handle() {
  static cublasLtHandle_t handle = [] {
    cublasLtHandle_t h = nullptr;
    DDPSIM_CALL(cublaslt(), cublasLtCreate(&h));
    return h;
  }();
  return handle;
}

// Column-major C (n x m) = W^T (n x k, stored k x n) x (k x m): row-major y = x W^T.
class GemmProduct : public Product {
 public:
  GemmProduct(const Gemm& g, Precision p) : g_(g), p_(p) {
    const CublasLt& l = cublaslt();
    cublasComputeType_t compute =
        p == Precision::Tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    DDPSIM_CALL(l, cublasLtMatmulDescCreate(&operation_, compute, CUDA_R_32F));
    cublasOperation_t transposed = CUBLAS_OP_T;
    DDPSIM_CALL(l, cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA,
                                                  &transposed, sizeof transposed));
    cudaDataType_t type = data_type(p);
    auto rows = [](std::int64_t v) { return static_cast<std::uint64_t>(v); };
    DDPSIM_CALL(l, cublasLtMatrixLayoutCreate(&a_, type, rows(g.k), rows(g.n), g.k));
    DDPSIM_CALL(l, cublasLtMatrixLayoutCreate(&b_, type, rows(g.k), rows(g.m), g.k));
    DDPSIM_CALL(l, cublasLtMatrixLayoutCreate(&c_, type, rows(g.n), rows(g.m), g.n));
    cublasLtMatmulPreference_t preference = nullptr;
    DDPSIM_CALL(l, cublasLtMatmulPreferenceCreate(&preference));
    std::size_t workspace = kWorkspace;
    DDPSIM_CALL(
        l, cublasLtMatmulPreferenceSetAttribute(
               preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
    int found = 0;
    cublasStatus_t status = l.cublasLtMatmulAlgoGetHeuristic(
        blas_handle(), operation_, a_, b_, c_, c_, preference, 1, &algorithm_, &found);
    l.cublasLtMatmulPreferenceDestroy(preference);
    check(status, "cublasLtMatmulAlgoGetHeuristic");
    if (found == 0) throw std::runtime_error("cuBLASLt offers no algorithm for this shape");
  }
  ~GemmProduct() override {
    const CublasLt& l = cublaslt();
    for (cublasLtMatrixLayout_t layout : {a_, b_, c_})
      if (layout) l.cublasLtMatrixLayoutDestroy(layout);
    if (operation_) l.cublasLtMatmulDescDestroy(operation_);
  }
  void launch(void* operands, void* workspace, cudaStream_t s) const override {
    float one = 1;
    float zero = 0;
    auto* a = static_cast<char*>(operands);
    char* b = a + padded(g_.n * g_.k * element_bytes(p_));
    char* c = b + padded(g_.m * g_.k * element_bytes(p_));
    DDPSIM_CALL(cublaslt(), cublasLtMatmul(blas_handle(), operation_, &one, a, a_, b, b_, &zero, c,
                                           c_, c, c_, &algorithm_.algo, workspace, kWorkspace, s));
  }
  std::int64_t bytes() const override {
    return padded(g_.n * g_.k * element_bytes(p_)) + padded(g_.m * g_.k * element_bytes(p_)) +
           padded(g_.m * g_.n * element_bytes(p_));
  }
  std::int64_t workspace() const override { return kWorkspace; }

 private:
  Gemm g_;
  Precision p_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr;
  cublasLtMatrixLayout_t b_ = nullptr;
  cublasLtMatrixLayout_t c_ = nullptr;
  cublasLtMatmulHeuristicResult_t algorithm_{};
};

cudnnHandle_t dnn_handle() {
  static cudnnHandle_t handle = [] {
    cudnnHandle_t h = nullptr;
    DDPSIM_CALL(cudnn(), cudnnCreate(&h));
    return h;
  }();
  return handle;
}

// NCHW, as PyTorch's default.
class ConvProduct : public Product {
 public:
  // `trial`: nullptr = heuristics mode.
  ConvProduct(const Conv& c, Pass pass, Precision p, std::int64_t limit, const Trial* trial)
      : c_(c), pass_(pass), p_(p), limit_(static_cast<std::size_t>(limit)) {
    const Cudnn& l = cudnn();
    cudnnDataType_t type = p == Precision::Bf16   ? CUDNN_DATA_BFLOAT16
                           : p == Precision::Fp16 ? CUDNN_DATA_HALF
                                                  : CUDNN_DATA_FLOAT;
    auto n = [](std::int64_t v) { return static_cast<int>(v); };
    DDPSIM_CALL(l, cudnnCreateTensorDescriptor(&x_));
    DDPSIM_CALL(l, cudnnCreateTensorDescriptor(&y_));
    DDPSIM_CALL(l, cudnnCreateFilterDescriptor(&w_));
    DDPSIM_CALL(l, cudnnCreateConvolutionDescriptor(&conv_));
    DDPSIM_CALL(l, cudnnSetTensor4dDescriptor(x_, CUDNN_TENSOR_NCHW, type, n(c.batch),
                                              n(c.channels), n(c.size), n(c.size)));
    DDPSIM_CALL(l, cudnnSetTensor4dDescriptor(y_, CUDNN_TENSOR_NCHW, type, n(c.batch), n(c.filters),
                                              n(c.out_size()), n(c.out_size())));
    DDPSIM_CALL(l, cudnnSetFilter4dDescriptor(w_, type, CUDNN_TENSOR_NCHW, n(c.filters),
                                              n(c.channels), n(c.kernel), n(c.kernel)));
    DDPSIM_CALL(
        l, cudnnSetConvolution2dDescriptor(conv_, n(c.pad()), n(c.pad()), n(c.stride), n(c.stride),
                                           1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    DDPSIM_CALL(l, cudnnSetConvolutionMathType(conv_, p == Precision::Fp32 ? CUDNN_FMA_MATH
                                                      : is_half(p)         ? CUDNN_TENSOR_OP_MATH
                                                                           : CUDNN_DEFAULT_MATH));
    choose(trial);
  }
  ~ConvProduct() override {
    const Cudnn& l = cudnn();
    if (x_) l.cudnnDestroyTensorDescriptor(x_);
    if (y_) l.cudnnDestroyTensorDescriptor(y_);
    if (w_) l.cudnnDestroyFilterDescriptor(w_);
    if (conv_) l.cudnnDestroyConvolutionDescriptor(conv_);
  }
  void launch(void* operands, void* workspace, cudaStream_t s) const override {
    const Cudnn& l = cudnn();
    float one = 1;
    float zero = 0;
    auto [x, w, y] = places(operands);
    DDPSIM_CALL(l, cudnnSetStream(dnn_handle(), s));
    if (pass_ == Pass::Forward)
      DDPSIM_CALL(l, cudnnConvolutionForward(dnn_handle(), &one, x_, x, w_, w, conv_, forward_,
                                             workspace, needs_, &zero, y_, y));
    else if (pass_ == Pass::DataGradient)
      DDPSIM_CALL(l, cudnnConvolutionBackwardData(dnn_handle(), &one, w_, w, y_, y, conv_, data_,
                                                  workspace, needs_, &zero, x_, x));
    else
      DDPSIM_CALL(l, cudnnConvolutionBackwardFilter(dnn_handle(), &one, x_, x, y_, y, conv_,
                                                    weight_, workspace, needs_, &zero, w_, w));
  }
  std::int64_t bytes() const override {
    return x_bytes() + w_bytes() +
           padded(c_.batch * c_.filters * c_.out_size() * c_.out_size() * element_bytes(p_));
  }
  std::int64_t workspace() const override { return static_cast<std::int64_t>(needs_); }
  std::map<std::string, std::int64_t> chosen() const override { return chosen_; }

 private:
  std::int64_t x_bytes() const {
    return padded(c_.batch * c_.channels * c_.size * c_.size * element_bytes(p_));
  }
  std::int64_t w_bytes() const {
    return padded(c_.filters * c_.channels * c_.kernel * c_.kernel * element_bytes(p_));
  }
  struct Places {
    char *x, *w, *y;
  };
  Places places(void* operands) const {
    auto* x = static_cast<char*>(operands);
    return {x, x + x_bytes(), x + x_bytes() + w_bytes()};
  }

  // The first that works within the limit, with its math type.
  template <class Results>
  auto first(const Results& results, int count) {
    for (int i = 0; i < count; ++i) {
      const auto& r = results[i];
      if (r.status != CUDNN_STATUS_SUCCESS || r.memory > limit_) continue;
      if (p_ != Precision::Fp32)
        DDPSIM_CALL(cudnn(), cudnnSetConvolutionMathType(conv_, r.mathType));
      chosen_ = {{"algorithm", static_cast<std::int64_t>(r.algo)},
                 {"math", static_cast<std::int64_t>(r.mathType)},
                 {"workspace_bytes", static_cast<std::int64_t>(r.memory)}};
      needs_ = r.memory;
      return r.algo;
    }
    throw std::runtime_error("cuDNN offers no algorithm for this shape within the workspace");
  }
  // Of `algorithms` algorithms of the pass: what `get` (heuristics) names, or what `find` times in
  // the largest workspace that one of them asks `size` for, within the limit.
  template <class Result, class Get, class Find, class Size>
  auto chosen_of(int algorithms, const Trial* trial, Get get, Find find, Size size) {
    std::array<Result, kAlgorithms> results{};
    int count = 0;
    if (!trial) {
      get(&count, results.data());
      return first(results, count);
    }
    std::size_t most = 0;
    for (int a = 0; a < algorithms; ++a) {
      std::size_t needs = 0;
      if (size(static_cast<decltype(Result::algo)>(a), &needs) == CUDNN_STATUS_SUCCESS &&
          needs <= limit_)
        most = std::max(most, needs);
    }
    DDPSIM_CALL(cudnn(), cudnnSetStream(dnn_handle(), trial->s));
    void* workspace = most > 0 ? trial->workspace(static_cast<std::int64_t>(most)) : nullptr;
    find(&count, results.data(), workspace, most);
    return first(results, count);
  }
  void choose(const Trial* trial) {
    const Cudnn& l = cudnn();
    auto handle = dnn_handle();
    if (pass_ == Pass::Forward)
      forward_ = chosen_of<cudnnConvolutionFwdAlgoPerf_t>(
          CUDNN_CONVOLUTION_FWD_ALGO_COUNT, trial,
          [&](int* n, auto* r) {
            DDPSIM_CALL(l, cudnnGetConvolutionForwardAlgorithm_v7(handle, x_, w_, conv_, y_,
                                                                  kAlgorithms, n, r));
          },
          [&](int* n, auto* r, void* at, std::size_t bytes) {
            auto [x, w, y] = places(trial->operands);
            DDPSIM_CALL(l, cudnnFindConvolutionForwardAlgorithmEx(handle, x_, x, w_, w, conv_, y_,
                                                                  y, kAlgorithms, n, r, at, bytes));
          },
          [&](auto a, std::size_t* bytes) {
            return l.cudnnGetConvolutionForwardWorkspaceSize(handle, x_, w_, conv_, y_, a, bytes);
          });
    else if (pass_ == Pass::DataGradient)
      data_ = chosen_of<cudnnConvolutionBwdDataAlgoPerf_t>(
          CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT, trial,
          [&](int* n, auto* r) {
            DDPSIM_CALL(l, cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, w_, y_, conv_, x_,
                                                                       kAlgorithms, n, r));
          },
          [&](int* n, auto* r, void* at, std::size_t bytes) {
            auto [x, w, y] = places(trial->operands);
            DDPSIM_CALL(l, cudnnFindConvolutionBackwardDataAlgorithmEx(
                               handle, w_, w, y_, y, conv_, x_, x, kAlgorithms, n, r, at, bytes));
          },
          [&](auto a, std::size_t* bytes) {
            return l.cudnnGetConvolutionBackwardDataWorkspaceSize(handle, w_, y_, conv_, x_, a,
                                                                  bytes);
          });
    else
      weight_ = chosen_of<cudnnConvolutionBwdFilterAlgoPerf_t>(
          CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT, trial,
          [&](int* n, auto* r) {
            DDPSIM_CALL(l, cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, x_, y_, conv_, w_,
                                                                         kAlgorithms, n, r));
          },
          [&](int* n, auto* r, void* at, std::size_t bytes) {
            auto [x, w, y] = places(trial->operands);
            DDPSIM_CALL(l, cudnnFindConvolutionBackwardFilterAlgorithmEx(
                               handle, x_, x, y_, y, conv_, w_, w, kAlgorithms, n, r, at, bytes));
          },
          [&](auto a, std::size_t* bytes) {
            return l.cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, x_, y_, conv_, w_, a,
                                                                    bytes);
          });
  }

  static constexpr int kAlgorithms = 8;  // results that are looked at; no pass has more algorithms
  Conv c_;
  Pass pass_;
  Precision p_;
  std::size_t limit_;
  std::size_t needs_ = 0;
  cudnnTensorDescriptor_t x_ = nullptr;
  cudnnTensorDescriptor_t y_ = nullptr;
  cudnnFilterDescriptor_t w_ = nullptr;
  cudnnConvolutionDescriptor_t conv_ = nullptr;
  cudnnConvolutionFwdAlgo_t forward_{};
  cudnnConvolutionBwdDataAlgo_t data_{};
  cudnnConvolutionBwdFilterAlgo_t weight_{};
  std::map<std::string, std::int64_t> chosen_;
};

}  // namespace

std::unique_ptr<Product> make_gemm(const Gemm& g, Precision p) {
  return std::make_unique<GemmProduct>(g, p);
}
std::unique_ptr<Product> make_conv(const Conv& c, Pass pass, Precision p, std::int64_t limit) {
  return std::make_unique<ConvProduct>(c, pass, p, limit, nullptr);
}
std::unique_ptr<Product> make_conv(const Conv& c, Pass pass, Precision p, std::int64_t limit,
                                   const Trial& benchmark) {
  return std::make_unique<ConvProduct>(c, pass, p, limit, &benchmark);
}

}  // namespace ddpsim::calib::cuda
