// What a person asks of a fabric before predicting on it: what it is made of, how far and how wide
// it is, and what is wrong with it.
#pragma once

#include <string>
#include <vector>

#include "sim/topology/fabric.h"

namespace ddpsim::topology {

// Cables that are alike.
struct LinkGroup {
  std::string what;  // "gpu - nvswitch", "NIC - leaf switch", "leaf switch - spine switch"
  LinkKind kind = LinkKind::Net;
  std::string transport;
  Bandwidth bandwidth;  // of one direction
  Duration latency;
  std::int64_t cables = 0;
};
// In order of first appearance: inside hosts, NICs, trunks. `group_of_cable`, if given: by LinkId /
// 2, index into the result.
std::vector<LinkGroup> link_groups(const Fabric& f,
                                   std::vector<std::uint32_t>* group_of_cable = nullptr);

// Longest route by links between two devices. Sources: every device up to 1,024 of them, else 64
// spread evenly.
struct Diameter {
  int links = 0;
  Duration latency;  // the longest of any route
  DeviceId from;     // of the route with the most links
  DeviceId to;
  int sources = 0;
};
Diameter diameter(const Fabric& f);

// Smallest capacity, in one direction, of a cut that parts the first half of the hosts (or,
// `inside_of` a host, of its GPUs) from the second: the maximum flow between the halves, by
// push-relabel. 0 = there is one host (GPU) only; -1 = more than 200,000 trunks, not computed.
std::int64_t bisection_between_hosts(const Fabric& f);
std::int64_t bisection_inside(const Fabric& f, HostId host);

// NIC bandwidth below a leaf or rack switch per bandwidth up from it, the worst of them; 0 = the
// pattern has no such switches.
double oversubscription(const Fabric& f);

// Switches and cables that hosts cannot do without: "each of 4 rack switches", "the one cable of
// each of 8 hosts".
std::vector<std::string> single_points_of_failure(const Fabric& f);

enum class Severity : std::uint8_t { Note, Warning, Error };
struct Finding {
  Severity severity = Severity::Note;
  std::string text;
};
// An Error: some device cannot be used together with the others.
std::vector<Finding> findings(const Fabric& f);

// NICs of a host that are no GPU's nearest, so that nothing is sent by them but by who names one; 0
// = every NIC is used, or there is one host.
int unused_nics(const Fabric& f);
// Of GPUs that span hosts: that such NICs carry nothing here, and what NCCL does with them. "" =
// every NIC is used.
std::string unused_nics_sentence(const Fabric& f, const std::vector<DeviceId>& devices);

}  // namespace ddpsim::topology
