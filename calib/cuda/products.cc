#include "calib/cuda/products.h"

#include <array>
#include <stdexcept>

#include "calib/cuda/libraries.h"

namespace ddpsim::calib::cuda {
namespace {

bool is_half(Precision p) {
  return p == Precision::Bf16 || p == Precision::Fp16;
}
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
  ConvProduct(const Conv& c, Pass pass, Precision p) : c_(c), pass_(pass), p_(p) {
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
    choose();
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
    auto* x = static_cast<char*>(operands);
    char* w = x + x_bytes();
    char* y = w + w_bytes();
    DDPSIM_CALL(l, cudnnSetStream(dnn_handle(), s));
    if (pass_ == Pass::Forward)
      DDPSIM_CALL(l, cudnnConvolutionForward(dnn_handle(), &one, x_, x, w_, w, conv_, forward_,
                                             workspace, kConvWorkspace, &zero, y_, y));
    else if (pass_ == Pass::DataGradient)
      DDPSIM_CALL(l, cudnnConvolutionBackwardData(dnn_handle(), &one, w_, w, y_, y, conv_, data_,
                                                  workspace, kConvWorkspace, &zero, x_, x));
    else
      DDPSIM_CALL(l,
                  cudnnConvolutionBackwardFilter(dnn_handle(), &one, x_, x, y_, y, conv_, weight_,
                                                 workspace, kConvWorkspace, &zero, w_, w));
  }
  std::int64_t bytes() const override {
    return x_bytes() + w_bytes() +
           padded(c_.batch * c_.filters * c_.out_size() * c_.out_size() * element_bytes(p_));
  }
  std::map<std::string, std::int64_t> chosen() const override { return chosen_; }

 private:
  std::int64_t x_bytes() const {
    return padded(c_.batch * c_.channels * c_.size * c_.size * element_bytes(p_));
  }
  std::int64_t w_bytes() const {
    return padded(c_.filters * c_.channels * c_.kernel * c_.kernel * element_bytes(p_));
  }

  // cuDNN's own first choice that fits the workspace, with its math type. PyTorch asks the same
  // library through another interface, and may get another kernel.
  template <class Results>
  auto first(const Results& results, int count) {
    for (int i = 0; i < count; ++i) {
      const auto& r = results[static_cast<std::size_t>(i)];
      if (r.status != CUDNN_STATUS_SUCCESS || r.memory > static_cast<std::size_t>(kConvWorkspace))
        continue;
      if (p_ != Precision::Fp32)
        DDPSIM_CALL(cudnn(), cudnnSetConvolutionMathType(conv_, r.mathType));
      chosen_ = {{"algorithm", static_cast<std::int64_t>(r.algo)},
                 {"math", static_cast<std::int64_t>(r.mathType)},
                 {"workspace_bytes", static_cast<std::int64_t>(r.memory)}};
      return r.algo;
    }
    throw std::runtime_error("cuDNN offers no algorithm for this shape within the workspace");
  }
  void choose() {
    const Cudnn& l = cudnn();
    int count = 0;
    if (pass_ == Pass::Forward) {
      std::array<cudnnConvolutionFwdAlgoPerf_t, 8> r{};
      DDPSIM_CALL(l, cudnnGetConvolutionForwardAlgorithm_v7(dnn_handle(), x_, w_, conv_, y_, 8,
                                                            &count, r.data()));
      forward_ = first(r, count);
    } else if (pass_ == Pass::DataGradient) {
      std::array<cudnnConvolutionBwdDataAlgoPerf_t, 8> r{};
      DDPSIM_CALL(l, cudnnGetConvolutionBackwardDataAlgorithm_v7(dnn_handle(), w_, y_, conv_, x_, 8,
                                                                 &count, r.data()));
      data_ = first(r, count);
    } else {
      std::array<cudnnConvolutionBwdFilterAlgoPerf_t, 8> r{};
      DDPSIM_CALL(l, cudnnGetConvolutionBackwardFilterAlgorithm_v7(dnn_handle(), x_, y_, conv_, w_,
                                                                   8, &count, r.data()));
      weight_ = first(r, count);
    }
  }

  Conv c_;
  Pass pass_;
  Precision p_;
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
std::unique_ptr<Product> make_conv(const Conv& c, Pass pass, Precision p) {
  return std::make_unique<ConvProduct>(c, pass, p);
}

}  // namespace ddpsim::calib::cuda
