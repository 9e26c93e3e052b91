// cuBLASLt, cuDNN, NCCL and NVML, opened when first asked for: from the loader's own places
// (LD_LIBRARY_PATH), $CUDA_HOME/lib64, /usr/local/cuda/lib64, and the folders of DDPSIM_LIBRARIES
// (colon-separated; tools/gpu_calibrate names PyTorch's). A library that is missing is an
// std::runtime_error that says where it was looked for.
#pragma once

#include <string>

#include <cublasLt.h>
#include <cudnn.h>
#include <nccl.h>

namespace ddpsim::calib::cuda {

// clang-format off
#define DDPSIM_CUBLASLT(X) \
  X(cublasLtCreate) X(cublasLtGetVersion) X(cublasLtMatmul) X(cublasLtMatmulDescCreate) \
  X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute) X(cublasLtMatrixLayoutCreate) \
  X(cublasLtMatrixLayoutDestroy) X(cublasLtMatmulPreferenceCreate) \
  X(cublasLtMatmulPreferenceDestroy) X(cublasLtMatmulPreferenceSetAttribute) \
  X(cublasLtMatmulAlgoGetHeuristic)
#define DDPSIM_CUDNN(X) \
  X(cudnnCreate) X(cudnnSetStream) X(cudnnGetErrorString) X(cudnnGetVersion) \
  X(cudnnCreateTensorDescriptor) X(cudnnSetTensor4dDescriptor) X(cudnnDestroyTensorDescriptor) \
  X(cudnnCreateFilterDescriptor) X(cudnnSetFilter4dDescriptor) X(cudnnDestroyFilterDescriptor) \
  X(cudnnCreateConvolutionDescriptor) X(cudnnSetConvolution2dDescriptor) \
  X(cudnnSetConvolutionMathType) X(cudnnDestroyConvolutionDescriptor) \
  X(cudnnGetConvolutionForwardAlgorithm_v7) X(cudnnGetConvolutionBackwardDataAlgorithm_v7) \
  X(cudnnGetConvolutionBackwardFilterAlgorithm_v7) \
  X(cudnnGetConvolutionForwardWorkspaceSize) X(cudnnGetConvolutionBackwardDataWorkspaceSize) \
  X(cudnnGetConvolutionBackwardFilterWorkspaceSize) X(cudnnFindConvolutionForwardAlgorithmEx) \
  X(cudnnFindConvolutionBackwardDataAlgorithmEx) \
  X(cudnnFindConvolutionBackwardFilterAlgorithmEx) X(cudnnConvolutionForward) \
  X(cudnnConvolutionBackwardData) X(cudnnConvolutionBackwardFilter)
#define DDPSIM_NCCL(X) \
  X(ncclGetVersion) X(ncclGetUniqueId) X(ncclCommInitRank) X(ncclCommDestroy) \
  X(ncclGetErrorString) X(ncclGetLastError) X(ncclAllReduce) X(ncclReduceScatter) \
  X(ncclAllGather) X(ncclBroadcast) X(ncclReduce) X(ncclSend) X(ncclRecv) X(ncclGroupStart) \
  X(ncclGroupEnd)
#define DDPSIM_NVML(X) \
  X(nvmlInit_v2) X(nvmlDeviceGetHandleByPciBusId_v2) X(nvmlDeviceGetClockInfo) \
  X(nvmlDeviceGetCurrentClocksThrottleReasons) X(nvmlDeviceGetPowerUsage) \
  X(nvmlDeviceGetTemperature)
// clang-format on

#define DDPSIM_MEMBER(f) decltype(&::f) f = nullptr;  // NOLINT(bugprone-macro-parentheses)
struct CublasLt {
  std::string place;
  DDPSIM_CUBLASLT(DDPSIM_MEMBER)
};
struct Cudnn {
  std::string place;
  DDPSIM_CUDNN(DDPSIM_MEMBER)
};
struct Nccl {
  std::string place;
  DDPSIM_NCCL(DDPSIM_MEMBER)
  std::string version() const;  // "2.28.9"
};
#undef DDPSIM_MEMBER

// NVML's header is not part of every toolkit: the few functions that are read, as its documentation
// declares them.
struct Nvml {
  std::string place;
  int (*nvmlInit_v2)() = nullptr;
  int (*nvmlDeviceGetHandleByPciBusId_v2)(const char* bus, void** device) = nullptr;
  int (*nvmlDeviceGetClockInfo)(void* device, int type, unsigned* mhz) = nullptr;
  int (*nvmlDeviceGetCurrentClocksThrottleReasons)(void* device,
                                                   unsigned long long* reasons) = nullptr;
  int (*nvmlDeviceGetPowerUsage)(void* device, unsigned* milliwatts) = nullptr;
  int (*nvmlDeviceGetTemperature)(void* device, int sensor, unsigned* celsius) = nullptr;
};

const CublasLt& cublaslt();
const Cudnn& cudnn();
const Nccl& nccl();
const Nvml& nvml();

void check(cublasStatus_t code, const char* call);
void check(cudnnStatus_t code, const char* call);
void check(ncclResult_t code, const char* call);
#define DDPSIM_CALL(library, call) ::ddpsim::calib::cuda::check((library).call, #call)

}  // namespace ddpsim::calib::cuda
