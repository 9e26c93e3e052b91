// What a GPU's name says, as CUDA, nvidia-smi or a profile write it: "NVIDIA H100 80GB HBM3",
// "NVIDIA H100-SXM5-80GB", "Tesla V100-PCIE-32GB". No I/O.
#pragma once

#include <string>

namespace ddpsim {

struct GpuName {
  std::string product;  // "H100", "4090"; "" = the text names none
  bool pcie = false;    // it says PCIe
  bool sxm = false;     // it says SXM
  int memory_gb = 0;    // 0 = it does not say
};
// The product is the first word of capital letters and then at least two digits, or the number
// after RTX or GTX.
GpuName gpu_name(const std::string& text);

// Whether two names are of GPUs on which the same kernels take other times: another product, PCIe
// and SXM, or another size of an A100's memory (40 and 80 GB differ in bandwidth; a V100's 16 and
// 32 GB do not, and the name of a GH200 counts its CPU's memory). False where one names no product.
bool names_differ(const std::string& a, const std::string& b);

}  // namespace ddpsim
