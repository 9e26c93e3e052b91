#include "sim/predict/left_out.h"

namespace ddpsim::predict {
namespace {

// "1.13" of "1.13.1+cpu".
std::string release_of(const std::string& version) {
  const auto first = version.find('.');
  return version.substr(0, version.find_first_not_of("0123456789", first + 1));
}

}  // namespace

std::vector<std::string> what_is_left_out(const Workload& w, const Plan& plan) {
  std::vector<std::string> out;
  for (const NotCounted& n : w.not_counted) out.push_back(in_words(n));
  const bool halves = w.precision == Precision::Bf16 || w.precision == Precision::Fp16;
  if (plan.system == System::Zero && halves && w.basis == Basis::Described &&
      w.casting == Casting::Autocast)
    out.push_back(std::string(name_of(w.precision)) +
                  " is autocast here, with weights and gradients of 4 bytes; DeepSpeed's own " +
                  name_of(w.precision) + " is --set workload.casting=master_weights");
  if ((plan.system == System::Fsdp || plan.system == System::Fsdp2) && halves &&
      w.basis == Basis::Described && w.casting == Casting::Autocast && !plan.fsdp.param_dtype)
    out.push_back(std::string(name_of(w.precision)) +
                  " is autocast here, with weights gathered and gradients reduced in 4 bytes; "
                  "FSDP's MixedPrecision is --set param_dtype=bfloat16");
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
