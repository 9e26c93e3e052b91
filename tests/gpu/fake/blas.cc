// cuBLASLt's interface: a product takes its operations at the rate of its precision.
#include <cstring>

#include <cublasLt.h>

#include "tests/gpu/fake/libraries.h"

namespace fake = ddpsim::fake;
using fake::plain;

namespace {

constexpr double kCallUs = 0.2;
constexpr std::size_t kNeeds = 4 << 20;  // workspace of the only algorithm
constexpr std::uint64_t kAlgorithm = 0x6b6c61;

struct Operation {
  cublasComputeType_t compute;
  cublasOperation_t transposed_a = CUBLAS_OP_N;
};
struct Layout {
  cudaDataType type;
  std::uint64_t rows;
  std::uint64_t columns;
  std::int64_t leading;
};
struct Preference {
  std::size_t workspace = 0;
};

std::int64_t element(cudaDataType t) {
  return t == CUDA_R_32F ? 4 : 2;
}
std::int64_t bytes(const Layout& l) {
  return static_cast<std::int64_t>(l.columns) * l.leading * element(l.type);
}

double rate(const Operation& o, const Layout& a) {
  const fake::Planted& p = fake::planted();
  if (a.type == CUDA_R_16BF) return p.bf16;
  if (a.type == CUDA_R_16F) return p.fp16;
  return o.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? p.tf32 : p.fp32;
}

// op(A) is n x k, B is k x m, C is n x m.
bool fits(const Operation& o, const Layout& a, const Layout& b, const Layout& c) {
  bool t = o.transposed_a == CUBLAS_OP_T;
  return (t ? a.columns : a.rows) == c.rows && (t ? a.rows : a.columns) == b.rows &&
         b.columns == c.columns && a.type == b.type && b.type == c.type;
}

}  // namespace

extern "C" {

size_t cublasLtGetVersion() {
  return 130000;
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (fake::called("cublasLtCreate", 1000)) return CUBLAS_STATUS_NOT_INITIALIZED;
  static int one = 0;
  *handle = reinterpret_cast<cublasLtHandle_t>(&one);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t compute,
                                        cudaDataType_t) {
  fake::make(d, Operation{compute});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  fake::drop<Operation>(d);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void* value, size_t size) {
  if (what != CUBLASLT_MATMUL_DESC_TRANSA || size != sizeof(cublasOperation_t))
    return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&plain<Operation>(d).transposed_a, value, size);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  fake::make(l, Layout{type, rows, columns, leading});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  fake::drop<Layout>(l);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  fake::make(p, Preference{});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  fake::drop<Preference>(p);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void* value, size_t size) {
  if (what != CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES || size != sizeof(std::size_t))
    return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&plain<Preference>(p).workspace, value, size);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t p, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  if (fake::called("cublasLtMatmulAlgoGetHeuristic", 50)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (wanted < 1 ||
      !fits(plain<Operation>(d), plain<Layout>(a), plain<Layout>(b), plain<Layout>(c)))
    return CUBLAS_STATUS_INVALID_VALUE;
  *found = plain<Preference>(p).workspace >= kNeeds ? 1 : 0;
  if (*found == 0) return CUBLAS_STATUS_SUCCESS;
  results[0] = {};
  results[0].algo.data[0] = kAlgorithm;
  results[0].workspaceSize = kNeeds;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void*, const void* a,
                              cublasLtMatrixLayout_t la, const void* b, cublasLtMatrixLayout_t lb,
                              const void*, const void* c, cublasLtMatrixLayout_t lc, void*,
                              cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t* algorithm,
                              void* workspace, size_t workspace_bytes, cudaStream_t s) {
  if (fake::called("cublasLtMatmul", fake::planted().launch_us + kCallUs))
    return CUBLAS_STATUS_EXECUTION_FAILED;
  const Operation& o = plain<Operation>(d);
  const Layout& x = plain<Layout>(la);
  const Layout& y = plain<Layout>(lb);
  const Layout& z = plain<Layout>(lc);
  if (!fits(o, x, y, z) || algorithm->data[0] != kAlgorithm || workspace_bytes < kNeeds)
    return CUBLAS_STATUS_INVALID_VALUE;
  double flops = 2.0 * static_cast<double>(z.rows) * static_cast<double>(z.columns) *
                 static_cast<double>(y.rows);
  double moved = static_cast<double>(bytes(x) + bytes(y) + bytes(z));
  double us = fake::product_us(flops, rate(o, x), moved);
  if (fake::planted().form > 1) {
    // Rows of the operands, as they lie in memory: of n and k elements.
    std::int64_t n = static_cast<std::int64_t>(z.rows) * element(z.type);
    std::int64_t k = static_cast<std::int64_t>(y.rows) * element(y.type);
    int aligned = 2;
    for (int by : {4, 8})
      if (n % by == 0 && k % by == 0) aligned = by;
    us = fake::tiled_us(static_cast<double>(z.columns), static_cast<double>(z.rows),
                        static_cast<double>(y.rows), rate(o, x), moved, aligned);
  }
  bool ran = fake::product(s, us, {{a, bytes(x)}, {b, bytes(y)}, {c, bytes(z)}},
                           {workspace, static_cast<std::int64_t>(workspace_bytes)});
  return ran ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
