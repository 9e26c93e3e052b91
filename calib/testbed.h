// Hosts on one Linux machine: a Cluster as network namespaces joined by veth pairs and bridges,
// every link shaped by tbf in both directions.
//
// Nothing has a name outside: the namespaces are anonymous and live as long as the processes that
// hold them, so that testbeds side by side cannot collide, and a testbed is gone with its process,
// however that ended. Needs iproute2 (ip, tc), veth, bridge and sch_tbf; root, or user namespaces.
#pragma once

#include <string>
#include <vector>

#include "sim/model/cluster.h"

namespace ddpsim::calib {

// Why this cluster cannot be made of namespaces (pattern, latency, several devices a host, a link
// without burst); empty message = it can.
Problem emulation_problem(const Cluster& c);

// Why this process may not make hosts here, one clause; "" = it may. Tries it in a child.
std::string privilege_problem();

class Testbed {
 public:
  // Makes the hosts. To be called in a process of its own with one thread: it changes that
  // process's namespaces for good. REQUIRES: emulation_problem(c) is empty. Throws
  // std::runtime_error with the tool's words if one fails.
  explicit Testbed(const Cluster& c);
  Testbed(const Testbed&) = delete;
  Testbed& operator=(const Testbed&) = delete;
  ~Testbed();
  // Moves the calling process (one thread) into a host's namespace.
  void enter(int host) const;
  // IPv4 address of a host.
  static std::string address(int host);

 private:
  int switch_ = -1;         // namespace of bridges
  std::vector<int> hosts_;  // namespaces, as file descriptors
};

// Lines of `ip -batch` and `tc -batch` for the switch namespace and for each host: what the
// constructor runs. `netns[h]`: path of host h's namespace.
struct TestbedScript {
  std::string ip_switch;
  std::string tc_switch;
  std::vector<std::string> ip_host;
  std::vector<std::string> tc_host;
};
TestbedScript testbed_script(const Cluster& c, const std::vector<std::string>& netns);

}  // namespace ddpsim::calib
