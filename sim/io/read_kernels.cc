#include "sim/io/read_kernels.h"

#include "sim/io/schema/steps_fields.h"

namespace ddpsim::io {

std::vector<validation::PublishedKernel> read_kernels(const Json& j, const std::string& file) {
  PublishedKernelsFile f;
  read_file_fields(Reader(j, file), f, kKernelsSchema);
  std::vector<validation::PublishedKernel> out;
  for (const KernelsOfGpu& g : f.gpus)
    for (validation::PublishedKernel k : g.linear) {
      k.source = f.source;
      k.profile = g.profile;
      k.gpu = g.gpu;
      k.precision = g.precision;
      out.push_back(std::move(k));
    }
  return out;
}

}  // namespace ddpsim::io
