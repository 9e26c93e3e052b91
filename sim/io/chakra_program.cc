// Traces of Chakra as one Program, which all ranks play: processor operations on lane `host`,
// kernels on `compute` (the stream that computes longest) and streams of their own, collectives on
// `comm`; each lane in the order of nodes' numbers, as far as dependencies allow.
#include <algorithm>
#include <optional>
#include <queue>
#include <unordered_map>

#include "sim/io/chakra.h"
#include "sim/model/error.h"

namespace ddpsim::io {
namespace {

constexpr std::int64_t kMostMicroseconds = 1'000'000'000;  // of one node
constexpr std::size_t kMostOwnStreams = 7;

std::string place_of(const ChakraNode& n) {
  return "node " + std::to_string(n.id) + " (" + n.name.substr(0, 60) + ")";
}

bool plays(const ChakraNode& n) {
  return n.type != ChakraType::Metadata && n.type != ChakraType::Invalid;
}
bool communicates(const ChakraNode& n) {
  return n.type == ChakraType::Collective && !n.on_cpu;
}

// What no Program does, in a sentence.
void refuse_others(const ChakraTrace& t, const ChakraNode& n) {
  std::string what;
  switch (n.type) {
    case ChakraType::Send:
    case ChakraType::Receive:
      what =
          "sends to, or receives from, one rank: ddpsim plays data parallelism, in which all "
          "ranks do the same; traces of pipelines are not played";
      break;
    case ChakraType::Storage:
    case ChakraType::Checkpoint:
      what = "is of storage; leave such nodes out (ddpsim goodput asks what checkpoints cost)";
      break;
    case ChakraType::MemLoad:
    case ChakraType::MemStore:
      if (n.duration_us > 0) return;
      what = "moves memory and does not say how long it takes (duration_micros)";
      break;
    default:
      if (n.duration_us <= kMostMicroseconds) return;
      what = "takes more than 1000 s";
  }
  throw InputError{t.file, place_of(n) + " " + what};
}

// The list that quoted JSON is; empty: it is none.
Json list_in(const std::string& quoted) {
  std::string text;
  for (char c : quoted) {
    while (c == '"' && !text.empty() && text.back() == '\\') text.pop_back();
    text += c;
  }
  try {
    Json list = parse_json(text, "");
    if (list.is_array()) return list;
  } catch (const InputError&) {  // of another form: no group is read of it
  }
  return Json::array();
}

// {"pg_name", "ranks"} of each process group, as PyTorch's execution traces say them.
void read_groups_of(const ChakraTrace& t, std::map<std::string, std::vector<int>>& groups) {
  for (const ChakraNode& n : t.nodes) {
    std::size_t from = n.inputs.find("[{");
    std::size_t to = n.inputs.rfind("}]");
    if (n.type != ChakraType::Metadata || from == std::string::npos || to == std::string::npos ||
        to < from)
      continue;
    std::string text = n.inputs.substr(from, to + 2 - from);
    for (const Json& g : list_in(text)) {
      if (!g.is_object() || !g.contains("pg_name") || !g["pg_name"].is_string() ||
          !g.contains("ranks") || !g["ranks"].is_array())
        continue;
      std::vector<int> ranks;
      for (const Json& r : g["ranks"])
        if (r.is_number_integer() && r >= 0 && r < (1 << 20)) ranks.push_back(r.get<int>());
      groups.try_emplace(g["pg_name"].get<std::string>(), std::move(ranks));
    }
  }
}

class Importer {
 public:
  Importer(const ChakraTrace& trace, const ChakraSetting& setting, std::vector<std::string>& notes)
      : trace_(trace), setting_(setting), notes_(notes), groups_(setting.groups) {
    read_groups_of(trace, groups_);
    ranks_ = setting.ranks;
    for (const auto& [name, members] : groups_)
      for (int r : members) ranks_ = std::max(ranks_, r + 1);
  }

  OrderedJson document() {
    number();
    order();
    choose_streams();
    find_backward();
    OrderedJson j = {{"schema", "ddpsim.program/1"},
                     {"name", setting_.name},
                     {"ranks", ranks()},
                     {"tensors", OrderedJson::array()}};
    if (!streams_.empty()) {
      j["streams"] = OrderedJson::array();
      for (const auto& [thread, name] : streams_) j["streams"].push_back(name);
    }
    OrderedJson ops = OrderedJson::array();
    for (std::size_t k : order_) ops.push_back(operation(k));
    add_end(ops);
    j["steps"] = {{{"kind", "steady"}, {"ops", std::move(ops)}}};
    return j;
  }

 private:
  const ChakraNode& node(std::size_t k) const { return trace_.nodes[k]; }
  int ranks() const { return ranks_; }

