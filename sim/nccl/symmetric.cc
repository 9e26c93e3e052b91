// time = latency + what the bytes take beyond a microsecond, at what the blocks reach up to a peak,
// both corners rounded off; of a kernel the fewest blocks within 2.5 % of the most; of the kernels
// the least time, where each block costs 2.5 % more.
#include "sim/nccl/symmetric.h"

#include <algorithm>
#include <cmath>

#include "sim/units/elementary.h"

namespace ddpsim::nccl {
namespace {

constexpr int kMostSymmetricBlocks = 64;
constexpr int kBlocksOfOneGpu = 16;  // that use the switch's multicast, all ranks together
constexpr int kBlocksOfOneBlackwell = 32;
constexpr double kTolerance = 1.025;
constexpr double kPenaltyOfABlock = 0.025;
constexpr std::int64_t kGib = std::int64_t{1} << 30;
constexpr BytesPerUs kGibPerSecond =
    bytes_per_us(BytesPerSecond{static_cast<double>(kGib)});  // NCCL's GB/s
constexpr double kLlFactor = 9;

enum class Way : std::uint8_t { Ll, LlMulticast, Plain, Multicast };
struct Kernel {
  Operation op;
  Way way;
  std::string_view name;
};
// In NCCL's order: of equals the first.
constexpr Kernel kKernels[]{
    {Operation::AllReduce, Way::Ll, "AllReduce_AGxLL_R"},
    {Operation::AllReduce, Way::LlMulticast, "AllReduce_AGxLLMC_R"},
    {Operation::AllReduce, Way::Plain, "AllReduce_RSxLD_AGxST"},
    {Operation::AllReduce, Way::Multicast, "AllReduce_RSxLDMC_AGxSTMC"},
    {Operation::AllGather, Way::Ll, "AllGather_LL"},
    {Operation::AllGather, Way::LlMulticast, "AllGather_LLMC"},
    {Operation::AllGather, Way::Plain, "AllGather_ST"},
    {Operation::AllGather, Way::Multicast, "AllGather_STMC"},
    {Operation::ReduceScatter, Way::Ll, "ReduceScatter_LL"},
    {Operation::ReduceScatter, Way::Plain, "ReduceScatter_LD"},
    {Operation::ReduceScatter, Way::Multicast, "ReduceScatter_LDMC"},
};
constexpr bool is_ll(Way w) {
  return w == Way::Ll || w == Way::LlMulticast;
}
constexpr bool multicast(Way w) {
  return w == Way::LlMulticast || w == Way::Multicast;
}

// The lesser, and what is above 0, without a corner.
BytesPerUs soft_min(BytesPerUs x, BytesPerUs ceiling, BytesPerUs softness) {
  return ceiling - softness * natural_logarithm(1 + (natural_exponential(ceiling / softness) - 1) *
                                                        natural_exponential(-(x / softness)));
}
double soft_plus(double x) {
  return x >= 100 ? x : natural_logarithm(1 + natural_exponential(x));
}

// NCCL reckons with these.
struct Model {
  double bytes = 0;     // the larger of what a rank sends and receives
  double multiple = 1;  // that the switch makes of what a block moves
  Microseconds latency;
  BytesPerUs block;  // of one block
  BytesPerUs peak;
  int most_blocks = kMostSymmetricBlocks;

  Microseconds time(int blocks) const {
    BytesPerUs rate = soft_min(blocks * block * multiple, peak, block);
    return latency + Microseconds{soft_plus((bytes / rate).us - 1)};
  }
};

// `bytes`: of an all-reduce all, of a gather or scatter one rank's part.
Model model_of(const Kernel& k, int ranks, bool blackwell, double bytes) {
  Model m;
  double n = ranks;
  bool all_reduce = k.op == Operation::AllReduce;
  switch (k.way) {
    case Way::Ll:
    case Way::LlMulticast:
      m.bytes = n * bytes * kLlFactor;
      if (k.way == Way::LlMulticast) m.multiple = 1.1;
      break;
    case Way::Plain:
      m.bytes = all_reduce ? std::floor(2 * bytes * (n - 1) / n) : (n - 1) * bytes;
      break;
    case Way::Multicast:
      m.bytes = all_reduce ? std::floor(bytes / n) + bytes : (n - 1) * bytes;
      m.multiple = all_reduce ? n : 0.55 * n;
      m.most_blocks = ((blackwell ? kBlocksOfOneBlackwell : kBlocksOfOneGpu) + ranks - 1) / ranks;
      break;
  }
  bool both = all_reduce && k.way == Way::Multicast;
  if (blackwell) {
    m.latency = {is_ll(k.way) ? (k.op == Operation::AllGather ? 8.5 : 11) : all_reduce ? 19.5 : 13};
    m.block = 55 * kGibPerSecond;
    m.peak = (both ? 1000 : 600) * kGibPerSecond;
  } else {
    m.latency = {is_ll(k.way) ? 4.5 : 7.8};
    m.block = (all_reduce ? 65 : 44) * kGibPerSecond;
    m.peak = (both ? 480 : 320) * kGibPerSecond;
  }
  return m;
}

SymmetricKernel estimate(const Kernel& k, Model m, const Settings& settings) {
  if (settings.max_channels > 0) m.most_blocks = std::min(m.most_blocks, settings.max_channels);
  SymmetricKernel out{k.name, m.most_blocks, m.time(m.most_blocks)};
  for (int blocks = std::max(1, settings.min_channels); blocks < m.most_blocks; ++blocks) {
    Microseconds time = m.time(blocks);
    if (time > kTolerance * out.estimate) continue;
    out.blocks = blocks;
    out.estimate = time;
    break;
  }
  return out;
}

}  // namespace

std::optional<SymmetricKernel> symmetric_kernel(const System& s, const Settings& settings,
                                                Operation op, std::int64_t bytes) {
  if (!s.version.has(Change::SymmetricKernels) || s.rccl || s.nodes > 1 || s.ranks < 2 ||
      !s.nvswitch)
    return std::nullopt;
  bool has_multicast = s.nvls && s.compute_capability >= 90;
  // NCCL counts a gather's or a scatter's bytes of one rank; its limits are of all of them.
  std::int64_t own = op == Operation::AllReduce ? bytes : bytes / s.ranks;
  std::int64_t all = op == Operation::AllReduce ? bytes : own * s.ranks;
  if (all >= 64 * kGib) return std::nullopt;
  std::optional<SymmetricKernel> best;
  auto cost = [](const SymmetricKernel& k) {
    return k.estimate * (1 + kPenaltyOfABlock * k.blocks);
  };
  for (const Kernel& k : kKernels) {
    if (k.op != op || (multicast(k.way) && !has_multicast) || (is_ll(k.way) && all >= 2 * kGib))
      continue;
    SymmetricKernel made = estimate(
        k, model_of(k, s.ranks, s.compute_capability >= 100, static_cast<double>(own)), settings);
    if (!best || cost(made) < cost(*best)) best = made;
  }
  return best;
}

}  // namespace ddpsim::nccl
