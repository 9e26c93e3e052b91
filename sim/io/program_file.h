// A file of ddpsim.program/1 (docs/formats.md) as a Program that can be played: what
// `ddpsim show program --format json` wrote, what a recorder of a real system wrote, or what
// somebody wrote by hand.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/io/codecs.h"

namespace ddpsim::io {

struct ProgramFile {
  Program program;              // worker_threads: 0 = the file does not say
  std::string name;             // "" = the file does not say
  std::vector<Tensor> tensors;  // of Program::tensor_names
  int ranks = 0;
  int batch = 0;                   // samples of a rank and micro-step; 0 = the file does not say
  std::optional<Backend> backend;  // none: whichever the plan has
  std::string recorded_from;       // "PyTorch 2.7.0": durations are the recording machine's
  bool of_any_ranks = false;       // no count of bytes depends on the number of ranks
};

// For devices of this kind. A file that names no device has its computation on lane `compute` and
// its collectives on lane `comm`, which are the host's thread and its workers on a CPU. Throws
// InputError, also where nothing can play what the file asks for.
ProgramFile read_playable(const Json& j, const std::string& file, DeviceKind device);

// The file's "groups" (program.h). `ranks` < 1: the file does not say.
std::vector<RankGroups> read_groups(const Reader& all, std::int64_t ranks);
// Ranks of a collective, as the file names them: those of the group that `rank` is in. Empty = all.
std::vector<std::int64_t> read_group(const Reader& r, std::int64_t ranks, std::int64_t rank,
                                     const std::vector<RankGroups>& groups);
inline constexpr std::size_t kMostGroups = 100;
inline constexpr std::size_t kMostListedOps = 1'000'000;  // of a step
inline constexpr std::int64_t kMostBytesOfOne =
    1'000'000'000'000'000;  // of one tensor, or one operation
inline constexpr std::int64_t kMostPicoseconds = 1'000'000'000'000'000;  // of one operation
inline constexpr std::int64_t kMostCount = 1'000'000'000;

}  // namespace ddpsim::io
