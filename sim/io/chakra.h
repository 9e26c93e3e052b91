// MLCommons' Chakra execution traces: a GlobalMetadata, then a Node each, every message behind its
// length. Schema: mlcommons/chakra schema/protobuf/et_def.proto (6dc63e1); what its readers take of
// a node: src/feeder/et_feeder_node.cpp, and astra-sim/workload/Workload.cc.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/io/codecs.h"

namespace ddpsim::io {

enum class ChakraType : std::uint8_t {
  Invalid,
  Metadata,
  MemLoad,
  MemStore,
  Compute,
  Send,
  Receive,
  Collective,
  Storage,
  Batch,
  Checkpoint
};
// CollectiveCommType.
enum class ChakraCollective : std::uint8_t {
  AllReduce,
  Reduce,
  AllGather,
  Gather,
  Scatter,
  Broadcast,
  AllToAll,
  ReduceScatter,
  ReduceScatterBlock,
  Barrier
};
inline constexpr int kChakraCollectives = 10;

struct ChakraNode {
  std::uint64_t id = 0;
  std::string name;
  ChakraType type = ChakraType::Invalid;
  std::vector<std::uint64_t> after;    // data dependencies
  std::vector<std::uint64_t> control;  // dependencies of control
  std::uint64_t start_us = 0;
  std::uint64_t duration_us = 0;
  bool on_cpu = false;          // is_cpu_op
  std::int64_t thread = -1;     // tid: a thread, or a stream; -1 = not said
  std::int64_t comm_type = -1;  // ChakraCollective; -1 = not said
  std::int64_t comm_size = -1;  // bytes
  std::string group;            // pg_name
  std::string inputs;           // of a Metadata node: its values
  std::string operation;        // what ddpsim export wrote besides: the operation of its Program
};

struct ChakraTrace {
  std::string file;
  std::string version;
  std::string program;  // what ddpsim export wrote besides: the Program without its steps
  std::string digest;   // as it wrote the nodes
  std::vector<ChakraNode> nodes;
};

// Gzip or not. Throws InputError.
ChakraTrace read_chakra(const std::string& path);
std::string write_chakra(const ChakraTrace& trace);
// Of all that other readers take of the nodes: whether somebody changed them.
std::string digest_of(const std::vector<ChakraNode>& nodes);

struct ChakraSetting {
  std::string name;
  int ranks = 0;                                   // 0: one for each trace
  std::map<std::string, std::vector<int>> groups;  // by pg_name, besides those that traces hold
};
// One of each rank, or one for all. A document of ddpsim.program/1; `notes` says what was left out.
// Throws InputError: the ranks do different things, or something that no Program does.
OrderedJson program_of(const std::vector<ChakraTrace>& traces, const ChakraSetting& setting,
                       std::vector<std::string>& notes);

// When an operation of a step begins, and how long it takes by itself.
struct ChakraTime {
  TimePoint begin;
  Duration takes;
};

// The steady step of a Program, rank by rank.
class ChakraWriter {
 public:
  // `times`: of each operation of that step. REQUIRES: program and times outlive it.
  ChakraWriter(const Program& program, const Workload& workload, int ranks,
               const std::vector<ChakraTime>& times);
  ChakraTrace of(int rank) const;
  // What ASTRA-sim reads of groups: {"1": [0, 1], ...}; null: all collectives are of all ranks.
  OrderedJson groups() const;

 private:
  ChakraNode node(std::uint32_t op, int rank) const;
  // The number that the part of the group has in which a rank is.
  int number_of_part(std::size_t group, int rank) const;

  const Program& program_;
  const std::vector<ChakraTime>& times_;
  int ranks_;
  OrderedJson document_;                              // ddpsim.program/1
  std::vector<std::vector<std::uint64_t>> after_;     // by operation
  std::vector<std::vector<std::vector<int>>> parts_;  // of each group, members
};

}  // namespace ddpsim::io
