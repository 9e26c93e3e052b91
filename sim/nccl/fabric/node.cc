#include "sim/nccl/fabric/node.h"

#include <algorithm>
#include <map>

#include "sim/nccl/fabric/peers.h"
#include "sim/nccl/nth.h"
#include "sim/topology/path_type.h"

namespace ddpsim::nccl {
namespace {

constexpr GBps kUnknownNic{1.25};

Wire wire_of(topology::LinkKind kind) {
  switch (kind) {
    case topology::LinkKind::Nvlink:
      return Wire::Nvlink;
    case topology::LinkKind::C2c:
      return Wire::C2c;
    case topology::LinkKind::Pcie:
      return Wire::Pcie;
    case topology::LinkKind::Upi:
      return Wire::Upi;
    case topology::LinkKind::Net:
      return Wire::Nic;
  }
  return Wire::Nic;
}

PathType as_seen_by(Version v, PathType t) {
  return t == PathType::P2c && !v.has(Change::C2cPathsToNics) ? PathType::Phb : t;
}

class NodeMaker {
 public:
  NodeMaker(const Group& g, const std::vector<int>& ranks, const Machine& machine,
            std::vector<int>& nics)
      : g_(g),
        f_(*g.fabric),
        c_(f_.cluster()),
        ranks_(ranks),
        machine_(machine),
        nics_(nics),
        n_(ranks.size()),
        host_(f_.host_of(device(0))) {}

  Node make() {
    node_.gpus = static_cast<int>(n_);
    connect_gpus();
    find_nvswitch();
    // NICs near the GPUs that take part.
    bool one_host = std::all_of(ranks_.begin(), ranks_.end(),
                                [&](int r) { return f_.host_of(nth(g_.devices, r)) == host_; });
    if (!one_host) {
      give_each_its_nic();
      return std::move(node_);
    }
    list_nics();
    connect_nics();
    return std::move(node_);
  }

 private:
  DeviceId device(std::size_t i) const { return nth(g_.devices, ranks_[i]); }

  int link_index(topology::LinkId l) {
    auto [it, fresh] = index_.emplace(l, static_cast<int>(node_.links.size()));
    const topology::Link& link = f_.links()[l];
    if (fresh) {
      node_.links.push_back(link_bandwidth(wire_of(link.kind), gb_per_s(link.bandwidth), machine_));
      node_.pcie.push_back(link.kind == topology::LinkKind::Pcie);
    }
    return it->second;
  }

  void connect_gpus() {
    node_.gpu_route.resize(n_ * n_);
    node_.gpu_path.assign(n_ * n_, PathType::Loc);
    for (std::size_t a = 0; a < n_; ++a)
      for (std::size_t b = 0; b < n_; ++b) {
        if (a == b) continue;
        find_route_inside(g_, device(a), device(b), route_);
        for (topology::LinkId l : route_.links)
          node_.gpu_route[a * n_ + b].push_back(link_index(l));
        node_.gpu_path[a * n_ + b] = path_type_inside(g_, device(a), device(b));
      }
  }

  void find_nvswitch() {
    if (c_.intra)
      node_.nvswitch = topology::kind_of(c_.intra->transport) == topology::LinkKind::Nvlink;
    else if (f_.drawn())
      node_.nvswitch = f_.inside(host_).to_nvswitch(f_.local_of(device(0))) != UINT32_MAX;
    if (node_.nvswitch && n_ > 1) {
      f_.find_route(device(0), device(1), route_);
      node_.nvlink_per_gpu = nth(node_.links, link_index(route_.links.front()));
    }
  }

  // A NVLink domain of several hosts: each GPU by its own NIC.
  void give_each_its_nic() {
    node_.nics = node_.gpus;
    node_.nic_bandwidth = gb_per_s(c_.link.bandwidth) * c_.nics_per_host / c_.devices_per_host;
    node_.out_route.resize(n_ * n_);
    node_.in_route.resize(n_ * n_);
    node_.in_reverse.assign(n_ * n_, -1);
    node_.nic_path.assign(n_ * n_, PathType::Sys);
    for (std::size_t a = 0; a < n_; ++a)
      node_.nic_path[a * n_ + a] = f_.nic_path_type(device(a), f_.nic_of(device(a)));
    node_.nic_back_path = node_.nic_path;
  }

