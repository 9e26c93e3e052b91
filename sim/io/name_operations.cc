#include "sim/io/name_operations.h"

#include <algorithm>
#include <cstring>

#include "sim/systems/base/words.h"

namespace ddpsim::io {
namespace {

bool all_digits(std::string_view s) {
  return !s.empty() && s.size() < 9 &&
         std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// "allreduce/bucket.7": 7. -1: no number below the most that a step has of operations.
std::size_t last_number(const std::string& name) {
  std::string_view digits = name;
  digits.remove_prefix(name.find_last_not_of("0123456789") + 1);
  if (!all_digits(digits)) return std::size_t(-1);
  std::size_t n = std::stoul(std::string(digits));
  return n < kMostListedOps ? n : std::size_t(-1);
}

class OperationNames {
 public:
  explicit OperationNames(ProgramHead& head) : head_(head), program_(head.file.program) {}

  void name(ListedStep& listed, std::uint32_t i) {
    const StatedOp& c = listed.stated[i];
    StepProgram& step = listed.step;
    Op& op = step.ops[i];
    if (is_launch(c.kind)) {
      constexpr std::string_view kPrefix = "launch/";
      auto it = c.name.starts_with(kPrefix) ? listed.number_of.find(c.name.substr(kPrefix.size()))
                                            : listed.number_of.end();
      if (it == listed.number_of.end())
        listed.ops[i].at("op").fail(
            "a launch is called launch/X, where X is the operation that it launches");
      op.kind = systems::kLaunch.kind;
      op.word = number_of_word(systems::kLaunch.name);
      op.subject = it->second;
      return;
    }
    for (const OpWord& word : systems::all_words())
      if (names(word, c, listed, i)) return;
    op.word = number_of_word("");
    op.micro = -1;
    op.kind = c.kind;
    op.kind.of = Of::Label;
    op.kind.touches = c.tensors.empty() ? Touches::Nothing : Touches::Bucket;
    op.subject = number_of_label(c, op, step);
    divide(op, c, step);
  }

 private:
  // Whether this word says all that the file says of the operation; if so it is that.
  bool names(const OpWord& word, const StatedOp& c, ListedStep& listed, std::uint32_t i) {
    StepProgram& step = listed.step;
    if (word.kind.does != c.kind.does || word.kind.phase != c.kind.phase ||
        word.kind.divides != c.kind.divides ||
        (is_collective(c.kind) && word.kind.operation != c.kind.operation))
      return false;
    std::string_view rest = c.name;
    int micro = -1;
    if (auto slash = rest.find('/'); word.kind.in_micro_step && rest.starts_with("micro") &&
                                     slash != std::string_view::npos &&
                                     all_digits(rest.substr(5, slash - 5)) && slash < 10) {
      micro = std::stoi(std::string(rest.substr(5, slash - 5)));
      rest.remove_prefix(slash + 1);
    }
    if (!rest.starts_with(word.name)) return false;
    rest.remove_prefix(std::strlen(word.name));
    Op op = step.ops[i];
    op.kind = word.kind;
    op.word = number_of_word(word.name);
    op.micro = static_cast<std::int16_t>(micro);
    if (!find_subject(rest, listed, op)) return false;
    bool of_bucket = op.kind.touches == Touches::Bucket;
    if (of_bucket && op.kind.of == Of::Nothing) op.subject = 0;
    if (of_bucket ? !holds(step, op.subject, c.tensors) : tensors_of_word(op) != c.tensors)
      return false;
    step.ops[i] = op;
    // "micro007/fwd". An operation that another one is named after may have no name yet.
    if (op.kind.of != Of::Operation && name_of(program_, step, i) != c.name) return false;
    if (of_bucket) fill(step, op.subject, c, op);
    divide(op, c, step);
    return true;
  }

  bool find_subject(std::string_view rest, const ListedStep& listed, Op& op) {
    switch (op.kind.of) {
      case Of::Nothing:
        return rest.empty();
      case Of::Number:
      case Of::Bucket:
        if (!all_digits(rest)) return false;
        op.subject = static_cast<std::uint32_t>(std::stoul(std::string(rest)));
        return op.kind.of == Of::Number || op.subject < program_.labels.size();
      case Of::Tensor: {
        auto it = head_.tensor_numbers.find(std::string(rest));
        if (it == head_.tensor_numbers.end()) return false;
        op.subject = it->second;
        return true;
      }
      case Of::Label: {
        auto [it, fresh] =
            labels_.emplace(rest, static_cast<std::uint32_t>(program_.labels.size()));
        if (fresh) program_.labels.emplace_back(rest);
        op.subject = it->second;
        return !rest.empty();
      }
      case Of::Operation: {
        auto it = listed.number_of.find(std::string(rest));
        if (it == listed.number_of.end()) return false;
        op.subject = it->second;
        return true;
      }
    }
    return false;
  }

  std::vector<TensorIndex> tensors_of_word(const Op& op) const {
    if (op.kind.touches == Touches::Tensor) return {op.subject};
    std::vector<TensorIndex> all;
    if (op.kind.touches == Touches::Everything)
      for (TensorIndex t = 0; t < program_.tensor_names.size(); ++t) all.push_back(t);
    return all;
  }

  std::uint16_t number_of_word(const char* name) {
    auto at = std::find(program_.words.begin(), program_.words.end(), name);
    auto number = static_cast<std::uint16_t>(at - program_.words.begin());
    if (at == program_.words.end()) program_.words.emplace_back(name);
    return number;
  }

  // Of an operation that is its own word: its name, whose bucket is not another's.
  std::uint32_t number_of_label(const StatedOp& c, const Op& op, StepProgram& step) {
    auto [it, fresh] = labels_.emplace(c.name, static_cast<std::uint32_t>(program_.labels.size()));
    if (fresh) program_.labels.push_back(c.name);
    std::uint32_t label = it->second;
    if (op.kind.touches == Touches::Bucket) {
      if (!holds(step, label, c.tensors)) {
        label = static_cast<std::uint32_t>(program_.labels.size());
        program_.labels.push_back(c.name);
      }
      fill(step, label, c, op);
    }
    return label;
  }

  // Whether the step's bucket of this number is free, or has these tensors.
  static bool holds(const StepProgram& step, std::size_t bucket,
                    const std::vector<TensorIndex>& tensors) {
    return !tensors.empty() &&
           (bucket >= step.buckets.size() || step.buckets[bucket].tensors.empty() ||
            step.buckets[bucket].tensors == tensors);
  }
  void fill(StepProgram& step, std::size_t bucket, const StatedOp& c, const Op& op) const {
    if (bucket >= step.buckets.size()) step.buckets.resize(bucket + 1);
    Bucket& b = step.buckets[bucket];
    b.tensors = c.tensors;
    b.bytes = {};
    for (TensorIndex t : c.tensors) b.bytes += Bytes{program_.tensor_bytes[t]};
    if (!is_collective(op.kind)) return;
    b.wire_bytes = {op.bytes};
    b.dtype = op.dtype;
  }
  static void divide(const Op& op, const StatedOp& c, StepProgram& step) {
    if (op.cost != Cost::HalfDivision) return;
    if (op.subject >= step.buckets.size()) step.buckets.resize(op.subject + 1);
    step.buckets[op.subject].wire_bytes = {c.divided};
  }

  const ProgramHead& head_;
  Program& program_;
  std::unordered_map<std::string, std::uint32_t> labels_;
};

}  // namespace

void name_operations(std::vector<ListedStep>& steps, ProgramHead& head) {
  // Buckets that operations number; those of labels come after them.
  std::size_t numbered = 0;
  for (const ListedStep& l : steps)
    for (const StatedOp& c : l.stated) numbered = std::max(numbered, last_number(c.name) + 1);
  head.file.program.labels.resize(numbered);
  OperationNames names(head);
  for (ListedStep& l : steps)
    for (std::uint32_t i = 0; i < l.ops.size(); ++i) names.name(l, i);
}

}  // namespace ddpsim::io
