#include "sim/predict/left_out.h"

#include "sim/systems/base/record.h"

namespace ddpsim::predict {
namespace {

// "1.13" of "1.13.1+cpu".
std::string release_of(const std::string& version) {
  const auto first = version.find('.');
  return version.substr(0, version.find_first_not_of("0123456789", first + 1));
}

// Autocast, where a system trains in halves of its own.
std::string whose_halves(const Workload& w, const Plan& plan) {
  auto* const advice = systems::record_of(plan.system).advice;
  const bool casts =
      is_half(w.precision) && w.basis == Basis::Described && w.casting == Casting::Autocast;
  return advice && casts ? advice(w, plan) : std::string();
}

}  // namespace

std::vector<std::string> what_is_left_out(const Workload& w, const Plan& plan) {
  std::vector<std::string> out;
  for (const NotCounted& n : w.not_counted) out.push_back(in_words(n));
  if (std::string note = whose_halves(w, plan); !note.empty()) out.push_back(std::move(note));
  const DescribedWith& with = w.described_with;
  if (with.pytorch.empty() || release_of(with.pytorch) == name_of(plan.pytorch)) return out;
  out.push_back("operators are those of PyTorch " + with.pytorch +
                ", which described the workload; the plan's is " + name_of(plan.pytorch));
  for (const std::string& name : with.absent)
    out.push_back("the script asked for " + name + ", which PyTorch " + with.pytorch +
                  " lacks: with another it may take other operators (ddpsim describe --python)");
  return out;
}

}  // namespace ddpsim::predict