  void number() {
    for (std::size_t k = 0; k < trace_.nodes.size(); ++k) {
      if (!at_.try_emplace(node(k).id, k).second)
        throw InputError{trace_.file, "two nodes have the number " + std::to_string(node(k).id)};
      refuse_others(trace_, node(k));
    }
  }

  // Dependencies as indices; those on nodes that are not in the trace are left out.
  void link(bool control) {
    after_.assign(trace_.nodes.size(), {});
    lost_ = 0;
    for (std::size_t k = 0; k < trace_.nodes.size(); ++k) {
      auto add = [&](std::uint64_t id) {
        auto found = at_.find(id);
        if (found == at_.end())
          ++lost_;
        else if (found->second != k)
          after_[k].push_back(found->second);
      };
      for (std::uint64_t id : node(k).after) add(id);
      if (control)
        for (std::uint64_t id : node(k).control) add(id);
      std::sort(after_[k].begin(), after_[k].end());
      after_[k].erase(std::unique(after_[k].begin(), after_[k].end()), after_[k].end());
    }
  }

  // Of the nodes that wait for none that is left, always that of the smallest number. What is left
  // over waits for itself: the first such node.
  std::optional<std::size_t> sort() {
    std::size_t n = trace_.nodes.size();
    std::vector<std::size_t> waits(n);
    std::vector<std::vector<std::size_t>> before(n);
    std::priority_queue<std::pair<std::uint64_t, std::size_t>,
                        std::vector<std::pair<std::uint64_t, std::size_t>>, std::greater<>>
        ready;
    for (std::size_t k = 0; k < n; ++k) {
      waits[k] = after_[k].size();
      for (std::size_t d : after_[k]) before[d].push_back(k);
      if (waits[k] == 0) ready.emplace(node(k).id, k);
    }
    order_.clear();
    while (!ready.empty()) {
      std::size_t k = ready.top().second;
      ready.pop();
      if (plays(node(k))) order_.push_back(k);
      for (std::size_t next : before[k])
        if (--waits[next] == 0) ready.emplace(node(next).id, next);
    }
    auto stuck = std::find_if(waits.begin(), waits.end(), [](std::size_t w) { return w > 0; });
    if (stuck == waits.end()) return std::nullopt;
    return stuck - waits.begin();
  }

  void order() {
    link(true);
    std::optional<std::size_t> stuck = sort();
    if (stuck) {
      // Chakra's feeder and ASTRA-sim go by data alone, and converters number control anew.
      link(false);
      stuck = sort();
      notes_.push_back("dependencies of control have cycles, and are left out");
    }
    if (stuck)
      throw InputError{trace_.file, place_of(node(*stuck)) +
                                        " waits, through others, for itself: the dependencies have "
                                        "a cycle"};
    if (order_.empty()) throw InputError{trace_.file, "has no node that takes time"};
    if (lost_ > 0)
      notes_.push_back(std::to_string(lost_) +
                       " dependencies are on nodes that are not in the trace, and left out");
    through_metadata();
  }

  // What waits for a node that is not played waits for what that one waits for.
  void through_metadata() {
    constexpr std::size_t kMostSeen = 20'000'000;
    std::size_t seen = 0;
    std::vector<std::size_t> met(trace_.nodes.size(), SIZE_MAX);  // for which node last
    for (std::size_t k : order_) {
      std::vector<std::size_t> open = after_[k];
      std::vector<std::size_t> out;
      while (!open.empty()) {
        std::size_t d = open.back();
        open.pop_back();
        if (met[d] == k) continue;
        met[d] = k;
        if (plays(node(d))) {
          out.push_back(d);
          continue;
        }
        seen += after_[d].size();
        if (seen > kMostSeen)
          throw InputError{trace_.file,
                           place_of(node(d)) +
                               " takes no time and joins too many others: through such nodes the "
                               "trace has more than 20 million dependencies; export fewer "
                               "iterations"};
        open.insert(open.end(), after_[d].begin(), after_[d].end());
      }
      std::sort(out.begin(), out.end());
      out.erase(std::unique(out.begin(), out.end()), out.end());
      after_[k] = std::move(out);
    }
  }

  void choose_streams() {
    std::map<std::int64_t, std::uint64_t> busy;
    for (std::size_t k : order_) {
      if (!node(k).on_cpu && !communicates(node(k)))
        busy[node(k).thread] += node(k).duration_us + 1;
    }
    std::vector<std::pair<std::uint64_t, std::int64_t>> longest;
    for (auto [thread, us] : busy) longest.emplace_back(us, thread);
    std::sort(longest.rbegin(), longest.rend());
    for (std::size_t k = 1; k < longest.size() && k <= kMostOwnStreams; ++k)
      streams_[longest[k].second] = "stream." + std::to_string(longest[k].second);
    if (longest.size() > kMostOwnStreams + 1)
      notes_.push_back("of " + std::to_string(longest.size()) +
                       " streams the busiest 8 are kept; what is on others is computed in order");
  }

