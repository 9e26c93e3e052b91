#include "calib/fit/shapes.h"

namespace ddpsim::calib {
namespace {

// Of a reading, or the same shape done another way.
bool beside(const std::string& name) {
  for (const char* other :
       {"sm_mhz", "power_mw", "celsius", "throttle_bits", "pass", "precision", "channels_last",
        "style", "mode", "algorithm", "math", "workspace_bytes"})
    if (name == other) return true;
  return false;
}

}  // namespace

std::int64_t element_bytes(Precision p) {
  return p == Precision::Fp16 || p == Precision::Bf16 ? 2 : 4;
}

std::vector<Gemm> gemm_shapes() {
  std::vector<Gemm> out;
  // Tokens of a batch x layers of BERT-base and GPT-2 small (hidden 768, feed-forward 3072,
  // vocabulary), of BERT-large, VGG-16's and ResNet-50's classifiers.
  for (std::int64_t tokens : {4096, 1024, 16384, 512, 8192, 2048}) {
    for (auto [n, k] : {std::pair<std::int64_t, std::int64_t>{3072, 768},
                        {768, 3072},
                        {768, 768},
                        {2304, 768},
                        {1024, 1024},
                        {4096, 1024},
                        {1024, 4096}})
      out.push_back({tokens, n, k});
    if (tokens <= 4096) out.push_back({tokens, 50257, 768});
  }
  for (std::int64_t batch : {32, 64, 128, 256}) {
    for (auto [n, k] : {std::pair<std::int64_t, std::int64_t>{4096, 25088},
                        {4096, 4096},
                        {1000, 4096},
                        {1000, 2048}})
      out.push_back({batch, n, k});
  }
  // Gradients of weights: the long side is summed over.
  for (std::int64_t tokens : {4096, 16384, 1024})
    for (auto [n, k] : {std::pair<std::int64_t, std::int64_t>{3072, 768}, {768, 768}, {4096, 1024}})
      out.push_back({k, n, tokens});
  for (std::int64_t s : {8192, 4096, 2048, 1024, 512, 256, 128}) out.push_back({s, s, s});
  return out;
}

std::vector<Conv> conv_shapes() {
  std::vector<Conv> out;
  for (std::int64_t b : {64, 32, 128, 256, 16}) {
    // ResNet-50
    for (const Conv& c :
         {Conv{b, 64, 56, 64, 3}, Conv{b, 64, 56, 256, 1}, Conv{b, 256, 56, 64, 1},
          Conv{b, 128, 28, 128, 3}, Conv{b, 512, 28, 128, 1}, Conv{b, 128, 28, 512, 1},
          Conv{b, 256, 14, 256, 3}, Conv{b, 1024, 14, 256, 1}, Conv{b, 256, 14, 1024, 1},
          Conv{b, 512, 7, 512, 3}, Conv{b, 2048, 7, 512, 1}, Conv{b, 512, 7, 2048, 1},
          Conv{b, 3, 224, 64, 7, 2}, Conv{b, 128, 56, 128, 3, 2}, Conv{b, 256, 56, 512, 1, 2},
          Conv{b, 1024, 14, 2048, 1, 2}})
      out.push_back(c);
    // VGG-16
    if (b <= 64)
      for (const Conv& c :
           {Conv{b, 64, 224, 64, 3}, Conv{b, 128, 112, 128, 3}, Conv{b, 256, 56, 256, 3},
            Conv{b, 512, 28, 512, 3}, Conv{b, 512, 14, 512, 3}})
        out.push_back(c);
  }
  return out;
}

std::vector<std::int64_t> memory_elements() {
  std::vector<std::int64_t> out;
  for (std::int64_t e : {1ll << 20, 1ll << 24, 1ll << 12, 1ll << 26, 1ll << 16, 1ll << 22,
                         1ll << 18, 1ll << 14, 1ll << 10})
    out.push_back(e);
  return out;
}

std::vector<std::int64_t> collective_bytes() {
  std::vector<std::int64_t> out;
  for (std::int64_t b = 8; b < (1ll << 30); b *= 4) out.push_back(b);
  out.push_back(1ll << 30);
  return out;
}

double flops(const Gemm& g) {
  return 2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
}
double bytes(const Gemm& g, Precision p) {
  return static_cast<double>(element_bytes(p)) *
         (static_cast<double>(g.m) * static_cast<double>(g.k) +
          static_cast<double>(g.k) * static_cast<double>(g.n) +
          static_cast<double>(g.m) * static_cast<double>(g.n));
}
double flops(const Conv& c) {
  auto out = static_cast<double>(c.out_size());
  return 2.0 * static_cast<double>(c.batch * c.channels * c.filters * c.kernel * c.kernel) * out *
         out;
}
double bytes(const Conv& c, Precision p) {
  auto out = static_cast<double>(c.out_size());
  auto in = static_cast<double>(c.size);
  return static_cast<double>(element_bytes(p)) *
         (static_cast<double>(c.batch * c.channels) * in * in +
          static_cast<double>(c.batch * c.filters) * out * out +
          static_cast<double>(c.channels * c.filters * c.kernel * c.kernel));
}

std::map<std::string, std::int64_t> parameters(const Gemm& g, Precision p) {
  return {{"m", g.m}, {"n", g.n}, {"k", g.k}, {"precision", static_cast<std::int64_t>(p)}};
}
std::map<std::string, std::int64_t> parameters(const Conv& c, Pass pass, Precision p) {
  return {{"batch", c.batch},
          {"channels", c.channels},
          {"size", c.size},
          {"filters", c.filters},
          {"kernel", c.kernel},
          {"stride", c.stride},
          {"pass", static_cast<std::int64_t>(pass)},
          {"precision", static_cast<std::int64_t>(p)}};
}

bool held_out(const std::string& op, const std::map<std::string, std::int64_t>& parameters) {
  std::uint64_t h = 1469598103934665603ull;  // FNV-1a
  auto mix = [&h](const std::string& s) {
    for (unsigned char c : s) h = (h ^ c) * 1099511628211ull;
    h = (h ^ 0xff) * 1099511628211ull;
  };
  mix(op);
  for (const auto& [name, value] : parameters)
    if (!beside(name)) mix(name), mix(std::to_string(value));
  return (h >> 32) % 3 == 0;
}

}  // namespace ddpsim::calib
