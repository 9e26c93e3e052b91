// Fabric: a Cluster as directed links with capacities, and routes between devices. The only room that sees Boost.Graph (graph_routes.cc).
//
// Devices are numbered host by host. Inside a host a message crosses the sender's and the receiver's intra link; between hosts it leaves by the
// sender's NIC (local index * nics / devices per host), crosses the pattern, and enters by the receiver's NIC.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/model/cluster.h"

namespace ddpsim::topology {

using LinkId = std::uint32_t;  // one direction

struct Link {
  Bandwidth bandwidth;
  Duration latency;
  Bytes burst;
  Bandwidth peak;
  std::uint8_t transport = 0;  // index into Fabric::transports
};

struct Route {
  std::vector<LinkId> links;
  Duration latency;            // sum over links
  std::uint8_t transport = 0;  // of the link that decides the software path: the NIC's between hosts, intra inside
};

// Next hop tables of a `graph` cluster: paths with the fewest links, ties by the order of links in the file.
struct GraphRoutes {
  std::vector<int> host_node;                      // node of each host
  std::vector<std::vector<std::uint32_t>> inbound;  // [host][node]: directed link by which the path from host enters node; UINT32_MAX = none
  std::vector<int> link_from;                      // node at the start of each directed link
};
GraphRoutes route_graph(const Cluster& c);

class Fabric {
 public:
  // REQUIRES: validate(cluster) found nothing.
  explicit Fabric(const Cluster& cluster);
  int devices() const { return cluster_.devices(); }
  int host_of(int device) const { return device / cluster_.devices_per_host; }
  // Rack or leaf of a host; 0 where there are none.
  int group_of(int host) const { return cluster_.pattern == Pattern::Racks || cluster_.pattern == Pattern::FatTree ? host / group_size_ : 0; }
  int nic_of(int device) const { return (device % cluster_.devices_per_host) * cluster_.nics_per_host / cluster_.devices_per_host; }
  const std::vector<Link>& links() const { return links_; }
  const std::vector<std::string>& transports() const { return transports_; }
  const Cluster& cluster() const { return cluster_; }
  // REQUIRES: both exist, from != to, reachable(from, to). Reuses the storage of `route`.
  void find_route(int from, int to, Route& route) const;
  bool reachable(int from, int to) const;
  std::string link_name(LinkId link) const;

 private:
  LinkId add(const LinkSpec& spec);  // both directions; returns the first
  std::uint8_t transport_id(const std::string& name);
  Cluster cluster_;
  std::vector<Link> links_;
  std::vector<std::string> transports_;
  LinkId intra_base_ = 0;   // device * 2: up, + 1: down
  LinkId nic_base_ = 0;     // (host * nics + nic) * 2
  LinkId trunk_base_ = 0;   // racks: rack * 2; fat tree: (leaf * spines + spine) * 2; graph: link * 2
  int group_size_ = 1;      // hosts per rack or leaf
  std::uint8_t net_transport_ = 0;
  std::uint8_t intra_transport_ = 0;
  GraphRoutes graph_;
};

// The first pair of hosts, among the first `ranks` devices, that cannot reach one another; empty message = all can.
Problem check_reachable(const Fabric& f, const std::vector<int>& devices);

}  // namespace ddpsim::topology
