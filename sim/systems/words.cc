#include "sim/systems/base/words.h"

#include <algorithm>
#include <cstring>

#include "sim/systems/base/own_work.h"
#include "sim/systems/base/record.h"

namespace ddpsim::systems {
namespace {

constexpr OpWord kShared[] = {kLaunch,   kLoadInput,     kAwaitInput,   kCopyInput,  kZeroGrad,
                              kForward,  kBackward,      kBackwardTail, kAccumulate, kUnscale,
                              kClip,     kAwaitFinite,   kReadLoss,     kOptimizer,  kHostUnscale,
                              kHostClip, kHostOptimizer, kStageToHost,  kStageBack};

bool digits(std::string_view s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string_view without_micro_step(std::string_view name) {
  auto slash = name.find('/');
  bool named = name.starts_with("micro") && slash != std::string_view::npos &&
               digits(name.substr(5, slash - 5));
  return named ? name.substr(slash + 1) : name;
}

bool fits(const OpWord& word, std::string_view name) {
  if (!name.starts_with(word.name)) return false;
  std::string_view rest = name.substr(std::strlen(word.name));
  switch (word.kind.of) {
    case Of::Nothing:
      return rest.empty();
    case Of::Number:
    case Of::Bucket:
      return digits(rest);
    case Of::Tensor:
    case Of::Operation:
    case Of::Label:
      return !rest.empty();
  }
  return false;
}

std::vector<OpWord> gather() {
  std::vector<OpWord> out(std::begin(kShared), std::end(kShared));
  out.insert(out.end(), own_words().begin(), own_words().end());
  for (const SystemRecord& s : all_systems()) out.insert(out.end(), s.words.begin(), s.words.end());
  // The longest first: a bucket's word is tried before that of a tensor.
  std::stable_sort(out.begin(), out.end(), [](const OpWord& a, const OpWord& b) {
    return std::strlen(a.name) > std::strlen(b.name);
  });
  return out;
}

}  // namespace

const std::vector<OpWord>& all_words() {
  static const std::vector<OpWord> words = gather();
  return words;
}

std::optional<OpKind> kind_of(std::string_view name) {
  std::string_view bare = without_micro_step(name);
  for (const OpWord& word : all_words())
    if (fits(word, bare)) return word.kind;
  return {};
}

}  // namespace ddpsim::systems
