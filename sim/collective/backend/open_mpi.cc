#include "sim/collective/backend/open_mpi.h"

#include <array>
#include <charconv>
#include <span>

#include "sim/collective/blocks.h"

namespace ddpsim::collective {
namespace {

// Below `bytes`: `choice`. The last row has no limit.
struct Rule {
  std::int64_t bytes;
  int choice;
};
// For fewer than `ranks` ranks; the last table has no limit.
struct Table {
  int ranks;
  std::span<const Rule> rules;
};
constexpr std::int64_t kAny = INT64_MAX;

constexpr Rule k2[] = {{8, 4},     {4096, 3},   {8192, 4}, {16384, 3},
                       {65536, 4}, {262144, 5}, {kAny, 6}};
constexpr Rule k4[] = {{16, 4}, {8192, 3}, {kAny, 6}};
constexpr Rule k8[] = {{8192, 3}, {kAny, 6}};
constexpr Rule k16[] = {{64, 5}, {4096, 3}, {kAny, 6}};
constexpr Rule k32[] = {{128, 5}, {kAny, 6}};
constexpr Rule k64[] = {{262144, 3}, {kAny, 6}};
constexpr Rule k128[] = {{131072, 2}, {262144, 3}, {kAny, 6}};
constexpr Rule k256[] = {{4096, 2}, {kAny, 6}};
constexpr Rule k512[] = {{2048, 2}, {16384, 3}, {kAny, 6}};
constexpr Rule k2048[] = {{2048, 2}, {4096, 5}, {16384, 3}, {kAny, 6}};
constexpr Rule k4096[] = {{2048, 2}, {16384, 5}, {32768, 3}, {kAny, 6}};
constexpr Table kAllReduces[] = {{4, k2},      {8, k4},       {16, k8},          {32, k16},
                                 {64, k32},    {128, k64},    {256, k128},       {512, k256},
                                 {2048, k512}, {4096, k2048}, {INT32_MAX, k4096}};

// MPI_Bcast: 1 linear, 2 chain, 3 pipeline, 4 split binary tree, 5 binary tree, 6 binomial, 7
// k-nomial, 8 scatter and all-gather, 9 the same along a ring.
constexpr Rule kBcast2[] = {{32, 3},     {256, 5},    {512, 3},    {1024, 7},    {32768, 1},
                            {131072, 5}, {262144, 2}, {524288, 1}, {1048576, 6}, {kAny, 5}};
constexpr Rule kBcast4[] = {{64, 5}, {128, 6}, {2048, 5}, {8192, 6}, {1048576, 1}, {kAny, 2}};
constexpr Rule kBcast8[] = {{8, 7}, {64, 5}, {4096, 7}, {16384, 5}, {32768, 6}, {kAny, 1}};
constexpr Rule kBcast16[] = {{4096, 7}, {1048576, 6}, {kAny, 8}};
constexpr Rule kBcast32[] = {{2048, 6}, {kAny, 7}};
constexpr Rule kBcast64[] = {{kAny, 7}};
constexpr Rule kBcast128[] = {{2, 6}, {16384, 5}, {32768, 1}, {65536, 5}, {kAny, 7}};
constexpr Rule kBcast256[] = {{16384, 7}, {32768, 4}, {kAny, 7}};
constexpr Rule kBcast1024[] = {{524288, 7}, {kAny, 8}};
constexpr Rule kBcast2048[] = {{262144, 7}, {kAny, 8}};
constexpr Rule kBcast4096[] = {{8192, 7}, {16384, 5}, {262144, 7}, {kAny, 8}};
constexpr Table kBroadcasts[] = {{4, kBcast2},       {8, kBcast4},           {16, kBcast8},
                                 {32, kBcast16},     {64, kBcast32},         {128, kBcast64},
                                 {256, kBcast128},   {1024, kBcast256},      {2048, kBcast1024},
                                 {4096, kBcast2048}, {INT32_MAX, kBcast4096}};

const Table* table_of(std::span<const Table> tables, int ranks) {
  const Table* table = tables.data();
  while (ranks >= table->ranks && table + 1 < tables.data() + tables.size()) ++table;
  return table;
}

// 4.0's rules, of any number of ranks.
constexpr std::int64_t k40Small = 10'000;
constexpr std::int64_t k40Segment = 1 << 20;

int find(std::span<const Table> tables, int ranks, std::int64_t bytes) {
  const Rule* rule = table_of(tables, ranks)->rules.data();
  while (bytes >= rule->bytes && rule->bytes != kAny) ++rule;
  return rule->choice;
}

constexpr std::array<const char*, kMpiAllReduces> kNames{"basic_linear",       "nonoverlapping",
                                                         "recursive_doubling", "ring",
                                                         "segmented_ring",     "rabenseifner"};

constexpr std::array<const char*, 9> kBroadcastNames{
    "basic_linear", "chain",   "pipeline",          "split_binary_tree",     "binary_tree",
    "binomial",     "knomial", "scatter_allgather", "scatter_allgather_ring"};

// As the table that find() reads.
template <class Name>
MpiTable shown(std::span<const Table> tables, int ranks, Name name) {
  MpiTable out;
  const Table* table = table_of(tables, ranks);
  if (table > tables.data()) out.ranks_from = (table - 1)->ranks;
  if (table->ranks != INT32_MAX) out.ranks_below = table->ranks;
  std::int64_t from = 0;
  for (const Rule& r : table->rules) {
    out.rows.push_back({from, r.bytes, r.choice, name(r.choice)});
    from = r.bytes;
  }
  return out;
}

constexpr const char* kDynamic = "OMPI_MCA_coll_tuned_use_dynamic_rules";
constexpr const char* kAlgorithm = "OMPI_MCA_coll_tuned_allreduce_algorithm";
constexpr const char* kSegment = "OMPI_MCA_coll_tuned_allreduce_algorithm_segmentsize";
constexpr const char* kEager = "OMPI_MCA_btl_tcp_eager_limit";
constexpr const char* kHan = "OMPI_MCA_coll_han_priority";

// A whole number of `least` to `most`; false = it is none.
bool read_number(const std::string& text, std::int64_t least, std::int64_t most,
                 std::int64_t& out) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size() && out >= least && out <= most;
}

bool is_true(const std::string& text) {
  return text == "1" || text == "true" || text == "yes" || text == "enabled";
}
bool is_false(const std::string& text) {
  return text == "0" || text == "false" || text == "no" || text == "disabled";
}

// A number of the table, or its name; -1 = neither.
int read_all_reduce(const std::string& text) {
  if (text == "ignore") return 0;
  for (int id = 1; id <= kMpiAllReduces; ++id)
    if (text == kNames[id - 1]) return id;
  std::int64_t id = -1;
  return read_number(text, 0, kMpiAllReduces, id) ? static_cast<int>(id) : -1;
}

Problem read_version(const std::string& text, OpenMpiVersion& out) {
  const std::string two = text.substr(0, 3);
  const bool third =
      text.size() == 3 || (text.size() > 4 && text[3] == '.' &&
                           text.find_first_not_of("0123456789", 4) == std::string::npos);
  if (!text.empty() && (!third || (two != "4.0" && two != "4.1" && two != "5.0")))
    return {"", "\"" + text + "\": ddpsim has the tables of Open MPI 4.0, 4.1 and 5.0"};
  out = two == "4.0"   ? OpenMpiVersion::V4_0
        : two == "5.0" ? OpenMpiVersion::V5_0
                       : OpenMpiVersion::V4_1;
  return {};
}

Problem read_variable(const std::string& name, const std::string& value, OpenMpi& mpi) {
  std::int64_t number = 0;
  if (name == kDynamic) {
    if (!is_true(value) && !is_false(value)) return {name, "0 or 1"};
  } else if (name == kAlgorithm) {
    mpi.all_reduce = read_all_reduce(value);
    if (mpi.all_reduce < 0)
      return {name,
              "0 (the fixed rules) to 6, or one of basic_linear, nonoverlapping, "
              "recursive_doubling, ring, segmented_ring, rabenseifner"};
  } else if (name == kSegment) {
    if (!read_number(value, 0, std::int64_t{1} << 30, mpi.segment))
      return {name, "0 (no segments) to 1073741824 bytes"};
  } else if (name == kEager) {
    if (!read_number(value, 1, std::int64_t{1} << 30, mpi.eager))
      return {name, "1 to 1073741824 bytes"};
  } else if (name == kHan) {
    if (!read_number(value, 0, 100, number)) return {name, "0 to 100"};
    mpi.han_priority = static_cast<int>(number);
  } else {
    return {name, std::string("is not a variable of Open MPI that ddpsim reads; those are ") +
                      kDynamic + ", " + kAlgorithm + ", " + kSegment + ", " + kEager + ", " + kHan};
  }
  return {};
}

}  // namespace

