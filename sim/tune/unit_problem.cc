#include "sim/tune/unit_problem.h"

#include <algorithm>

#include "sim/explain/played_step.h"
#include "sim/play/kernel_wait.h"
#include "sim/systems/fsdp/fsdp.h"
#include "sim/systems/fsdp/plan.h"
#include "sim/systems/fsdp/wrapping.h"

namespace ddpsim::predict {
namespace {

constexpr std::size_t kNone = ~std::size_t{0};

// What a step's operations put into a problem, in the order in which they are issued. Of several
// micro-steps the last one's stays.
class Reading {
 public:
  Reading(const PlayedStep& step, const std::vector<systems::Unit>& units, std::size_t blocks)
      : step_(step), block_of_(units.size(), kNone) {
    std::size_t next = 0;
    for (std::size_t u = 1; u < units.size(); ++u)
      if (!units[u].empty() && next < blocks) block_of_[u] = next++;
    out_.gathered.resize(blocks);
    clear();
  }

  UnitProblem run() {
    for (std::uint32_t i = 0; i < step_.ops(); ++i) {
      const Op& op = step_.op(i);
      if (is_update(op.kind)) break;
      if (is_forward(op.kind) && back_) clear();
      back_ = back_ || systems::in_backward(op.kind);
      if (is_collective(op.kind))
        collective(op);
      else if (op.lane == Lane::Compute && is_compute(op.kind))
        computation(op, step_.span(step_.last_class(), i));
    }
    return std::move(out_);
  }
  const Op* gather() const { return gather_; }
  const Op* again() const { return again_; }
  const Op* scatter() const { return scatter_; }

 private:
  void clear() {
    const std::size_t n = out_.gathered.size();
    back_ = false;
    last_ = kNone;
    for (UnitProblem::Pass* pass : {&out_.forward, &out_.backward}) *pass = {{}, {}, {}};
    out_.forward.blocks.resize(n);
    out_.backward.blocks.resize(n);
    for (auto* bytes : {&out_.gathered, &out_.again, &out_.scattered}) bytes->assign(n, 0);
  }
  std::size_t block(const Op& op) const {
    return systems::of_unit(op.kind) && op.subject < block_of_.size() ? block_of_[op.subject]
                                                                      : kNone;
  }
  void collective(const Op& op) {
    const std::size_t b = block(op);
    if (b == kNone) return;
    const bool gathers = op.kind.operation == Operation::AllGather;
    if (!gathers && op.kind.operation != Operation::ReduceScatter) return;
    (!gathers ? out_.scattered : back_ ? out_.again : out_.gathered)[b] = op.bytes;
    (!gathers ? scatter_ : back_ ? again_ : gather_) = &op;
  }
  // The root's is before the first block or after the last; between two it is of the one that
  // computed last.
  void computation(const Op& op, const Span& span) {
    UnitProblem::Pass& pass = back_ ? out_.backward : out_.forward;
    const std::size_t n = pass.blocks.size();
    std::size_t b = block(op);
    if (b != kNone && (is_forward(op.kind) || is_backward(op.kind))) last_ = b;
    if (b == kNone) b = last_;
    const bool own = block(op) != kNone;
    Duration* to = b == kNone                 ? (back_ ? &pass.after : &pass.before)
                   : own                      ? &pass.blocks[b]
                   : b == (back_ ? 0 : n - 1) ? (back_ ? &pass.before : &pass.after)
                                              : &pass.blocks[b];
    *to = *to + (span.end - span.begin);
  }

  const PlayedStep& step_;
  std::vector<std::size_t> block_of_;  // by unit
  UnitProblem out_;
  bool back_ = false;
  std::size_t last_ = kNone;  // block that computed last
  const Op* gather_ = nullptr;
  const Op* again_ = nullptr;
  const Op* scatter_ = nullptr;
};

}  // namespace

std::optional<UnitProblem> unit_problem(const Question& q, const Options& options) {
  const std::vector<WrappedBlock> blocks = wrapped_blocks(q.workload);
  if (blocks.empty() || blocks.size() > kMostBlocks) return std::nullopt;
  Scenario s = q.scenario;
  fsdp_of(s.plan).auto_wrap_policy = "block";
  fsdp_of(s.plan).blocks_per_unit.clear();
  fsdp_of(s.plan).ends_apart = false;
  const Question each{q.workload, q.fabric, q.profile, s};
  const PlayedStep step(each, options);
  Reading reading(step, systems::fsdp_units(q.workload, s.plan), blocks.size());
  UnitProblem out = reading.run();
  if (!reading.gather() || !reading.scatter()) return std::nullopt;
  for (std::size_t b = 0; b < blocks.size(); ++b)
    out.joins.push_back(b + 1 < blocks.size() && blocks[b].list == blocks[b + 1].list);
  const collective::Communicator& job = options.known->get(each, step.program());
  const Profile& profile = q.profile;
  auto price = [&](const Op* op) -> UnitPrice {
    if (!op) return [](std::int64_t) { return Duration{}; };
    const Duration wait =
        kernel_wait(step.program(), op->group, op->lane, job.ranks(), Level::Mid).last;
    return [&job, &profile, wait, group = op->group, operation = op->kind.operation,
            type = op->dtype](std::int64_t bytes) {
      return wait + collective::price(collective::of_group(job, group), profile, Level::Mid,
                                      operation, {bytes}, type)
                        .alone;
    };
  };
  out.gather = price(reading.gather());
  out.gather_again = price(reading.again());
  out.scatter = price(reading.scatter());
  return out;
}

std::vector<UnitPartition> partitions_worth_trying(const UnitProblem& problem) {
  std::vector<UnitPartition> out;
  const std::size_t n = problem.gathered.size();
  for (std::size_t most : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128}) {
    UnitPartition p = best_units(problem, std::min(most, n));
    const bool known = std::any_of(out.begin(), out.end(),
                                   [&](const UnitPartition& o) { return o.blocks == p.blocks; });
    if (!known) out.push_back(std::move(p));
    if (most >= n) break;
  }
  return out;
}

}  // namespace ddpsim::predict
