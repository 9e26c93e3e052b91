// Plans of releases, and their steps, for tests of what a release does otherwise.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/cost/roofline.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/base/settings.h"
#include "tests/support/support.h"

namespace ddpsim::test {

using systems::with_setting;

// A Program of a plan as text: a line an operation, with all that it says.
struct LoweredStep {
  Workload workload;
  StepTimes times;
  Program program;
  LoweredStep(const Plan& plan, Workload w)
      : workload(std::move(w)),
        times(predict::step_times(workload, profile("h100-sxm.datasheet"), Level::Mid)),
        program(lowered(plan)) {}
  Program lowered(const Plan& plan) const {
    systems::TimedWorkload timed(workload, times, DeviceKind::Gpu, 8, 4);
    timed.host_memory = systems::HostMemory{{10'000'000}, 0.05, 0.1};
    return systems::lower(timed, plan);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (std::uint32_t i = 0; i < program.steady.ops.size(); ++i)
      out.push_back(name_of(program, program.steady, i));
    return out;
  }
  std::vector<const Op*> of(const std::string& start) const {
    std::vector<const Op*> out;
    for (std::uint32_t i = 0; i < program.steady.ops.size(); ++i)
      if (name_of(program, program.steady, i).starts_with(start))
        out.push_back(&program.steady.ops[i]);
    return out;
  }
  std::int64_t bytes(const std::string& start) const {
    std::int64_t sum = 0;
    for (const Op* op : of(start)) sum += op->bytes;
    return sum;
  }
  std::int64_t traffic(const std::string& start) const {
    std::int64_t sum = 0;
    for (const Op* op : of(start)) sum += op->traffic;
    return sum;
  }
  std::string text() const {
    std::string out;
    for (std::uint32_t i = 0; i < program.steady.ops.size(); ++i) {
      const Op& op = program.steady.ops[i];
      out += name_of(program, program.steady, i) + " lane " +
             std::to_string(static_cast<int>(op.lane)) + " bytes " + std::to_string(op.bytes) +
             " traffic " + std::to_string(op.traffic) + " kernels " + std::to_string(op.kernels) +
             " lasts " + std::to_string(op.duration.ps) + " after";
      for (std::uint32_t d : deps_of(program.steady, i)) out += " " + std::to_string(d);
      out += "\n";
    }
    return out;
  }
};

inline Workload of_halves(Workload w, DType type) {
  w.precision = type == DType::BFloat16 ? Precision::Bf16 : Precision::Fp16;
  w.casting = Casting::MasterWeights;
  for (Tensor& t : w.tensors) t.dtype = type;
  return w;
}
inline Plan plan_with(System system, const std::map<std::string, std::string>& settings) {
  Plan p;
  p.system = system;
  for (const auto& [knob, setting] : settings) p = with_setting(p, knob, setting);
  return p;
}

// A plan that a row changes.
struct Met {
  std::map<std::string, std::string> settings;
  Workload workload = test::workload("resnet50");
  int accumulation_steps = 1;
};
// The release before a row's.
template <class Table>
std::string release_before(const DifferenceOf<typename Table::Change>& row) {
  const Release r = row.since;
  if (!Table::kMonths && r.patch > 0) return to_string({r.major, r.minor, r.patch - 1});
  return to_string({r.major, r.minor - 1, Release::kLast});
}
inline LoweredStep lowered_at(System system, const char* knob, const std::string& release,
                              const Met& met) {
  Plan p = plan_with(system, met.settings);
  p.accumulation_steps = met.accumulation_steps;
  p = with_setting(p, knob, release);
  EXPECT_NE(systems::setting_of(p, knob), "");
  return {p, met.workload};
}

}  // namespace ddpsim::test