const char* name_of(MpiAllReduce a) {
  return kNames[static_cast<std::size_t>(a) - 1];
}

Algorithm algorithm_of(MpiAllReduce a) {
  switch (a) {
    case MpiAllReduce::BasicLinear:
      return Algorithm::BasicLinear;
    case MpiAllReduce::NonOverlapping:
      return Algorithm::NonOverlapping;
    case MpiAllReduce::RecursiveDoubling:
      return Algorithm::RecursiveDoubling;
    case MpiAllReduce::Rabenseifner:
      return Algorithm::Rabenseifner;
    default:
      return Algorithm::Ring;
  }
}

MpiAllReduce fixed_all_reduce(OpenMpiVersion version, int ranks, std::int64_t bytes,
                              std::int64_t elements) {
  if (version != OpenMpiVersion::V4_0)
    return static_cast<MpiAllReduce>(find(kAllReduces, ranks, bytes));
  if (bytes < k40Small) return MpiAllReduce::RecursiveDoubling;
  if (elements <= ranks) return MpiAllReduce::NonOverlapping;
  return ranks * k40Segment >= bytes ? MpiAllReduce::Ring : MpiAllReduce::SegmentedRing;
}

MpiTable all_reduce_table(OpenMpiVersion version, int ranks) {
  auto name = [](int choice) { return name_of(static_cast<MpiAllReduce>(choice)); };
  if (version != OpenMpiVersion::V4_0) return shown(kAllReduces, ranks, name);
  MpiTable out;
  std::int64_t from = 0;
  auto add = [&](std::int64_t below, MpiAllReduce a) {
    if (below <= from) return;
    out.rows.push_back({from, below, static_cast<int>(a), name_of(a)});
    from = below;
  };
  add(k40Small, MpiAllReduce::RecursiveDoubling);
  add(4 * (std::int64_t{ranks} + 1), MpiAllReduce::NonOverlapping);
  add(ranks * k40Segment + 1, MpiAllReduce::Ring);
  add(kMpiAnySize, MpiAllReduce::SegmentedRing);
  return out;
}

