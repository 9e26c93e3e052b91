// Parts of ddpsim explain --op that are not NCCL's choice among algorithms.
#pragma once

#include "sim/nccl/fabric/composed.h"
#include "tools/cmd/collectives.h"

namespace ddpsim::cli {

// What was asked of one collective. `graph`: of --graph, "" without.
std::string heading(const NcclQuestion& q, Operation op, Bytes bytes, const std::string& graph);

// A size from which on NCCL does something else.
struct Switch {
  std::int64_t bytes = 0;
  std::string before;
  std::string after;
  std::string where;    // of point-to-point: "inside a node", "between nodes"
  bool faster = false;  // the price falls there
};
// Of algorithm and protocol: the first power of two. Of point-to-point messages (protocol, parts,
// chunks): the first size.
std::vector<Switch> switches_of(const nccl::Group& g, const Profile& p, Operation op);
std::vector<Switch> switches_of(const nccl::P2pOperation& o, const Profile& p);
io::OrderedJson switches_json(const std::vector<Switch>& all);

// A size from which on messages are so long that the network asks the receiver first
// (LinkSpec::eager, TransportSection::rendezvous); a byte less does without.
struct Rendezvous {
  std::int64_t bytes = 0;
  Duration before;  // price of a byte less
  Duration from;
};
std::vector<Rendezvous> rendezvous_of(const nccl::Group& g, const Profile& p, Operation op);
std::vector<Rendezvous> rendezvous_of(const nccl::P2pOperation& o, const Profile& p);
std::string rendezvous_text(const std::vector<Rendezvous>& all);
io::OrderedJson rendezvous_json(const std::vector<Rendezvous>& all);

// One row a way to run it; of point-to-point without protocol and NCCL's estimate.
inline constexpr const char* kNcclCsvHeader =
    "operation,bytes,cluster,profile,ranks,backend,algorithm,protocol,chosen,channels,chunk_bytes,"
    "nccl_ps,price_ps,base_ps,steps_ps,fill_ps,transfer_ps,bus_bytes_per_s,limited_by,notes\n";
// What the answer leaves out of what NCCL does on this cluster; empty = nothing.
std::vector<std::string> notes_of(const NcclQuestion& q);
std::string notes_text(const NcclQuestion& q);

// --op all_to_all, --op send_recv.
void explain_p2p(Terminal& t, const NcclQuestion& q, Operation op, Bytes bytes,
                 const std::string& graph, const OutputFlags& output);

// All-reduces made of NCCL's calls, beside the price of its choice; "" and an empty array where
// there are none. `graph`: as of heading; it is not of sub-communicators, and the answer says so.
std::vector<nccl::Composed> composed_of(const NcclQuestion& q, Bytes bytes);
std::string composed_text(const std::vector<nccl::Composed>& all, Duration chosen,
                          const std::string& graph);
io::OrderedJson composed_json(const std::vector<nccl::Composed>& all, const std::string& graph);

// NCCL_GRAPH_DUMP_FILE, or what `ddpsim import nccl-graph` made of one, for these nodes: GPUs by
// their place in a node. Throws InputError if it is of other hosts.
nccl::Graphs load_graphs(const std::string& file, const topology::Fabric& fabric,
                         const std::vector<std::vector<int>>& nodes);

}  // namespace ddpsim::cli
