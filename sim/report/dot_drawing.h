// What a fabric's picture is drawn with: nodes, cables and rows of DOT, their colours, and how
// hosts, NICs and switches are called there. Internal to topology_dot.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "sim/topology/fabric.h"

namespace ddpsim::report {

struct LinkStyle {
  const char* colour;
  const char* name;
};
LinkStyle style_of(topology::LinkKind k);
const char* fill_of(VertexKind k);

// Inside a string of DOT.
std::string escaped(const std::string& s);
// "8,192"
std::string thousands(std::int64_t n);

class Drawing {
 public:
  explicit Drawing(const topology::Fabric& f) : f_(f), c_(f.cluster()) {}
  const topology::Fabric& fabric() const { return f_; }
  const Cluster& cluster() const { return c_; }
  std::string take() { return std::move(out_); }

  // ---- names of nodes

  std::string vertex_id(HostId host, int vertex) const;
  std::string nic_id(HostId host, int nic) const;
  std::string nvswitch_id(HostId host) const;
  std::string switch_id(int s) const;
  // Whether this node of the network is a host.
  bool is_host(int s) const;

  // ---- what is drawn, one thing after another

  // As fmt::format.
  template <class... Args>
  void add(fmt::format_string<Args...> form, Args&&... args) {
    out_ += fmt::format(form, std::forward<Args>(args)...);
  }
  void node(const std::string& id, const std::string& label, const char* fill);
  void switch_node(int s);
  // An edge above -- below; `label` may be empty. A failed link is dashed, a degraded one says what
  // it has left.
  void edge(const std::string& above, const std::string& below, topology::LinkId l,
            const std::string& label, bool ranks = true, const char* port = "");
  // Side by side, in this order.
  void row(const std::vector<std::string>& ids);

 private:
  std::string width(const topology::Link& link);

  const topology::Fabric& f_;
  const Cluster& c_;
  std::string out_;
  std::map<topology::LinkKind, std::int64_t> thinnest_;
};

}  // namespace ddpsim::report
