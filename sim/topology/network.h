// Network: the switches of a cluster, the cables between them (trunks), and the way from one host's
// NIC to another's.
//
//   star, nvl72      one switch
//   racks            rack switches, and a core that each is joined to
//   fat_tree         leaf switches, each joined to every spine
//   rail_optimised   leaf k of a group of hosts has NIC k of each of them; every leaf is joined to
//                    every spine
//   ring, torus      a router a host, joined to its neighbours; dimension after dimension, the
//                    shorter way round, + where both are as long
//   dragonfly        routers of a group joined to one another, each two groups by one cable; the
//                    fewest cables: to the router that has the cable to the other group, across, to
//                    the router of the host
//   graph            as drawn; the fewest links
//
// A way that would cross a failed trunk is replaced by one of fewest links around it.
#pragma once

#include <string>
#include <vector>

#include "sim/model/cluster.h"

namespace ddpsim::topology {

// The hash that chooses among equal paths: MurmurHash3's 64-bit finalizer of src *
// 0x9e3779b97f4a7c15 + dst, NICs numbered host by host; path (h >> 32) * paths >> 32.
std::uint32_t ecmp_choice(std::uint32_t source_nic, std::uint32_t destination_nic,
                          std::uint32_t paths);

struct Trunk {
  int from = 0;  // switch
  int to = 0;
  std::uint32_t spec = 0;  // index into Network::specs
};

class Network {
 public:
  Network() = default;
  explicit Network(const Cluster& cluster);
  int switches() const { return switches_; }
  const std::vector<Trunk>& trunks() const { return trunks_; }
  const std::vector<LinkSpec>& specs() const { return specs_; }
  // Switch that a host's NIC is plugged into (a graph: the host's own node).
  int switch_of(HostId host, int nic) const;
  std::string switch_name(int s) const;
  // What a summary calls switches that do the same: "leaf", "spine", "router".
  const char* role_of(int s) const;
  // direction 0: from -> to, 1: back.
  std::string trunk_name(std::uint32_t trunk, int direction) const;
  // Trunks that carry nothing; to be called once, before ways are asked for.
  void fail(const std::vector<std::uint32_t>& trunks);
  bool failed(std::uint32_t trunk) const { return !failed_.empty() && failed_[trunk]; }
  bool reachable(HostId host_a, int nic_a, HostId host_b, int nic_b) const;
  // Appends 2 * trunk + direction for each trunk of the way. REQUIRES reachable.
  void find_way(HostId host_a, int nic_a, HostId host_b, int nic_b,
                std::vector<std::uint32_t>& out) const;
  // Of NICs with the same number find_way takes the same ways, to any NIC (from any NIC): the
  // switch and, where it matters, what chooses the spine. NICs that are hashed, or whose ways may
  // go around a failed trunk, have a number each.
  std::uint32_t alike_from(HostId host, int nic) const;
  std::uint32_t alike_to(HostId host, int nic) const;

 private:
  std::uint32_t spec(const LinkSpec& l);
  void join(int from, int to, std::uint32_t spec_index) {
    trunks_.push_back({from, to, spec_index});
  }
  void make_leaves_and_spines(const Cluster& c, int leaves, double ports_below);
  void make_torus(const Cluster& c);
  void make_dragonfly(const Cluster& c);
  void make_graph(const Cluster& c);
  void make_table();
  // The pattern's own way; false if it crosses a failed trunk.
  bool by_pattern(HostId host_a, int nic_a, HostId host_b, int nic_b,
                  std::vector<std::uint32_t>& out) const;
  // A way depends on the two NICs' own numbers, not only on what they have in common with others.
  bool each_its_own() const;
  void by_table(int from, int to, std::uint32_t source, std::uint32_t destination,
                std::vector<std::uint32_t>& out) const;
  void step(int& router, std::size_t dimension, int sign, std::vector<std::uint32_t>& out) const;
  int number_of(HostId host, int nic) const { return host.number * nics_ + nic; }
  int gateway(int group, int other) const;
  std::uint32_t local_trunk(int group, int a, int b) const;

  Pattern pattern_ = Pattern::Star;
  Ecmp ecmp_ = Ecmp::Source;
  int switches_ = 1;
  int nics_ = 1;
  int per_switch_ = 1;  // hosts per leaf, rack, router or group of rails
  int leaves_ = 0;      // switches that have hosts: the first ones
  int spines_ = 1;
  int groups_ = 1;
  int routers_per_group_ = 1;
  std::vector<int> extents_;
  std::vector<Trunk> trunks_;
  std::vector<LinkSpec> specs_;
  std::vector<std::uint32_t>
      plus_;  // torus: [router][dimension] trunk to the next router in +; UINT32_MAX = none
  std::vector<bool> failed_;
  bool any_failed_ = false;
  // Ways of a graph, and around failed trunks: links from every switch to those that have hosts,
  // and the trunks at each switch.
  std::vector<int> row_of_;              // [switch] row of distance_; -1 = has no host
  std::vector<std::uint16_t> distance_;  // [row][switch]
  std::vector<std::uint32_t> first_;     // [switch] into at_
  std::vector<std::uint32_t> at_;        // 2 * trunk + direction, leaving the switch
  // graph
  std::vector<std::string> names_;
  std::vector<int> host_node_;
  std::vector<std::vector<std::uint32_t>>
      inbound_;  // [host][node] directed link by which the first path of fewest links enters;
                 // UINT32_MAX = none
  std::vector<bool> is_host_;
};

// Next hop tables of a `graph` cluster: paths with the fewest links, ties by the order of links in
// the file.
struct GraphRoutes {
  std::vector<std::vector<std::uint32_t>> inbound;  // [host][node]: directed link by which the path
                                                    // from host enters node; UINT32_MAX = none
};
GraphRoutes route_graph(int nodes, const std::vector<Trunk>& links, const std::vector<bool>& failed,
                        const std::vector<int>& host_node);
// out[row * switches + s]: links from switch s to switch ends[row]; UINT16_MAX = no way. REQUIRES:
// `out` has that size.
void distances(int switches, const std::vector<Trunk>& trunks, const std::vector<bool>& failed,
               const std::vector<int>& ends, std::vector<std::uint16_t>& out);

}  // namespace ddpsim::topology
