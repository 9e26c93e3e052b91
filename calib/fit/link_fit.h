// Costs of a kind of link, fitted to tables of nccl-tests: one latency and one efficiency for each
// kind, of several machines' tables together. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "calib/fit/collective_table.h"

namespace ddpsim::calib {

// One latency and one efficiency for a kind of link. Inside a host a step is the GPU's work, and
// the latency a factor of what the profile has (TransportSection::step_factor); between hosts it is
// what this network takes more than the profile's, whatever the protocol.
struct LinkFit {
  double step_factor = 1;
  double slower_us = 0;  // less than 0: this network is faster; only between hosts
  double efficiency = 1;
  int tables = 0;       // that had a say in the efficiency besides the prior, which counts as one
  int step_tables = 0;  // ... in the latency
  // Whether rows of tables say what it is; if not, it is the profile's own, or any larger one.
  bool efficiency_told = false;
  bool steps_told = false;
};
using LinkFits = std::map<std::string, LinkFit>;  // by transport
// "x 1.40", or of a network "+6.5 us".
std::string steps_text(const std::string& transport, const LinkFit& fit);

// The profile, its transports as the fits say them.
Profile with_fits(Profile profile, const LinkFits& fits);

// Fits from tables whose machine is not `without` ("" = all). The prior is the tables' own
// profiles. In the latency of steps inside a host only tables of one host and of this generation of
// GPUs have a say: such a step is work of the GPU, and what a network lacks is not NVLink's. Rows
// that judge a value are chosen before it is searched for.
LinkFits fit_links(const std::vector<CollectiveTable>& tables, const std::string& without,
                   int generation);

// For all links at once: no efficiencies, and no factors of steps, that leave more than the base's.
void refuse_worse(const std::vector<CollectiveTable>& tables, LinkFits& fits);

}  // namespace ddpsim::calib
