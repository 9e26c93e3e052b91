// What a step's operations take, and what each of them waits for. Internal to simulate.cc.
#pragma once

#include <algorithm>
#include <vector>

#include "sim/play/implied.h"
#include "sim/play/job_flows.h"

namespace ddpsim::predict {

class StepFacts {
 public:
  StepFacts(const Job& job, const Flows& flows)
      : job_(job), flows_(flows), lanes_(kLanes + job.program.streams.size()) {}

  // The step whose operations follow.
  void prepare_for(const StepProgram& s) {
    if (&s == prepared_for_) return;
    prepared_for_ = &s;
    extra_deps_ = by_operation(s);
    durations_.clear();
    durations_.reserve(s.ops.size());
    for (const Op& op : s.ops)
      durations_.push_back(price(op, s, job_.program, job_.profile, job_.options.level));
    implied_.assign(s.ops.size(), kNoOp);
    if (!decides_ && !job_.program.servers && flows_.same_for_all()) {
      std::vector<Duration> taken;
      taken.reserve(s.ops.size());
      for (std::uint32_t i = 0; i < s.ops.size(); ++i) taken.push_back(duration_of(i, 0, -1));
      implied_ = implied_launches(s, taken, extra_deps_, lanes_);
    }
    awaited_ = awaited_ops(s);
    has_extra_.assign(s.ops.size(), 0);
    for (const auto& e : extra_deps_) has_extra_[e.op] = 1;
  }

  Duration duration_of(std::uint32_t op, std::size_t c, int steady_index) const {
    Duration d = durations_[op];
    if (is_input(prepared_for_->ops[op].kind)) return d;  // no slow rank's
    const RankClass& rc = job_.classes[c];
    double f = rc.factor;
    if (steady_index >= 0 && static_cast<std::size_t>(steady_index) < rc.step_factors.size())
      f *= rc.step_factors[steady_index];
    return f == 1 ? d : scale(d, f);
  }

  // For more than its lane's last. REQUIRES: prepare_for(s).
  bool waits_itself(const StepProgram& s, std::uint32_t i) const {
    const Op& op = s.ops[i];
    for (std::uint32_t d : op.dep)
      if (d != kNoOp && !is_implied(i, d)) return true;
    return has_extra_[i] != 0 || (decides_ && waits_for_requests(op.kind));
  }

  // Of operation `i`, beside its lane's last. No step but the prepared one has `implied` ones.
  template <typename Each>
  void for_each_dep(const StepProgram& s, std::uint32_t i, Each each) const {
    bool prepared = &s == prepared_for_;  // what is decided meanwhile is not
    for (std::uint32_t d : s.ops[i].dep)
      if (d != kNoOp && !(prepared && is_implied(i, d))) each(d);
    if (s.extra_deps.empty()) return;
    const std::vector<StepProgram::ExtraDep>& deps = prepared ? extra_deps_ : s.extra_deps;
    auto e = !prepared ? deps.begin() + decided_deps_
                       : std::lower_bound(deps.begin(), deps.end(), i,
                                          [](const auto& d, auto op) { return d.op < op; });
    for (; e != deps.end() && (!prepared || e->op == i); ++e)
      if (e->op == i) each(e->dep);
  }

  // Without the class's factor.
  const std::vector<Duration>& durations() const { return durations_; }
  const StepProgram& prepared() const { return *prepared_for_; }
  bool is_awaited(std::uint32_t op) const { return awaited_[op] != 0; }
  std::size_t lanes() const { return lanes_; }
  // The step that is decided meanwhile has so many extra dependencies from before.
  void set_decided(std::size_t deps) { decided_deps_ = deps; }

 private:
  bool is_implied(std::uint32_t op, std::uint32_t dep) const { return implied_[op] == dep; }

  // Operations that another one names as a dependency.
  std::vector<std::uint8_t> awaited_ops(const StepProgram& s) const {
    std::vector<std::uint8_t> awaited(s.ops.size(), 0);
    for (std::uint32_t i = 0; i < s.ops.size(); ++i)
      for (std::uint32_t d : s.ops[i].dep)
        if (d != kNoOp && !is_implied(i, d)) awaited[d] = 1;
    for (const auto& e : s.extra_deps) awaited[e.dep] = 1;
    awaited.back() = 1;
    if (!decides_) return awaited;
    for (std::uint32_t made : s.made_by)
      if (made != kNoOp) awaited[made] = 1;
    for (std::size_t i = 0; i < s.ops.size(); ++i)
      if (is_request(s.ops[i].kind) || waits_for_requests(s.ops[i].kind)) awaited[i] = 1;
    return awaited;
  }

  const Job& job_;
  const Flows& flows_;
  const std::size_t lanes_;
  const StepProgram* prepared_for_ = nullptr;  // the step whose facts follow
  std::vector<std::uint8_t> awaited_;          // by operation: another one names it as a dependency
  std::vector<std::uint8_t> has_extra_;        // by operation: it waits for more than Op::dep
  std::vector<std::uint32_t> implied_;         // by operation: a dependency that is met anyway
  std::vector<StepProgram::ExtraDep> extra_deps_;  // by operation
  std::size_t decided_deps_ = 0;  // of a step that is decided meanwhile: of its newest operations
  std::vector<Duration> durations_;  // by operation, before the class's factor
  const bool decides_ = job_.decides();
};

}  // namespace ddpsim::predict
