//   per rank: ceil(samples / ranks), of drop_last floor(samples / ranks)
//   rank r has positions r, r + ranks, r + 2 ranks, ... of the order, which begins again at its end
#include "sim/model/sampler.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace ddpsim {
namespace {

// M. Matsumoto, T. Nishimura, ACM TOMACS 8(1), 1998: MT19937.
class Mt19937 {
 public:
  explicit Mt19937(std::uint32_t seed) {
    state_[0] = seed;
    for (std::uint32_t i = 1; i < kSize; ++i)
      state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  }
  std::uint32_t next() {
    if (at_ == kSize) twist();
    std::uint32_t y = state_[at_++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
  }

 private:
  static constexpr std::uint32_t kSize = 624;
  void twist() {
    for (std::uint32_t i = 0; i < kSize; ++i) {
      const std::uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % kSize] & 0x7fffffffu);
      state_[i] = state_[(i + 397) % kSize] ^ (y >> 1) ^ ((y & 1u) ? 0x9908b0dfu : 0u);
    }
    at_ = 0;
  }
  std::array<std::uint32_t, kSize> state_{};
  std::uint32_t at_ = kSize;
};

std::int64_t up(std::int64_t a, std::int64_t b) {
  return a / b + (a % b > 0 ? 1 : 0);
}

}  // namespace

Epoch epoch_of(const Sampling& s) {
  Epoch e;
  e.per_rank = s.drop_last ? s.samples / s.ranks : up(s.samples, s.ranks);
  if (s.drop_last)
    e.dropped = s.samples % s.ranks;
  else
    e.padding = e.per_rank * s.ranks - s.samples;
  const std::int64_t rest = e.per_rank % s.batch;
  e.batches = s.drop_last_batch ? e.per_rank / s.batch : up(e.per_rank, s.batch);
  if (s.drop_last_batch) e.dropped += rest * s.ranks;
  if (e.batches == 0) return e;
  e.last_batch = rest > 0 && !s.drop_last_batch ? rest : s.batch;
  e.steps = up(e.batches, s.accumulation);
  e.last_step = e.batches - (e.steps - 1) * s.accumulation;
  return e;
}

std::vector<std::int64_t> permutation(std::int64_t n, std::uint64_t seed) {
  std::vector<std::int64_t> out(n);
  std::iota(out.begin(), out.end(), 0);
  Mt19937 random(static_cast<std::uint32_t>(seed));
  for (std::int64_t i = 0; i + 1 < n; ++i) {
    const std::int64_t z = random.next() % (n - i);
    std::swap(out[i], out[i + z]);
  }
  return out;
}

std::vector<std::int64_t> samples_of(const Sampling& s, int rank,
                                     std::optional<std::uint64_t> seed) {
  const std::int64_t count = epoch_of(s).per_rank;
  std::vector<std::int64_t> order;
  if (seed) order = permutation(s.samples, *seed);
  std::vector<std::int64_t> out(count);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = (rank + i * s.ranks) % s.samples;
    out[i] = seed ? order[at] : at;
  }
  return out;
}

}  // namespace ddpsim
