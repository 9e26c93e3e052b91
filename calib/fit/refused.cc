#include <algorithm>
#include <cmath>

#include "calib/fit/kernels.h"
#include "calib/fit/operators.h"

namespace ddpsim::calib {
namespace {

constexpr double kSameMemory = 0.1;

// "H100" of "NVIDIA H100 80GB HBM3 (132 SMs ...)", "4090" of "GeForce RTX 4090"; "" = there is
// none. The first word of capital letters, if any, and then two digits or more.
std::string model_of(const std::string& gpu) {
  std::string name = gpu.substr(0, gpu.find('('));
  auto digit = [](char c) { return c >= '0' && c <= '9'; };
  auto capital = [](char c) { return c >= 'A' && c <= 'Z'; };
  auto inside = [&](char c) { return digit(c) || capital(c) || (c >= 'a' && c <= 'z'); };
  for (std::size_t begin = 0; begin < name.size();) {
    std::size_t end = begin;
    while (end < name.size() && inside(name[end])) ++end;
    std::string word = name.substr(begin, end - begin);
    std::size_t letters = 0;
    while (letters < word.size() && capital(word[letters])) ++letters;
    bool numbered =
        word.size() >= letters + 2 &&
        std::all_of(word.begin() + static_cast<std::ptrdiff_t>(letters), word.end(), digit);
    if (numbered) return word;
    begin = end + 1;
  }
  return {};
}

}  // namespace

std::string refused(const Profile& base, const std::vector<const Run*>& runs) {
  std::string expected = model_of(base.hardware);
  for (const Run* run : runs) {
    std::string key = run->key.empty() ? "a Run" : "Run " + run->key;
    if (run->quality.verdict == Verdict::Noisy)
      return key + " is noisy" +
             (run->quality.reasons.empty() ? "" : " (" + run->quality.reasons.front() + ")") +
             "; measure again, or leave it out of the folder";
    std::string found = model_of(run->origin.gpu);
    if (!expected.empty() && !found.empty() && expected != found)
      return key + " is of " + run->origin.gpu + ", and base profile \"" + base.name + "\" of " +
             base.hardware + "; name the base of that GPU";
    std::int64_t mebibytes = gpu_size(run->origin.gpu).mebibytes;
    double capacity = static_cast<double>(base.memory.capacity.count) / (1 << 20);
    if (mebibytes > 0 && capacity > 0 &&
        std::abs(static_cast<double>(mebibytes) / capacity - 1) > kSameMemory)
      return key + " is of a GPU with " + std::to_string(mebibytes) + " MiB, and base profile \"" +
             base.name + "\" of one with " + std::to_string(base.memory.capacity.count >> 20) +
             "; name the base of that GPU";
  }
  return {};
}

}  // namespace ddpsim::calib