  // Unique, as a Program's have to be.
  std::string name_of_node(std::size_t k) {
    constexpr std::size_t kMostName = 100;
    std::string name;
    for (char c : node(k).name.substr(0, kMostName))
      name +=
          static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e ? '?' : c;
    if (name.empty()) name = "node";
    if (!names_.try_emplace(name, 1).second || name.starts_with("launch/"))
      name += " #" + std::to_string(node(k).id);
    names_.try_emplace(name, 1);
    return name;
  }

  OrderedJson operation(std::size_t k) {
    const ChakraNode& n = node(k);
    named_.resize(trace_.nodes.size());
    named_[k] = name_of_node(k);
    std::string lane = n.on_cpu ? "host" : communicates(n) ? "comm" : "compute";
    if (auto own = streams_.find(n.thread); lane == "compute" && own != streams_.end())
      lane = own->second;
    OrderedJson o = {{"lane", lane}, {"op", named_[k]}};
    if (communicates(n))
      add_collective(n, o);
    else {
      o["does"] = n.on_cpu ? "host" : "compute";
      o["duration_ps"] = static_cast<std::int64_t>(n.duration_us) * kMicrosecond.ps;
    }
    if (o["does"] == "compute") o["phase"] = phase_of(k);
    o["tensors"] = OrderedJson::array();
    o["waits_for"] = OrderedJson::array();
    for (std::size_t d : after_[k]) o["waits_for"].push_back(named_[d]);
    return o;
  }

  // Between the first and the last node that is named for backward, before or after these.
  void find_backward() {
    for (std::size_t k = 0; k < order_.size(); ++k) {
      const std::string& name = node(order_[k]).name;
      if (name.find("ackward") == std::string::npos && !name.starts_with("bwd/")) continue;
      first_backward_ = std::min(first_backward_, k);
      after_backward_ = k + 1;
    }
    places_.resize(trace_.nodes.size());
    for (std::size_t k = 0; k < order_.size(); ++k) places_[order_[k]] = k;
  }
  const char* phase_of(std::size_t k) const {
    if (places_[k] < first_backward_) return "forward";
    return places_[k] < after_backward_ ? "backward" : "update";
  }

  void add_collective(const ChakraNode& n, OrderedJson& o) {
    if (n.comm_type < 0 || n.comm_size < 0)
      throw InputError{trace_.file,
                       place_of(n) +
                           " is a collective without comm_type and comm_size: it was "
                           "written by an older schema; convert it with Chakra 0.0.4 or "
                           "later (chakra_converter)"};
    constexpr const char* kOperations[kChakraCollectives] = {
        "all_reduce", "reduce",         "all_gather",     "", "", "broadcast",
        "all_to_all", "reduce_scatter", "reduce_scatter", ""};
    const char* operation = n.comm_type < kChakraCollectives ? kOperations[n.comm_type] : "";
    std::vector<int> members = members_of(n);
    if (*operation == 0) {
      // A barrier is an all-reduce of nothing; it takes its steps.
      if (n.comm_type != static_cast<int>(ChakraCollective::Barrier))
        throw InputError{trace_.file,
                         place_of(n) + " is a collective of type " + std::to_string(n.comm_type) +
                             ", which ddpsim does not play (it plays all-reduce, reduce, "
                             "all-gather, broadcast, reduce-scatter and barrier)"};
      operation = "all_reduce";
    }
    // Chakra's size is of what a rank puts in; a Program's of the whole vector.
    std::int64_t bytes = std::max<std::int64_t>(n.comm_size, 4);
    if (n.comm_type == static_cast<int>(ChakraCollective::AllGather)) {
      std::int64_t size = members.empty() ? std::max(ranks(), 1) : static_cast<int>(members.size());
      if (bytes > INT64_MAX / size) throw InputError{trace_.file, place_of(n) + " is too large"};
      bytes *= size;
    }
    o["does"] = "communicate";
    o["operation"] = operation;
    o["dtype"] = bytes % 4 == 0 ? "float32" : "uint8";
    o["bytes"] = bytes;
    if (!members.empty()) o["group"] = members;
  }

  // Empty: all ranks.
  std::vector<int> members_of(const ChakraNode& n) const {
    if (n.group.empty() || n.group == "0") return {};
    auto at = groups_.find(n.group);
    if (at == groups_.end())
      throw InputError{trace_.file,
                       place_of(n) + " is of the process group " + n.group +
                           ", and neither the trace nor a file says which ranks that is: --groups "
                           "FILE.json ({\"" +
                           n.group + "\": [0, 1]}, as ASTRA-sim's comm-group-configuration)"};
    if (std::ssize(at->second) == ranks()) return {};
    return at->second;
  }

