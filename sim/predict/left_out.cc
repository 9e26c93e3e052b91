#include "sim/predict/left_out.h"

#include <cstdio>

#include "sim/units/units.h"

namespace ddpsim::predict {
namespace {

std::string flops_text(double flops) {
  char text[40];
  for (auto [size, unit] : {std::pair{1e15, "PFLOP"}, {1e12, "TFLOP"}, {1e9, "GFLOP"}})
    if (flops >= size) {
      std::snprintf(text, sizeof text, "%.3g %s", flops / size, unit);
      return text;
    }
  std::snprintf(text, sizeof text, "%.3g MFLOP", flops / 1e6);
  return text;
}

// "1.13" of "1.13.1+cpu".
std::string release_of(const std::string& version) {
  const auto first = version.find('.');
  return version.substr(0, version.find_first_not_of("0123456789", first + 1));
}

}  // namespace

void say_what_is_left_out(const Workload& w, const Plan& plan, std::vector<std::string>& out) {
  for (const NotCounted& n : w.not_counted) {
    std::string text = "not counted: " + n.what;
    if (n.flops > 0) text += ", " + flops_text(n.flops) + " a step";
    if (n.bytes > 0) text += ", " + to_string(Bytes{static_cast<std::int64_t>(n.bytes)});
    out.push_back(std::move(text));
  }
  const DescribedWith& with = w.described_with;
  if (with.pytorch.empty() || release_of(with.pytorch) == name_of(plan.pytorch)) return;
  out.push_back("operators are those of PyTorch " + with.pytorch +
                ", which described the workload; the plan's is " + name_of(plan.pytorch));
  for (const std::string& name : with.absent)
    out.push_back("the script asked for " + name + ", which PyTorch " + with.pytorch +
                  " lacks: with another it may take other operators (ddpsim describe --python)");
}

}  // namespace ddpsim::predict
