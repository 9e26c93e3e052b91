#include "tools/cmd/explain_op.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "sim/cost/roofline.h"
#include "sim/io/nccl_xml.h"
#include "sim/report/text.h"
#include "sim/topology/survey.h"

namespace ddpsim::cli {
namespace {

constexpr const char* kNoEstimate = "none: NCCL has no estimate for point-to-point";

std::string message_text(const char* where, const nccl::P2pMessage& m, std::int64_t bytes) {
  if (m.parts == 0) return "";
  return fmt::format("  {}: {} each by {}, in {} {}, chunks of {}\n", where,
                     to_string(Bytes{bytes}), nccl::name_of(m.protocol), m.parts,
                     m.parts == 1 ? "part" : "parts", to_string(Bytes{std::min(m.chunk, m.part)}));
}
io::OrderedJson message_json(const nccl::P2pMessage& m) {
  if (m.parts == 0) return nullptr;
  return {{"protocol", nccl::name_of(m.protocol)},
          {"parts", m.parts},
          {"part_bytes", m.part},
          {"chunk_bytes", std::min(m.chunk, m.part)}};
}

// What becomes of a message, whatever its size.
std::string way_of(const nccl::P2pMessage& m) {
  return fmt::format("{} in {} {} by chunks of {}", nccl::name_of(m.protocol), m.parts,
                     m.parts == 1 ? "part" : "parts", to_string(Bytes{m.chunk}));
}
bool same_way(const nccl::P2pMessage& a, const nccl::P2pMessage& b) {
  return a.protocol == b.protocol && a.parts == b.parts && a.chunk == b.chunk;
}

constexpr std::int64_t kSmallest = 1024;
constexpr std::int64_t kLargest = std::int64_t{8} << 30;

// Between a size that does not and one that does: the first that does.
template <class Does>
std::int64_t first_that(std::int64_t not_yet, std::int64_t then, Does does) {
  while (then - not_yet > 1) {
    std::int64_t middle = not_yet + (then - not_yet) / 2;
    (does(middle) ? then : not_yet) = middle;
  }
  return then;
}

// `price(profile, bytes)`. Where the price is another without the profile's rendezvous, messages
// are that long; between powers of two the first such size.
template <class Price>
std::vector<Rendezvous> find_rendezvous(const Profile& p, Price price) {
  std::vector<Rendezvous> out;
  Profile without = p;
  bool any = false;
  for (auto& [name, t] : without.transports) {
    any = any || t.rendezvous.ps > 0;
    t.rendezvous = {};
  }
  if (!any) return out;
  auto asks = [&](std::int64_t bytes) { return price(p, bytes) > price(without, bytes); };
  bool asked = asks(kSmallest);
  for (std::int64_t low = kSmallest; low < kLargest; low *= 2) {
    bool now = asks(2 * low);
    if (now && !asked) {
      std::int64_t next = first_that(low, 2 * low, asks);
      out.push_back({next, price(p, next - 1), price(p, next)});
    }
    asked = now;
  }
  return out;
}

}  // namespace

std::vector<Switch> switches_of(const nccl::Group& g, const Profile& p, Operation op) {
  std::vector<Switch> out;
  std::optional<nccl::Choice> last;
  Duration last_price;
  auto name = [](const nccl::Choice& c) {
    return fmt::format("{}/{}", nccl::name_of(c.algorithm), nccl::name_of(c.protocol));
  };
  for (std::int64_t bytes = kSmallest; bytes <= kLargest; bytes *= 2) {
    auto c = nccl::choose(g, op, bytes);
    if (!c) return out;
    Duration price = nccl::time_of(g, p, Level::Mid, op, *c, {bytes}).total;
    if (last && (last->algorithm != c->algorithm || last->protocol != c->protocol))
      out.push_back({bytes, name(*last), name(*c), "", price < last_price});
    last = c;
    last_price = price;
  }
  return out;
}

std::vector<Switch> switches_of(const nccl::P2pOperation& o, const Profile& p) {
  std::vector<Switch> out;
  auto same = [&](std::int64_t a, std::int64_t b) {
    nccl::P2pMessages x = nccl::p2p_messages(o, {a});
    nccl::P2pMessages y = nccl::p2p_messages(o, {b});
    return same_way(x.inside, y.inside) && same_way(x.between, y.between);
  };
  auto price = [&](std::int64_t bytes) {
    return nccl::p2p_time(o, p, Level::Mid, {bytes}).price.total;
  };
  for (std::int64_t low = kSmallest; low < kLargest; low *= 2)
    for (std::int64_t from = low; !same(from, 2 * low);) {
      std::int64_t next =
          first_that(from, 2 * low, [&](std::int64_t bytes) { return !same(from, bytes); });
      std::int64_t last = next - 1;  // of which nothing has changed
      nccl::P2pMessages before = nccl::p2p_messages(o, {last});
      nccl::P2pMessages after = nccl::p2p_messages(o, {next});
      bool faster = price(next) < price(last);
      if (!same_way(before.inside, after.inside))
        out.push_back({next, way_of(before.inside), way_of(after.inside), "inside a node", faster});
      if (!same_way(before.between, after.between))
        out.push_back(
            {next, way_of(before.between), way_of(after.between), "between nodes", faster});
      from = next;
    }
  return out;
}

std::vector<Rendezvous> rendezvous_of(const nccl::Group& g, const Profile& p, Operation op) {
  return find_rendezvous(p, [&](const Profile& with, std::int64_t bytes) {
    auto c = nccl::choose(g, op, bytes);
    return c ? nccl::time_of(g, with, Level::Mid, op, *c, {bytes}).total : Duration{};
  });
}

std::vector<Rendezvous> rendezvous_of(const nccl::P2pOperation& o, const Profile& p) {
  return find_rendezvous(p, [&](const Profile& with, std::int64_t bytes) {
    return nccl::p2p_time(o, with, Level::Mid, {bytes}).price.total;
  });
}

std::string rendezvous_text(const std::vector<Rendezvous>& all) {
  std::string out;
  for (const Rendezvous& r : all)
    out += fmt::format("{} {} on ({} instead of {})", out.empty() ? "From" : ", and again from",
                       to_string(Bytes{r.bytes}), to_string(r.from), to_string(r.before));
  return out.empty() ? out
                     : out +
                           " messages are so long that the network asks the receiver first "
                           "(rendezvous: \"eager\" of a link).\n";
}

io::OrderedJson rendezvous_json(const std::vector<Rendezvous>& all) {
  io::OrderedJson out = io::OrderedJson::array();
  for (const Rendezvous& r : all)
    out.push_back({{"from_bytes", r.bytes}, {"before_ps", r.before.ps}, {"price_ps", r.from.ps}});
  return out;
}

io::OrderedJson switches_json(const std::vector<Switch>& all) {
  io::OrderedJson out = io::OrderedJson::array();
  for (const Switch& s : all) {
    out.push_back({{"from_bytes", s.bytes},
                   {"before", s.before},
                   {"after", s.after},
                   {"price_falls", s.faster}});
    if (!s.where.empty()) out.back()["where"] = s.where;
  }
  return out;
}

std::vector<std::string> notes_of(const NcclQuestion& q) {
  std::string nics = topology::unused_nics_sentence(*q.fabric, first_devices(q.ranks));
  return nics.empty() ? std::vector<std::string>{} : std::vector<std::string>{nics};
}
std::string notes_text(const NcclQuestion& q) {
  std::string out;
  for (const std::string& note : notes_of(q)) out += "\nBeyond the model: " + note + "\n";
  return out;
}

std::string heading(const NcclQuestion& q, Operation op, Bytes bytes, const std::string& graph) {
  const Hardware& h = q.hardware;
  int nodes = nccl::nodes(*q.group);
  return fmt::format("{} of {} on {} ranks of {} ({} {}), NCCL {}; {}, {}{}\n\n", name_of(op),
                     to_string(bytes), q.ranks, h.cluster.name, nodes,
                     nodes == 1 ? "node" : "nodes", to_string(nccl::version(*q.group)),
                     h.profile.name, report::basis_text(h.profile),
                     graph.empty() ? "" : "; channels of " + graph);
}

void explain_p2p(Terminal& t, const NcclQuestion& q, Operation op, Bytes bytes,
                 const std::string& graph, const OutputFlags& output) {
  const nccl::Group& g = *q.group;
  if (q.ranks > nccl::kMostP2pRanks)
    throw InputError{
        fmt::format("--op {}", name_of(op)),
        fmt::format("the routes of all pairs are added up, of {} ranks at most; this is on {}",
                    nccl::kMostP2pRanks, q.ranks)};
  nccl::P2pOperation o = nccl::make_p2p(g, op);
  nccl::P2pTime priced = nccl::p2p_time(o, q.hardware.profile, Level::Mid, bytes);
  const nccl::OperationTime& price = priced.price;
  std::int64_t each = nccl::p2p_message_bytes(o, bytes);
  if (output.format == "csv")
    return write_answer(
        t, output,
        kNcclCsvHeader +
            fmt::format("{},{},{},{},{},nccl,p2p,,yes,{},,,{},{},{},{},{},{:.0f},{},{}\n",
                        name_of(op), bytes.count, report::csv_field(q.hardware.cluster.name),
                        report::csv_field(q.hardware.profile.name), q.ranks, o.p2p.blocks,
                        price.total.ps, price.base.ps, price.steps.ps, price.fill.ps,
                        price.transfer.ps, price.bus_bytes_per_s,
                        report::csv_field(price.limited_by),
                        report::csv_field(fmt::format("{}", fmt::join(notes_of(q), "; ")))));
  if (output.format == "json") {
    io::OrderedJson row = {{"algorithm", "p2p"},
                           {"inside", message_json(priced.inside)},
                           {"between", message_json(priced.between)},
                           {"channels", o.p2p.blocks},
                           {"message_bytes", each},
                           {"nccl_ps", nullptr},
                           {"price_ps", price.total.ps},
                           {"base_ps", price.base.ps},
                           {"steps_ps", price.steps.ps},
                           {"fill_ps", price.fill.ps},
                           {"transfer_ps", price.transfer.ps},
                           {"bus_bytes_per_s", price.bus_bytes_per_s},
                           {"limited_by", price.limited_by},
                           {"chosen", true}};
    io::OrderedJson j = {{"operation", name_of(op)},
                         {"bytes", bytes.count},
                         {"cluster", q.hardware.cluster.name},
                         {"profile", q.hardware.profile.name},
                         {"ranks", q.ranks},
                         {"candidates", io::OrderedJson::array({row})},
                         {"changes", switches_json(switches_of(o, q.hardware.profile))},
                         {"rendezvous", rendezvous_json(rendezvous_of(o, q.hardware.profile))},
                         {"notes", notes_of(q)}};
    return write_answer(t, output, j.dump(1) + "\n");
  }
  std::string out = heading(q, op, bytes, graph);
  out += fmt::format("  {:<16} {:>8} {:>11} {:>11} {:>10}  {}\n", "", "channels", "NCCL says",
                     "ddpsim", "bus GB/s", "limited by");
  out += fmt::format("* {:<16} {:>8} {:>11} {:>11} {:>10.1f}  {}\n", "send/recv", o.p2p.blocks,
                     "none", to_string(price.total), price.bus_bytes_per_s / 1e9, price.limited_by);
  out +=
      fmt::format("\nNCCL says {}.\nncclSend and ncclRecv in a group, one kernel:\n", kNoEstimate);
  out += message_text("inside a node", priced.inside, each) +
         message_text("between nodes", priced.between, each);
  out += fmt::format(
      "ddpsim's price: {} at once, {} for the latencies of its steps, {} to fill the pipeline, {} "
      "to move the bytes.\n",
      to_string(price.base), to_string(price.steps), to_string(price.fill),
      to_string(price.transfer));
  for (const Switch& s : switches_of(o, q.hardware.profile))
    if (s.faster)
      out += fmt::format(
          "Above {} the time falls although the size grows: {} NCCL changes from {} to {}.\n",
          to_string(Bytes{s.bytes - 1}), s.where, s.before, s.after);
  out += rendezvous_text(rendezvous_of(o, q.hardware.profile)) + notes_text(q);
  write_answer(t, output, out);
}

std::vector<nccl::Composed> composed_of(const NcclQuestion& q, Bytes bytes) {
  const Profile& p = q.hardware.profile;
  // Reads every slice, writes one.
  double moved = bytes * (1 + 1.0 / q.ranks);
  Duration sum = std::max(
      p.memory.kernel,
      Duration{static_cast<std::int64_t>(std::ceil(moved / predict::memory_rate(p, Level::Mid)))});
  return nccl::composed_all_reduces(*q.group, p, Level::Mid, bytes, sum);
}

std::string composed_text(const std::vector<nccl::Composed>& all, Duration chosen,
                          const std::string& graph) {
  if (all.empty()) return "";
  std::string out =
      fmt::format("\nMade of NCCL's calls (each at its choice)\n  {:<28} {:>11} {:>10} {:>9}  {}\n",
                  "", "ddpsim", "bus GB/s", "of NCCL's", "limited by");
  for (const nccl::Composed& c : all) {
    if (!c.why_not.empty()) {
      out += fmt::format("  {:<28} not here: {}\n", c.name, c.why_not);
      continue;
    }
    double ratio = c.total / chosen;
    out += fmt::format(
        "  {:<28} {:>11} {:>10.1f} {:>+7.0f} %  {}{}\n", c.name, to_string(c.total),
        c.bus_bytes_per_s / 1e9, 100 * (ratio - 1), c.limited_by,
        c.sub_communicators && !graph.empty() ? "; channels of ddpsim's own search" : "");
    for (const nccl::ComposedStage& s : c.stages)
      out += fmt::format("    {:<26} {:>11} {:>4} x {} ranks, {}, {}\n", s.what, to_string(s.time),
                         s.groups, s.ranks, to_string(s.bytes), s.limited_by);
  }
  out += "A 2D torus whose rows are the hosts makes the calls of two_level.\n";
  if (!graph.empty())
    out += "A communicator of some of the ranks has a search of its own in NCCL, which " + graph +
           " does not tell.\n";
  return out;
}

io::OrderedJson composed_json(const std::vector<nccl::Composed>& all, const std::string& graph) {
  io::OrderedJson out = io::OrderedJson::array();
  for (const nccl::Composed& c : all) {
    io::OrderedJson stages = io::OrderedJson::array();
    for (const nccl::ComposedStage& s : c.stages)
      stages.push_back({{"what", s.what},
                        {"groups", s.groups},
                        {"ranks", s.ranks},
                        {"bytes", s.bytes.count},
                        {"time_ps", s.time.ps},
                        {"transfer_ps", s.transfer.ps},
                        {"limited_by", s.limited_by}});
    if (!c.why_not.empty())
      out.push_back({{"name", c.name}, {"why_not", c.why_not}});
    else
      out.push_back(
          {{"name", c.name},
           {"price_ps", c.total.ps},
           {"bus_bytes_per_s", c.bus_bytes_per_s},
           {"limited_by", c.limited_by},
           {"channels_found_by", c.sub_communicators || graph.empty() ? "ddpsim" : "nccl"},
           {"stages", stages}});
  }
  return out;
}

nccl::Graphs load_graphs(const std::string& file, const topology::Fabric& fabric,
                         const std::vector<std::vector<int>>& nodes) {
  std::string text = io::read_file(file);
  auto first = text.find_first_not_of(" \t\r\n");
  bool json = first != std::string::npos && text[first] == '{';
  nccl::Graphs out = json ? io::read_nccl_graphs(io::parse_json(text, file), file)
                          : io::read_nccl_graph_xml(text, file);
  const nccl::ChannelGraph& ring = out[nccl::GraphId::Ring];
  if (ring.channels == 0)
    throw InputError{file, "has no channels of rings, which every communicator has"};
  std::set<int> devs;
  for (int d : ring.order.front()) devs.insert(d);
  for (const auto& node : nodes)
    if (node.size() != devs.size())
      throw InputError{
          file,
          fmt::format(
              "is of a host with {} GPU{}, and the ranks here are {} on a {} (--cluster, --ranks)",
              devs.size(), devs.size() == 1 ? "" : "s", node.size(),
              fabric.cluster().pattern == Pattern::Nvl72 ? "NVLink domain" : "host")};
  for (nccl::GraphId id : nccl::kAll<nccl::GraphId>) {
    nccl::ChannelGraph& g = out[id];
    for (std::vector<int>& order : g.order) {
      std::set<int> seen(order.begin(), order.end());
      bool whole =
          seen.size() == order.size() &&
          (seen == devs || (id != nccl::GraphId::Ring && id != nccl::GraphId::Tree &&
                            std::includes(devs.begin(), devs.end(), seen.begin(), seen.end())));
      if (!whole)
        throw InputError{
            file, fmt::format("a channel of {} does not go through each of the host's {} GPUs once",
                              nccl::name_of(id), devs.size())};
      for (int& d : order) d = static_cast<int>(std::distance(devs.begin(), devs.find(d)));
    }
    for (const auto& nics : g.nics)
      for (int nic : nics)
        if (fabric.has_nic_links() && nic >= fabric.nics_per_host())
          throw InputError{
              file, fmt::format("names NIC {}, and a host of the cluster has {}, counted from 0",
                                nic, fabric.nics_per_host())};
  }
  if (nodes.size() > 1 && ring.nics.empty())
    throw InputError{
        file, "is of one host: its channels have no NIC, and the ranks here are on several nodes"};
  if (nodes.size() == 1 && !ring.nics.empty())
    throw InputError{
        file, "is of several hosts: its channels have NICs, and the ranks here are on one node"};
  return out;
}

}  // namespace ddpsim::cli