  // A step ends with its last operation.
  void add_end(OrderedJson& ops) {
    std::vector<bool> awaited(trace_.nodes.size());
    for (std::size_t k : order_)
      for (std::size_t d : after_[k]) awaited[d] = true;
    OrderedJson ends = OrderedJson::array();
    for (std::size_t k : order_)
      if (!awaited[k]) ends.push_back(named_[k]);
    if (ends.size() == 1 && !awaited[order_.back()]) return;
    std::string name = "end";
    while (names_.contains(name)) name += "_";
    ops.push_back({{"lane", "host"},
                   {"op", name},
                   {"does", "wait"},
                   {"tensors", OrderedJson::array()},
                   {"waits_for", ends}});
  }

  const ChakraTrace& trace_;
  const ChakraSetting& setting_;
  std::vector<std::string>& notes_;
  std::map<std::string, std::vector<int>> groups_;
  int ranks_ = 0;
  std::unordered_map<std::uint64_t, std::size_t> at_;  // by number
  std::vector<std::vector<std::size_t>> after_;
  std::size_t lost_ = 0;
  std::vector<std::size_t> places_;  // in order_, by node
  std::size_t first_backward_ = SIZE_MAX;
  std::size_t after_backward_ = 0;
  std::vector<std::size_t> order_;
  std::vector<std::string> named_;
  std::map<std::string, int> names_;
  std::map<std::int64_t, std::string> streams_;  // by thread; the others are `compute`
};

// What all ranks have to have in common.
void check_alike(const ChakraTrace& a, const ChakraTrace& b, double& slowest) {
  auto differ = [&](const std::string& how) {
    throw InputError{b.file, how + " than " + a.file +
                                 ": ddpsim plays data parallelism, in which all ranks do the same; "
                                 "import one rank's (--ranks N)"};
  };
  std::vector<const ChakraNode*> x, y;
  std::uint64_t total_a = 0;
  std::uint64_t total_b = 0;
  for (const ChakraNode& n : a.nodes) {
    if (communicates(n)) x.push_back(&n);
    if (!n.on_cpu) total_a += n.duration_us;
  }
  for (const ChakraNode& n : b.nodes) {
    if (communicates(n)) y.push_back(&n);
    if (!n.on_cpu) total_b += n.duration_us;
  }
  if (x.size() != y.size())
    differ("has " + std::to_string(y.size()) + " collectives, others (" + std::to_string(x.size()) +
           ")");
  for (std::size_t k = 0; k < x.size(); ++k)
    if (x[k]->comm_type != y[k]->comm_type || x[k]->comm_size != y[k]->comm_size)
      differ("has another collective " + std::to_string(k));
  if (total_a > 0) slowest = std::max(slowest, fraction(total_b, total_a));
}

// What ddpsim export wrote, if nobody changed it.
bool written_here(const ChakraTrace& t) {
  return !t.program.empty() && t.digest == digest_of(t.nodes) &&
         std::all_of(t.nodes.begin(), t.nodes.end(),
                     [](const ChakraNode& n) { return !n.operation.empty(); });
}

}  // namespace

OrderedJson program_of(const std::vector<ChakraTrace>& traces, const ChakraSetting& setting,
                       std::vector<std::string>& notes) {
  const ChakraTrace& first = traces.front();
  double slowest = 1;
  for (std::size_t k = 1; k < traces.size(); ++k) check_alike(first, traces[k], slowest);
  if (slowest > 1.005)
    notes.push_back("the slowest rank computes " + std::to_string(slowest).substr(0, 4) +
                    " times as long as the first, whose times these are (--set slow_ranks.R=" +
                    std::to_string(slowest).substr(0, 4) + " asks for it)");
  if (written_here(first)) {
    OrderedJson j = OrderedJson::parse(first.program, nullptr, false);
    OrderedJson ops = OrderedJson::array();
    for (const ChakraNode& n : first.nodes)
      ops.push_back(OrderedJson::parse(n.operation, nullptr, false));
    if (!j.is_object())
      throw InputError{first.file,
                       "holds a Program of ddpsim that cannot be read; export it again"};
    j["steps"] = {{{"kind", "steady"}, {"ops", std::move(ops)}}};
    notes.push_back("ddpsim exported it: its own operations are read, with what prices them");
    return j;
  }
  if (!first.program.empty())
    notes.push_back(
        "ddpsim exported it and it was changed since: what other programs read of it is read");
  ChakraSetting s = setting;
  if (s.ranks == 0) s.ranks = static_cast<int>(traces.size());
  return Importer(first, s, notes).document();
}

}  // namespace ddpsim::io
