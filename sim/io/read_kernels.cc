#include "sim/io/read_kernels.h"

#include <cmath>

#include "sim/units/convert.h"

namespace ddpsim::io {

std::vector<validation::PublishedKernel> read_kernels(const Json& j, const std::string& file) {
  const Reader r(j, file);
  r.schema("ddpsim.kernels/1");
  r.only({"schema", "source", "url", "license", "commit", "notes", "gpus"});
  std::vector<validation::PublishedKernel> out;
  validation::PublishedKernel k;
  k.source = r.at("source").text();
  for (const Reader& g : r.at("gpus").items()) {
    g.only({"profile", "gpu", "precision", "linear"});
    k.profile = g.at("profile").text();
    k.gpu = g.at("gpu").text();
    k.precision =
        static_cast<Precision>(g.at("precision").choice({"fp32", "tf32", "bf16", "fp16"}));
    for (const Reader& row : g.at("linear").items()) {
      const std::vector<Reader> cells = row.items();
      if (cells.size() != 4) row.fail("expected [rows, inputs, outputs, microseconds]");
      constexpr std::int64_t kMost = std::int64_t{1} << 30;
      k.rows = cells[0].small(1, kMost);
      k.inputs = cells[1].small(1, kMost);
      k.outputs = cells[2].small(1, kMost);
      const double us = cells[3].number();
      if (!(us > 0 && us < 1e9)) cells[3].fail("expected microseconds, more than 0");
      k.measured = {std::llround(us * kPsPerUs)};
      out.push_back(k);
    }
  }
  return out;
}

}  // namespace ddpsim::io
