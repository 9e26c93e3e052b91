// Fabric: a Cluster as directed links with capacities, and routes between devices.
//
// Devices are numbered host by host. Inside a host a message takes the way of HostRoutes
// (`inside`), or the sender's and the receiver's link to the host's switch (`intra`). Between hosts
// it goes from the device to a NIC (where such ways are drawn; else that costs nothing), by the
// NIC's link, the way of Network, the receiver's NIC's link, and to the device. GPUs of one NVLink
// rack (`nvl72`) reach one another by NVLink. The only room that sees Boost.Graph.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/model/cluster.h"
#include "sim/topology/host_routes.h"
#include "sim/topology/network.h"
#include "sim/topology/path_type.h"

namespace ddpsim::topology {

using LinkId = std::uint32_t;  // one direction; a cable is LinkIds 2 k and 2 k + 1

struct Link {
  Bandwidth bandwidth;
  Duration latency;
  Bytes burst;
  Bandwidth peak;
  std::uint8_t transport = 0;  // index into Fabric::transports
  Bytes eager;                 // as LinkSpec
  Bandwidth staging;
  LinkKind kind = LinkKind::Net;
};

struct Route {
  std::vector<LinkId> links;
  Duration latency;            // sum over links
  std::uint8_t transport = 0;  // of the link that decides the software path: the NIC's between
                               // hosts, inside LocalPath::decides or intra's
};

class Fabric {
 public:
  // REQUIRES: validate(cluster) found nothing. Faults that name no link are left out: see
  // ignored_faults.
  explicit Fabric(const Cluster& cluster);
  int devices() const { return cluster_.devices(); }
  HostId host_of(DeviceId device) const {
    return HostId::at(device.number / cluster_.devices_per_host);
  }
  // Among those of its host.
  int local_of(DeviceId device) const { return device.number % cluster_.devices_per_host; }
  DeviceId device_of(HostId host, int local) const {
    return DeviceId::at(host.number * cluster_.devices_per_host + local);
  }
  Places<DeviceId> devices_of(HostId host) const {
    return {device_of(host, 0), cluster_.devices_per_host};
  }
  int nics_per_host() const { return cluster_.nics_per_host; }
  // Local index of the NIC that a device uses: the nearest one (HostRoutes::nic_of) where
  // GPU-to-NIC ways are drawn, else local device * NICs / devices; if its link failed, the next NIC
  // in order whose link did not.
  int nic_of(DeviceId device) const {
    int local = local_of(device);
    int nic = hosts_.empty() || !hosts_.front().draws_nics()
                  ? local * cluster_.nics_per_host / cluster_.devices_per_host
                  : inside(host_of(device)).nic_of(local);
    return dead_nics_.empty() ? nic : usable_nic(host_of(device), nic);
  }
  // Rack, leaf, group or NVLink rack of a host, whose hosts are nearer to one another than to
  // others; 0 where there are none.
  int group_of(HostId host) const;
  const std::vector<Link>& links() const { return links_; }
  const std::vector<std::string>& transports() const { return transports_; }
  const Cluster& cluster() const { return cluster_; }
  // REQUIRES: both exist, from != to, reachable(from, to). Reuses the storage of `route`. Between
  // hosts: by nic_of of each.
  void find_route(DeviceId from, DeviceId to, Route& route) const;
  // The same, leaving and entering by these NICs (local indices; one whose link failed is replaced
  // as in nic_of). REQUIRES: different hosts that are not of one NVLink rack, or are to be reached
  // by their NICs all the same.
  void find_route_by_nics(DeviceId from_device, int from_nic, DeviceId to_device, int to_nic,
                          Route& route) const;
  // The links of these routes alone. Nothing of Link is read: in large fabrics that is far away in
  // memory, and takes most of a route's time.
  void find_links(DeviceId from, DeviceId to, std::vector<LinkId>& links) const;
  void find_links_by_nics(DeviceId from_device, int from_nic, DeviceId to_device, int to_nic,
                          std::vector<LinkId>& links) const;
  // What that route consists of, one after another: from the device to the NIC and on its link,
  // from NIC to NIC (Network::find_way; returns the route's transport), by the NIC's link to the
  // device. Each appends links. REQUIRES: the NICs' links did not fail.
  void append_exit(DeviceId device, int nic, std::vector<LinkId>& links) const;
  std::uint8_t append_crossing(HostId from_host, int from_nic, HostId to_host, int to_nic,
                               std::vector<LinkId>& links) const;
  void append_entry(int nic, DeviceId device, std::vector<LinkId>& links) const;
  bool reachable(DeviceId from, DeviceId to) const;
  // Every NIC of one host from the first of the other, and the other way round; of those whose
  // links did not fail. A cable that fails does so both ways, so that NICs that all reach one reach
  // one another.
  bool nics_reach(HostId host_a, HostId host_b) const;
  // Between GPUs of one host, through the host's memory (HostRoutes::by_cpu); `intra` of another
  // transport than nvlink: the usual way. Its path type, Dis = no such way is drawn. REQUIRES:
  // from != to.
  PathType path_type_by_cpu(DeviceId from, DeviceId to) const;
  void find_route_by_cpu(DeviceId from, DeviceId to, Route& route) const;  // REQUIRES: there is one
  // A NIC's own cable; without NICs' links (`graph`) any between hosts.
  bool is_nic_link(LinkId link) const {
    return links_[link].kind == LinkKind::Net && (!has_nic_links() || link < trunk_base_);
  }
  // Of the route that find_route takes. `intra`: Nvl, C2c or Pix by its transport, Phb for any
  // other.
  PathType path_type(DeviceId from_device, DeviceId to_device) const;
  // Local index of the NIC. Where no such ways are drawn: Pix to the device's own NIC; to others
  // Pxn by NVLink, else Phb.
  PathType nic_path_type(DeviceId device, int nic) const;
  // From the NIC to the device: never by another GPU. Where no such ways are drawn: Phb from the
  // others'.
  PathType nic_back_path_type(DeviceId device, int nic) const;
  // Joined by NVLinks: those of their host, or of their NVLink rack.
  bool nvlink_domain(DeviceId a, DeviceId b) const;
  // "host0.nic1 up", "leaf0-spine1 down", "host2.gpu0->nvswitch nvlink". Links a->b have no other
  // direction in their name than this.
  std::string link_name(LinkId link) const;

