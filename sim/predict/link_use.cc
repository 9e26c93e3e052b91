// busy(link) = sum over collectives of work * load(link) / rate(link) / step
#include "sim/predict/link_use.h"

#include "sim/cost/roofline.h"
#include "sim/play/prices.h"
#include "sim/predict/lowered.h"
#include "sim/predict/mechanisms.h"

namespace ddpsim::predict {

std::vector<LinkBusy> link_use(const Program& program, const collective::Communicator& comm,
                               const Profile& profile, Duration step, Prices& prices) {
  // By group and pattern.
  std::vector<std::vector<double>> work(1 + comm.groups.size());
  for (std::size_t g = 0; g < work.size(); ++g) work[g].resize(of_group(comm, g).patterns.size());
  for (const Op& op : program.steady.ops) {
    if (!is_collective(op.kind)) continue;
    const collective::Price& price = prices.of(op);
    for (const auto& phase : price.phases)
      if (phase.work > 0) work[op.group][price.pattern.index] += phase.work;
  }
  std::vector<double> bytes(comm.fabric->links().size());
  for (std::size_t g = 0; g < work.size(); ++g)
    for (std::size_t k = 0; k < work[g].size(); ++k)
      for (const auto& l : of_group(comm, g).patterns[k].load)
        if (work[g][k] > 0) bytes[l.link] += work[g][k] * l.per_byte;
  std::vector<LinkBusy> out;
  for (topology::LinkId link = 0; link < bytes.size(); ++link)
    if (bytes[link] > 0)
      out.push_back({link, bytes[link] / collective::link_rate(comm, profile, Level::Mid, link) /
                               static_cast<double>(step.ps)});
  return out;
}

std::vector<LinkBusy> link_use(const Question& q, Duration step, const Options& options) {
  if (q.scenario.ranks < 2) return {};
  Program program =
      options.program
          ? *options.program
          : lowered(q, step_times(q.workload, q.profile, Level::Mid, gathered_in(q.scenario.plan)),
                    systems::Steps::SteadyOnly);
  if (options.without) alter(*options.without, program, q.scenario.plan.system);
  Communicators own;
  const collective::Communicator& comm = (options.known ? *options.known : own).get(q, program);
  Prices prices(comm, q.profile, Level::Mid);
  return link_use(program, comm, q.profile, step, prices);
}

}  // namespace ddpsim::predict
