// What NCCL finds of a host and dumps as XML.
#pragma once

#include <string>
#include <vector>

#include "sim/io/codecs.h"
#include "sim/nccl/graph.h"

namespace ddpsim::io {

struct NcclTopoSetting {
  int hosts = 1;
  std::string name = "imported";
  std::string profile;  // of the GPUs; "" = by their compute capability
  std::string file;     // for errors, and for "source"
};
struct NcclTopoCluster {
  OrderedJson cluster;             // ddpsim.cluster/1 with `inside`
  std::vector<std::string> notes;  // for stderr: what was missing and what was taken for it
};
// NCCL_TOPO_DUMP_FILE or NCCL_TOPO_FILE: a host's wiring. Bandwidths are those of the hardware, per
// direction. Throws InputError.
NcclTopoCluster read_nccl_topo(const std::string& text, const NcclTopoSetting& setting);

// NCCL_GRAPH_DUMP_FILE. Throws InputError.
nccl::Graphs read_nccl_graph_xml(const std::string& text, const std::string& file);
// ddpsim.nccl_graph/1: graphs of at least one channel.
OrderedJson write_nccl_graphs(const nccl::Graphs& graphs);
nccl::Graphs read_nccl_graphs(const Json& j, const std::string& file);

}  // namespace ddpsim::io
