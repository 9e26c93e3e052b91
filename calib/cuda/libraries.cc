#include "calib/cuda/libraries.h"

#include <cstdlib>
#include <stdexcept>
#include <vector>

#include <dlfcn.h>

namespace ddpsim::calib::cuda {
namespace {

std::vector<std::string> folders() {
  std::vector<std::string> out{""};  // the loader's own places
  if (const char* more = std::getenv("DDPSIM_LIBRARIES")) {
    std::string all = more;
    for (std::size_t from = 0; from <= all.size();) {
      auto colon = std::min(all.find(':', from), all.size());
      if (colon > from) out.push_back(all.substr(from, colon - from) + "/");
      from = colon + 1;
    }
  }
  if (const char* home = std::getenv("CUDA_HOME")) out.push_back(std::string(home) + "/lib64/");
  out.emplace_back("/usr/local/cuda/lib64/");
  return out;
}

struct Opened {
  void* handle = nullptr;
  std::string place;
};

Opened open(const std::vector<std::string>& names) {
  std::string tried;
  for (const std::string& folder : folders())
    for (const std::string& name : names) {
      if (void* handle = ::dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL))
        return {handle, folder + name};
      tried += (tried.empty() ? "" : ", ") + folder + name;
    }
  throw std::runtime_error(names.front() + " was not found (" + tried +
                           "); name its folder in DDPSIM_LIBRARIES");
}

template <class F>
void look_up(void* handle, const char* name, F& f, const std::string& place) {
  f = reinterpret_cast<F>(::dlsym(handle, name));
  if (!f) throw std::runtime_error(place + " has no " + name);
}

// A Library opened under the first of `names` that is found; `fill` looks its functions up.
template <class Library, class Fill>
Library opened(const std::vector<std::string>& names, Fill fill) {
  Opened found = open(names);
  Library out;
  out.place = found.place;
  fill(out, found.handle);
  return out;
}

#define DDPSIM_LOOK_UP(f) look_up(handle, #f, out.f, out.place);

}  // namespace

const CublasLt& cublaslt() {
  static const auto library =
      opened<CublasLt>({"libcublasLt.so.13", "libcublasLt.so.12"},
                       [](CublasLt& out, void* handle) { DDPSIM_CUBLASLT(DDPSIM_LOOK_UP) });
  return library;
}
const Cudnn& cudnn() {
  static const auto library = opened<Cudnn>(
      {"libcudnn.so.9"}, [](Cudnn& out, void* handle) { DDPSIM_CUDNN(DDPSIM_LOOK_UP) });
  return library;
}
const Nccl& nccl() {
  static const auto library =
      opened<Nccl>({"libnccl.so.2"}, [](Nccl& out, void* handle) { DDPSIM_NCCL(DDPSIM_LOOK_UP) });
  return library;
}
const Nvml& nvml() {
  static const auto library = opened<Nvml>({"libnvidia-ml.so.1"}, [](Nvml& out, void* handle) {
    DDPSIM_NVML(DDPSIM_LOOK_UP)
    if (int code = out.nvmlInit_v2())
      throw std::runtime_error("nvmlInit_v2: error " + std::to_string(code));
  });
  return library;
}

std::string Nccl::version() const {
  int v = 0;
  check(ncclGetVersion(&v), "ncclGetVersion");
  return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." +
         std::to_string(v % 100);
}

void check(cublasStatus_t code, const char* call) {
  if (code != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(call) + ": cuBLASLt status " +
                             std::to_string(static_cast<int>(code)));
}
void check(cudnnStatus_t code, const char* call) {
  if (code != CUDNN_STATUS_SUCCESS)
    throw std::runtime_error(std::string(call) + ": " + cudnn().cudnnGetErrorString(code));
}
void check(ncclResult_t code, const char* call) {
  if (code == ncclSuccess) return;
  const char* more = nccl().ncclGetLastError(nullptr);
  throw std::runtime_error(std::string(call) + ": " + nccl().ncclGetErrorString(code) +
                           (more && *more ? std::string(" (") + more + ")" : ""));
}

}  // namespace ddpsim::calib::cuda