MpiTable broadcast_table(int ranks) {
  return shown(kBroadcasts, ranks, [](int choice) { return kBroadcastNames[choice - 1]; });
}

const char* name_of(OpenMpiVersion v) {
  return v == OpenMpiVersion::V4_0 ? "4.0" : v == OpenMpiVersion::V4_1 ? "4.1" : "5.0";
}

MpiAllReduce all_reduce_that_runs(const OpenMpi& mpi, int ranks, std::int64_t bytes,
                                  std::int64_t element_size) {
  const std::int64_t elements = bytes / element_size;
  std::int64_t segment = mpi.segment;
  auto choice = static_cast<MpiAllReduce>(mpi.all_reduce);
  if (mpi.all_reduce == 0) {
    choice = fixed_all_reduce(mpi.version, ranks, bytes, elements);
    segment = mpi.version == OpenMpiVersion::V4_0 ? k40Segment : 0;
  }
  if (choice == MpiAllReduce::Rabenseifner && elements < power_below(ranks))
    return MpiAllReduce::BasicLinear;
  if (choice == MpiAllReduce::SegmentedRing) {
    const bool cut = segment >= element_size && segment < bytes;
    const std::int64_t of_a_segment = cut ? segment / element_size : elements;
    if (elements < ranks * of_a_segment) choice = MpiAllReduce::Ring;
  }
  if (choice == MpiAllReduce::Ring && elements < ranks) return MpiAllReduce::RecursiveDoubling;
  return choice;
}

Algorithm fixed_broadcast(int ranks, std::int64_t bytes) {
  switch (find(kBroadcasts, ranks, bytes)) {
    case 1:
      return Algorithm::BasicLinear;
    case 2:
    case 3:
      return Algorithm::Chain;
    case 4:
    case 5:
      return Algorithm::BinaryTree;
    case 7:
      return Algorithm::Knomial;
    case 8:
      return (ranks & (ranks - 1)) == 0 ? Algorithm::ScatterAllGather : Algorithm::BinomialTree;
    default:
      return Algorithm::BinomialTree;
  }
}

ParsedOpenMpi parse_open_mpi(const std::string& version,
                             const std::map<std::string, std::string>& environment) {
  ParsedOpenMpi out;
  out.problem = read_version(version, out.mpi.version);
  for (const auto& [name, value] : environment)
    if (!out.problem) out.problem = read_variable(name, value, out.mpi);
  if (out.problem) return out;
  auto dynamic = environment.find(kDynamic);
  const bool forces = dynamic != environment.end() && is_true(dynamic->second);
  for (const char* name : {kAlgorithm, kSegment})
    if (environment.count(name) && !forces)
      return {{},
              {name, std::string("is read only with ") + kDynamic +
                         "=1: Open MPI would go by "
                         "its fixed rules"}};
  if (out.mpi.segment > 0 && out.mpi.all_reduce != static_cast<int>(MpiAllReduce::SegmentedRing))
    return {{}, {kSegment, std::string("is of the segmented ring (") + kAlgorithm + "=5)"}};
  return out;
}

}  // namespace ddpsim::collective
