// Gloo between GPUs: its messages pass between processes on the hosts' CPUs, over TCP sockets,
// whatever joins the GPUs. Ranks of a host speak through its kernel's loopback; between hosts all
// ranks of a host share one interface (GLOO_SOCKET_IFNAME, or the one that the host's name
// resolves to), taken as the host's first NIC.
//
// Source: PyTorch 2.6, ProcessGroupGloo.cpp (createDefaultDevice: one device, one context);
// pytorch/gloo, gloo/transport/tcp (Loop: one thread of a device reads and writes all its
// connections).
#pragma once

#include "sim/collective/communicator.h"
#include "sim/model/profile.h"

namespace ddpsim::collective {

// Between the processes of two devices' ranks: the links of the network alone. None inside a host.
void find_socket_route(const topology::Fabric& fabric, DeviceId from, DeviceId to,
                       topology::Route& route);

// What Gloo takes on these hosts: the profile's transport "gloo", or what is typical.
const TransportSection& socket_section(const Profile& p);
// Bytes per picosecond that a rank's thread receives while it sends as much.
double socket_rate(const Profile& p, Level level);
// Bytes per picosecond that a rank's worker sums, of four-byte numbers: the profile's, or what is
// typical.
double socket_sum_rate(const Profile& p);
// A sentence on what of that is typical and was measured nowhere; "" = all is the profile's.
std::string socket_assumptions(const Profile& p);

}  // namespace ddpsim::collective