  void list_nics() {
    for (std::size_t a = 0; a < n_; ++a) nics_.push_back(f_.nic_of(device(a)));
    std::sort(nics_.begin(), nics_.end());
    nics_.erase(std::unique(nics_.begin(), nics_.end()), nics_.end());
    if (c_.pattern == ddpsim::Pattern::Graph) {
      nics_.assign(1, 0);
      for (const GraphLink& l : c_.links)
        node_.nic_bandwidth = std::max(node_.nic_bandwidth, gb_per_s(l.link.bandwidth));
    } else {
      node_.nic_bandwidth = gb_per_s(c_.link.bandwidth);
    }
    node_.nics = static_cast<int>(nics_.size());
    // Sockets, and NICs without GPUDirect, are reached through the host's memory.
    const LinkSpec& net =
        c_.pattern == ddpsim::Pattern::Graph && !c_.links.empty() ? c_.links.front().link : c_.link;
    // An interface without a speed, as loopback is, counts as 10 Gb/s (NCCL,
    // src/transport/net_socket.cc).
    bool loopback = net.transport == "loopback";
    if (loopback) node_.nic_bandwidth = kUnknownNic;
    through_host_ = loopback || net.transport == "tcp" || net.staging.bits_per_s > 0;
  }

  void connect_nics() {
    auto k = nics_.size();
    node_.out_route.resize(n_ * k);
    node_.in_route.resize(n_ * k);
    node_.in_reverse.assign(n_ * k, -1);
    node_.nic_path.assign(n_ * k, PathType::Phb);
    node_.nic_back_path = node_.nic_path;
    drawn_ = f_.drawn() && f_.inside(host_).draws_nics();
    for (std::size_t i = 0; i < k; ++i) {
      PathType relay = PathType::Dis;  // of the GPU nearest to the NIC
      for (DeviceId d : f_.devices_of(host_))
        relay = std::min(relay, f_.nic_back_path_type(d, nics_[i]));
      for (std::size_t a = 0; a < n_; ++a) {
        bool by_other = find_nic_paths(a, i, relay);
        if (drawn_) find_nic_routes(a, i, by_other);
      }
    }
  }

  // Whether GPU a reaches NIC i by another GPU. `relay`: the NIC's way to the GPU nearest to it.
  bool find_nic_paths(std::size_t a, std::size_t i, PathType relay) {
    auto k = nics_.size();
    PathType& out = node_.nic_path[a * k + i];
    PathType& in = node_.nic_back_path[a * k + i];
    out = c_.pattern == ddpsim::Pattern::Graph ? PathType::Pix
                                               : f_.nic_path_type(device(a), nics_[i]);
    in = out == PathType::Pxn ? f_.nic_back_path_type(device(a), nics_[i]) : out;
    bool by_other = out == PathType::Pxn &&
                    g_.settings.p2p_level.value_or(PathType::Sys) >= PathType::Nvl &&
                    (relay < PathType::P2c || machine_.version.has(Change::PxnBeyondC2c));
    if (out == PathType::Pxn && !by_other) out = in;
    // GPUs and NICs in pairs on PCIe switches, as in DGX-1, DGX-2 and DGX A100, where nothing
    // else is drawn.
    int other = f_.local_of(device(a)) ^ 1;
    if (!drawn_ && machine_.compute_capability < 90 && other < c_.devices_per_host &&
        nics_[i] == f_.nic_of(f_.device_of(host_, other)))
      out = in = PathType::Pix;
    for (PathType* t : {&out, &in}) {
      *t = as_seen_by(machine_.version, *t);
      if (through_host_) *t = std::max(*t, PathType::Phb);
    }
    return by_other;
  }

  void find_nic_routes(std::size_t a, std::size_t i, bool by_other) {
    std::size_t at = a * nics_.size() + i;
    const std::vector<std::uint32_t>& from_nic =
        f_.inside(host_).from_nic(nics_[i], f_.local_of(device(a))).links;
    for (std::uint32_t l : from_nic)
      node_.in_route[at].push_back(link_index(f_.inside_link(host_, l)));
    if (!from_nic.empty())
      node_.in_reverse[at] = link_index(f_.inside_link(host_, from_nic.back() ^ 1u));
    if (by_other)
      for (std::uint32_t l : f_.inside(host_).to_nic(f_.local_of(device(a)), nics_[i]).links)
        node_.out_route[at].push_back(link_index(f_.inside_link(host_, l)));
    else
      for (std::size_t j = from_nic.size(); j-- > 0;)
        node_.out_route[at].push_back(link_index(f_.inside_link(host_, from_nic[j] ^ 1u)));
  }

  const Group& g_;
  const topology::Fabric& f_;
  const Cluster& c_;
  const std::vector<int>& ranks_;
  const Machine& machine_;
  std::vector<int>& nics_;
  std::size_t n_;
  HostId host_;                // of the first rank
  bool through_host_ = false;  // NICs, which NCCL gives a path through the CPU at best
  bool drawn_ = false;         // NICs have links of their own inside the host
  std::map<topology::LinkId, int> index_;
  topology::Route route_;
  Node node_;
};

}  // namespace

Node node_of(const Group& g, const std::vector<int>& ranks, const Machine& machine,
             std::vector<int>& nics) {
  return NodeMaker(g, ranks, machine, nics).make();
}

}  // namespace ddpsim::nccl