  // Failed and degraded links that could not be: their place in the cluster's file, the name, and
  // why ("" = no link has that name).
  struct IgnoredFault {
    std::string path;
    std::string name;
    std::string why;
  };
  const std::vector<IgnoredFault>& ignored_faults() const { return ignored_; }
  bool failed(LinkId link) const { return !failed_cables_.empty() && failed_cables_[link / 2]; }

  // For pictures and surveys. `inside` REQUIRES drawn().
  bool drawn() const { return !hosts_.empty(); }
  const HostRoutes& inside(HostId host) const {
    return other_hosts_.empty() ? hosts_.front() : hosts_[kind_of_host(host)];
  }
  const HostGraph& host_graph() const { return host_graph_; }
  const Network& network() const { return network_; }
  bool has_nic_links() const { return cluster_.pattern != Pattern::Graph; }
  LinkId inside_link(HostId host, std::uint32_t local) const {
    return host.number * host_links_ + local;
  }
  LinkId intra_link(DeviceId device) const { return 2u * device.number; }
  LinkId nic_link(HostId host, int nic) const {
    return nic_base_ + 2u * (host.number * cluster_.nics_per_host + nic);
  }
  LinkId trunk_link(std::uint32_t trunk) const { return trunk_base_ + 2 * trunk; }
  bool same_rack(HostId host_a, HostId host_b) const {
    return cluster_.pattern == Pattern::Nvl72 &&
           host_a.number / cluster_.hosts_per_rack == host_b.number / cluster_.hosts_per_rack;
  }

 private:
  LinkId add(const LinkSpec& spec, LinkKind kind);  // both directions; returns the first
  std::uint8_t transport_id(const std::string& name);
  std::size_t kind_of_host(HostId host) const;
  int usable_nic(HostId host, int nic) const;
  bool reaches_nic(DeviceId device, int nic) const;
  bool in_rack(DeviceId device_a, DeviceId device_b) const;
  void append_local(HostId host, const LocalPath& path, std::vector<LinkId>& links) const;
  LinkId append_inside(DeviceId from, DeviceId to, std::vector<LinkId>& links)
      const;  // of a host or an NVLink rack; returns the link that decides the transport
  std::uint8_t append_by_nics(DeviceId from, int from_nic, DeviceId to, int to_nic,
                              std::vector<LinkId>& links) const;  // returns the transport
  LinkId nvlink_up(DeviceId device) const;
  LinkId nvlink_down(DeviceId device) const;
  void apply_faults();
  void finish(Route& route) const;

  Cluster cluster_;
  HostGraph host_graph_;
  std::vector<HostRoutes>
      hosts_;  // of each kind of host; 0: nothing inside failed. Empty: no `inside`
  std::map<HostId, std::size_t> other_hosts_;  // host -> kind, where something inside failed
  Network network_;
  std::vector<Link> links_;
  std::vector<std::string> transports_;
  LinkId host_links_ = 0;  // directed links inside a host; those of `inside` come first, host by
                           // host; those of `intra` first, device by device
  LinkId nic_base_ = 0;    // (host * nics + nic) * 2
  LinkId trunk_base_ = 0;  // trunk * 2
  std::uint8_t net_transport_ = 0;
  std::uint8_t intra_transport_ = 0;
  std::vector<bool> dead_nics_;      // [host * nics + nic]; empty = none
  std::vector<bool> failed_cables_;  // [link / 2]; empty = none
  std::vector<IgnoredFault> ignored_;
};

bool on_one_host(const Fabric& f, const std::vector<DeviceId>& devices);
// What keeps these devices from reaching one another; empty message = nothing.
Problem check_reachable(const Fabric& f, const std::vector<DeviceId>& devices);

}  // namespace ddpsim::topology
