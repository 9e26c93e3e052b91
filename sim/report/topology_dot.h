// A fabric as a picture: Graphviz DOT.
#pragma once

#include <string>

#include "sim/topology/fabric.h"

namespace ddpsim::report {

// Up to 8 hosts (and 200 GPUs, NICs and switches inside them): every one is drawn. More: one host
// is drawn whole, hosts on the same switches are one box with their number; with more than 16
// switches or 24 trunks, switches of one role are one box too. Colours by kind of link, failed
// links dashed; a legend says how many cables of which bandwidth there are. The same fabric gives
// the same bytes.
std::string topology_dot(const topology::Fabric& f);

}  // namespace ddpsim::report
