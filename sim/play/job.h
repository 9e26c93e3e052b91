// Job is one job of a simulation: what it plays, on what, at which prices. Internal to simulate.cc.
#pragma once

#include <memory>
#include <vector>

#include "sim/play/prices.h"
#include "sim/play/shared_machine.h"
#include "sim/play/simulate.h"

namespace ddpsim::predict {

inline constexpr engine::TaskId kNoTask = UINT32_MAX;

struct Job {
  // All of it is there as long as the job.
  Job(Shared& of_all, const Program& p, const collective::Communicator& c,
      const Profile& profile_of, const std::vector<RankClass>& ranks, const SimulationOptions& how)
      : shared(of_all),
        graph(of_all.graph),
        program(p),
        comm(c),
        profile(profile_of),
        classes(ranks),
        options(how),
        own_prices(how.prices ? nullptr : std::make_unique<Prices>(c, profile_of, how.level)),
        prices(how.prices ? *how.prices : *own_prices) {}
  Job(const Job&) = delete;

  Shared& shared;
  engine::TaskGraph& graph;
  const Program& program;
  const collective::Communicator& comm;
  const Profile& profile;
  const std::vector<RankClass>& classes;
  const SimulationOptions options;
  const std::unique_ptr<Prices> own_prices;
  Prices& prices;

  // Operations are decided while they are played.
  bool decides() const { return program.coordination.has_value(); }
  const collective::Price& price_of(const Op& op) const { return prices.of(op); }
};

}  // namespace ddpsim::predict
