// Of a gradient of E elements on n ranks, h hosts of l, with g groups (gradient_groups):
//
//   quantise             E/2 bytes, g scales of four bytes, laid out for whom they go to
//   all-to-all           of each in the host
//   sum                  of the l parts, quantised anew: E/2l bytes, g/l scales
//   all-to-all           of each among the ranks of one place on each host
//   dequantise, mean     E/l elements; h parts of E/n are added one by one, and divided
//
// What has one dimension, or is no multiple of 2 n, is divided, reduced and scattered by itself, in
// the communicator of all ranks.
//
// Source: deepspeed/runtime/comm/coalesced_collectives.py, all_to_all_quant_reduce and
// reduce_scatter_coalesced; csrc/quantization/pt_binding.cpp, what its kernels read and write
// (0.14.5).
#include "sim/systems/zero/zero_exchange.h"

namespace ddpsim::systems {
namespace {

constexpr OpWord kQuantiseGradient =
    zero_word("quantize_gradient/bucket.", Does::Copy, Phase::Backward);
constexpr OpWord kExchange =
    zero_word("all_to_all/bucket.", Does::Communicate, Phase::Backward, Operation::AllToAll);
constexpr OpWord kSumQuantised = zero_word("sum_quantized/bucket.", Does::Copy, Phase::Backward);
constexpr OpWord kExchangeAcross =
    zero_word("all_to_all/across.bucket.", Does::Communicate, Phase::Backward, Operation::AllToAll);
constexpr OpWord kDequantiseGradient =
    zero_word("dequantize_gradient/bucket.", Does::Copy, Phase::Reduced);
constexpr OpWord kMeanOfHosts = zero_word("mean/bucket.", Does::Copy, Phase::Reduced);
constexpr OpWord exchange_scales_word(const char* name) {
  return {name,
          {.does = Does::Communicate,
           .phase = Phase::Backward,
           .of = Of::Number,
           .operation = Operation::AllToAll,
           .in_micro_step = true}};
}
constexpr OpWord kExchangeScales = exchange_scales_word("all_to_all/scales.");
constexpr OpWord kExchangeScalesAcross = exchange_scales_word("all_to_all/across.scales.");
constexpr OpWord kExchangeWords[] = {kQuantiseGradient,   kExchange,       kExchangeScales,
                                     kSumQuantised,       kExchangeAcross, kExchangeScalesAcross,
                                     kDequantiseGradient, kMeanOfHosts};

constexpr auto kOfReductions = ZeroStep::kReduce;

std::uint32_t scatter_alone(ZeroStep& s, const ZeroJob& job, TensorIndex t) {
  const std::int64_t n = job.elements(t);
  const std::int64_t padded = (n + job.ranks - 1) / job.ranks * job.ranks;
  const std::uint32_t k = s.bucket({t}, n, padded);
  if (padded != n) s.copy(kOfReductions, kInterleave, k, 2 * job.size * padded);
  s.copy(kOfReductions, kZeroAverage, k, 2 * job.size * padded);
  s.collective(kOfReductions, kScatterBucket, k, job.size * padded, job.type, world_lane(job));
  return k;
}

void exchange(ZeroStep& s, const ZeroJob& job, std::uint32_t k, std::uint8_t group,
              std::int64_t bytes, std::int64_t scales) {
  const bool across = group == across_group(job.zero, job.ranks);
  const Lane lane = group_lane(job, group);
  const std::uint32_t values = s.collective(kOfReductions, across ? kExchangeAcross : kExchange, k,
                                            bytes, DType::UInt8, lane);
  s.b.step.ops[values].group = group;
  const std::uint32_t after =
      s.collective(kOfReductions, across ? kExchangeScalesAcross : kExchangeScales, k, 4 * scales,
                   DType::Float32, lane);
  s.b.step.ops[after].group = group;
}

}  // namespace

std::span<const OpWord> zero_exchange_words() {
  return kExchangeWords;
}

std::uint32_t exchange_gradients(ZeroStep& s, const ZeroJob& job,
                                 const std::vector<TensorIndex>& tensors) {
  const std::int64_t local = job.timed.per_host;
  const std::int64_t hosts = job.ranks / local;
  std::uint32_t k = 0;
  for (TensorIndex t : tensors) {
    const std::int64_t scales = gradient_groups(job.w.tensors[t], job.ranks);
    if (scales == 0) {
      k = scatter_alone(s, job, t);
      continue;
    }
    const std::int64_t n = job.elements(t);
    const std::int64_t whole = n / 2 + 4 * scales;  // bytes
    const std::int64_t part = whole / local;
    // What is sent and what comes, twice, and halves.
    const std::int64_t beside = 2 * whole + 2 * part + job.size * (n / local);
    k = s.bucket({t}, n, n);
    s.b.allocate(Holds::Temporaries, beside);
    s.copy(kOfReductions, kQuantiseGradient, k, job.size * n + whole);
    exchange(s, job, k, local_group(job.zero, job.ranks), n / 2, scales);
    s.copy(kOfReductions, kSumQuantised, k, whole + part);
    exchange(s, job, k, across_group(job.zero, job.ranks), n / 2 / local, scales / local);
    s.copy(kOfReductions, kDequantiseGradient, k, part + job.size * (n / local));
    // 0 + the first, and each other one; the quotient.
    const std::int64_t own = job.size * (n / job.ranks);
    s.copy(kOfReductions, kMeanOfHosts, k, (2 + 3 * (hosts - 1) + 2) * own, hosts + 1);
    s.b.release(Holds::Temporaries, beside);
  }
  return k;
}

}  // namespace ddpsim::systems
