// Which samples a rank sees in an epoch: PyTorch's DistributedSampler
// (torch/utils/data/distributed.py) and the batches that a DataLoader makes of them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ddpsim {

// REQUIRES of every function: samples, ranks, batch and accumulation at least 1.
struct Sampling {
  std::int64_t samples = 1;
  int ranks = 1;
  std::int64_t batch = 1;  // of a rank, a micro-step
  int accumulation = 1;    // micro-steps of a step
  bool drop_last = false;  // DistributedSampler(drop_last=True): what does not go round is left
                           // out, else the first ones are repeated
  bool drop_last_batch = false;  // DataLoader(drop_last=True): a batch that is not full is left out
};

// Every rank has as many samples and the same batches.
struct Epoch {
  std::int64_t per_rank = 0;    // samples
  std::int64_t padding = 0;     // samples that somebody sees twice, of all ranks
  std::int64_t dropped = 0;     // samples that nobody sees, of all ranks
  std::int64_t batches = 0;     // micro-steps of a rank
  std::int64_t last_batch = 0;  // samples in the last of them; 0: there is none
  std::int64_t steps = 0;       // ceil(batches / accumulation)
  std::int64_t last_step = 0;   // micro-steps of the last step
};
Epoch epoch_of(const Sampling& s);

// torch.randperm(n) of a CPU generator with this seed: MT19937, and z = random() % (n - i) for the
// i-th exchange. REQUIRES: 0 <= n < 2^32 / 20 (PyTorch draws otherwise beyond).
std::vector<std::int64_t> permutation(std::int64_t n, std::uint64_t seed);
inline constexpr std::int64_t kMostPermuted = (std::int64_t{1} << 32) / 20;

// Indices of the data set that a rank sees, in order: every ranks-th of the order from its own
// number on. `seed`: the sampler's seed plus set_epoch()'s number; none: shuffle=False.
std::vector<std::int64_t> samples_of(const Sampling& s, int rank,
                                     std::optional<std::uint64_t> seed);

}  // namespace ddpsim
