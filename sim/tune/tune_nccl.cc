#include "sim/tune/tune_nccl.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "sim/collective/communicator.h"
#include "sim/systems/base/settings.h"

namespace ddpsim::predict {
namespace {

bool same(const nccl::Choice& a, const nccl::Choice& b) {
  return a.algorithm == b.algorithm && a.protocol == b.protocol && a.channels == b.channels;
}

// What NCCL could run for a size: its own channels first, so that equals stay with them.
std::vector<nccl::Choice> choices_of(const nccl::Group& g, const TunedSize& s) {
  std::vector<nccl::Choice> out;
  for (const nccl::Candidate& c : nccl::candidates(g, s.op, s.bytes)) {
    if (!c.estimate) continue;
    const int own = nccl::complete(g, s.op, c.algorithm, c.protocol, s.bytes).channels;
    std::vector<int> counts{own};
    for (int n = 1; n < own; n *= 2) counts.push_back(n);
    for (int n : counts) {
      const nccl::Choice made = nccl::complete(g, s.op, c.algorithm, c.protocol, s.bytes, n);
      if (std::none_of(out.begin(), out.end(), [&](const auto& o) { return same(o, made); }))
        out.push_back(made);
    }
  }
  return out;
}

class Tuner {
 public:
  Tuner(const Question& q, const Options& options) : q_(q), options_(options) {
    options_.known = &known_;
    options_.warmup = false;
  }

  NcclTuning tune() {
    const SteadyStep step = steady_step(q_, Level::Mid, options_);
    out_.simulations = 1;
    out_.own = step.period;
    job_ = &known_.get(q_, step.program);
    find_sizes(step.program);
    out_.alone = simulate_with(rows_of(out_.sizes, &TunedSize::alone));
    const bool from_alone = out_.alone < out_.own;
    for (TunedSize& s : out_.sizes) s.overlap = from_alone ? s.alone : s.own;
    out_.overlap = std::min(out_.alone, out_.own);
    for (TunedSize& s : out_.sizes) improve(s);
    for (TunedSize& s : out_.sizes) s.overlap_alone = price(s, s.overlap);
    return std::move(out_);
  }

 private:
  Duration simulate_with(std::vector<nccl::Tuned> rows) {
    known_.tune(std::move(rows));
    ++out_.simulations;
    return steady_period(q_, Level::Mid, options_);
  }

  const nccl::Group& group(const TunedSize& s) const {
    const auto key = std::tuple(s.op, s.bytes, s.nodes, s.ranks);
    return *nccl_group(collective::of_group(*job_, of_.at(key)));
  }
  Duration price(const TunedSize& s, const nccl::Choice& c) const {
    return nccl::time_of(group(s), q_.profile, Level::Mid, s.op, c, {s.bytes}).total;
  }

  void find_sizes(const Program& program) {
    std::map<std::tuple<Operation, std::int64_t, int, int>, TunedSize> found;
    for (const Op& op : program.steady.ops) {
      if (!is_collective(op.kind) || !nccl::is_chosen_for(op.kind.operation) || op.bytes == 0)
        continue;
      const collective::Communicator& c = collective::of_group(*job_, op.group);
      const nccl::Group* group = nccl_group(c);
      if (!group) continue;
      const auto key =
          std::tuple(op.kind.operation, op.bytes, nccl::nodes(*group), nccl::ranks(*group));
      of_.try_emplace(key, op.group);
      TunedSize& s = found[key];
      std::tie(s.op, s.bytes, s.nodes, s.ranks) = key;
      ++s.times;
    }
    for (auto& [key, s] : found) {
      s.own = *nccl::choose(group(s), s.op, s.bytes);
      s.own_alone = price(s, s.own);
      s.alone = s.own;
      s.alone_alone = s.own_alone;
      for (const nccl::Choice& c : choices_of(group(s), s))
        if (const Duration d = price(s, c); d < s.alone_alone) s.alone = c, s.alone_alone = d;
      out_.sizes.push_back(s);
    }
    std::stable_sort(out_.sizes.begin(), out_.sizes.end(),
                     [](const TunedSize& a, const TunedSize& b) {
                       return a.own_alone * a.times > b.own_alone * b.times;
                     });
    if (out_.sizes.size() <= kMostTunedSizes) return;
    out_.left_out = out_.sizes.size() - kMostTunedSizes;
    out_.sizes.resize(kMostTunedSizes);
  }

  void improve(TunedSize& s) {
    nccl::Choice best = s.overlap;
    for (const nccl::Choice& c : choices_of(group(s), s)) {
      if (same(c, best)) continue;
      s.overlap = c;
      const Duration step = simulate_with(rows_of(out_.sizes, &TunedSize::overlap));
      if (step >= out_.overlap) continue;
      out_.overlap = step;
      best = c;
    }
    s.overlap = best;
  }

  const Question& q_;
  Options options_;
  Communicators known_;
  const collective::Communicator* job_ = nullptr;
  // Of each size, the communicator: Op::group.
  std::map<std::tuple<Operation, std::int64_t, int, int>, int> of_;
  NcclTuning out_;
};

}  // namespace

std::vector<nccl::Tuned> rows_of(const std::vector<TunedSize>& sizes,
                                 nccl::Choice TunedSize::*which) {
  std::vector<nccl::Tuned> out;
  for (const TunedSize& s : sizes) {
    const nccl::Choice& c = s.*which;
    out.push_back({s.op, s.bytes, s.bytes, c.algorithm, c.protocol, c.channels, s.nodes, s.ranks});
  }
  return out;
}

std::string nothing_to_tune(const Question& q) {
  if (backend_of(q.scenario.plan, q.profile.kind) != Backend::Nccl)
    return "its backend is not NCCL, which alone reads such a file";
  if (q.scenario.ranks < 2) return "one rank communicates with nobody";
  if (q.profile.compute.capability == 0)
    return "profile \"" + q.profile.name +
           "\" names no compute capability, so what NCCL would choose is not known";
  return "";
}

NcclTuning tune_nccl(const Question& q, const Options& options) {
  return Tuner(q, options).tune();
}

}  // namespace ddpsim::predict
