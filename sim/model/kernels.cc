#include "sim/model/kernels.h"

namespace ddpsim {
namespace {

bool share(double v) {
  return v >= 1e-4 && v <= 1e2;
}
bool ordered(const Spread& s) {
  return s.quick > 1e-3 && s.quick <= 1 && s.slow >= 1 && s.slow < 1e3;
}

Problem check_product(const ProductCost& c, const std::string& path) {
  if (c.kernel != "gemm" && c.kernel != "conv" && c.kernel != "conv_1x1")
    return {path + "/class", "gemm, conv or conv_1x1"};
  if (!(c.flops_per_s >= 1e6 && c.flops_per_s < 1e20))
    return {path + "/flops_per_s", "a rate of a million to 10^20 operations a second"};
  for (Duration d : {c.fixed, c.wave, c.split})
    if (d.ps < 0) return {path, "times are not negative"};
  for (double v : c.tile)
    if (!share(v)) return {path + "/tiles", "shares of the rate are 0.0001 to 100"};
  for (double v : c.unaligned)
    if (!share(v)) return {path + "/unaligned", "shares of the rate are 0.0001 to 100"};
  for (double v : c.pass)
    if (!share(v)) return {path + "/passes", "shares of the rate are 0.0001 to 100"};
  if (!(c.conversion >= 0 && c.conversion < 1e3))
    return {path + "/conversion", "a multiple from 0 to 1000"};
  if (!(c.winograd >= 1 && c.winograd <= 10))
    return {path + "/winograd", "a multiple from 1 to 10"};
  if (!ordered(c.spread)) return {path + "/spread", "0 < quick <= 1 <= slow"};
  return {};
}

template <class Cost>
const Cost* noted(const KernelCosts& k, const Cost* c) {
  if (k.asked) k.asked->push_back(&c->spread);
  return c;
}

}  // namespace

const ProductCost* find_product(const KernelCosts& k, const std::string& kernel, Precision p) {
  for (const ProductCost& c : k.products)
    if (c.precision == p && c.kernel == kernel) return noted(k, &c);
  return nullptr;
}

const MemoryCost* find_memory(const KernelCosts& k, const std::string& op, bool backward,
                              bool halves, bool channels_last) {
  auto find = [&](const std::string& name, bool pass, bool last) -> const MemoryCost* {
    for (const MemoryCost& c : k.memory)
      if (c.backward == pass && c.halves == halves && c.channels_last == last && c.op == name)
        return noted(k, &c);
    return nullptr;
  };
  for (bool last : {channels_last, !channels_last})
    if (const MemoryCost* c = find(op, backward, last)) return c;
  return find("add", false, false);
}

const AttentionCost* find_attention(const KernelCosts& k, bool backward, bool halves, bool flash2) {
  const AttentionCost* other = nullptr;
  for (const AttentionCost& c : k.attention) {
    if (c.backward != backward || c.halves != halves) continue;
    if (c.flash2 == flash2) return noted(k, &c);
    if (!c.flash2) other = &c;
  }
  return other ? noted(k, other) : nullptr;
}

Problem validate(const KernelCosts& k) {
  if (k.sms < 1 || k.sms > 100'000) return {"/kernels/sms", "a GPU has 1 to 100000 SMs"};
  if (!(k.bandwidth_bytes_per_s >= 1e6))
    return {"/kernels/bandwidth_bytes_per_s",
            "memory bandwidth is at least a million bytes a second"};
  if (!ordered(k.common)) return {"/kernels/common", "0 < quick <= 1 <= slow"};
  if (!ordered(k.common_conv)) return {"/kernels/common_conv", "0 < quick <= 1 <= slow"};
  for (std::size_t i = 0; i < k.products.size(); ++i)
    if (auto e = check_product(k.products[i], "/kernels/products/" + std::to_string(i))) return e;
  for (std::size_t i = 0; i < k.memory.size(); ++i) {
    const MemoryCost& c = k.memory[i];
    std::string path = "/kernels/memory/" + std::to_string(i);
    if (c.fixed.ps < 0) return {path + "/fixed_ps", "times are not negative"};
    if (!share(c.efficiency)) return {path + "/efficiency", "0.0001 to 100"};
    if (!ordered(c.spread)) return {path + "/spread", "0 < quick <= 1 <= slow"};
  }
  for (std::size_t i = 0; i < k.attention.size(); ++i) {
    const AttentionCost& c = k.attention[i];
    std::string path = "/kernels/attention/" + std::to_string(i);
    if (c.fixed.ps < 0 || c.block.ps < 0) return {path, "times are not negative"};
    if (!(c.flops_per_s >= 1e6 && c.flops_per_s < 1e20))
      return {path + "/flops_per_s", "a rate of a million to 10^20 operations a second"};
    if (!ordered(c.spread)) return {path + "/spread", "0 < quick <= 1 <= slow"};
  }
  return {};
}

}  // namespace ddpsim
