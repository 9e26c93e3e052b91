// NCCL_GRAPH_DUMP_FILE (NCCL 2.28.9, src/graph/search.cc):
//   graphs(version)  graph(id, pattern, crossnic, nchannels, speedintra, speedinter, latencyinter,
//                    typeintra, typeinter, samechannels)  channel  net(dev) gpu(dev)... net(dev)
// speed* in GB/s per channel, latencyinter in us, dev hexadecimal with or without 0x. Absent:
// speedinter = speedintra, crossnic, latencyinter 0, typeinter LOC, samechannels 1.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "sim/io/nccl_xml.h"
#include "sim/io/xml_reader.h"
#include "sim/units/convert.h"

namespace ddpsim::io {
namespace {

constexpr int kMostChannels = 128;
constexpr double kMostBandwidth = 1e6;  // GB/s

nccl::PathType path_type(const XmlFile& xml, pugi::xml_node at, const char* name,
                         const char* otherwise) {
  std::string s = xml.text(at, name);
  if (s.empty() && otherwise) s = otherwise;
  if (s.empty())
    xml.fail(
        at, fmt::format("{} is missing; it is one of {}", name, fmt::join(nccl::kPathTypes, ", ")));
  if (const auto type = nccl::kPathTypes.find(s)) return *type;
  xml.fail(at, fmt::format("{}=\"{}\" is none of {}", name, s.substr(0, 40),
                           fmt::join(nccl::kPathTypes, ", ")));
}

void read_channel(const XmlFile& xml, pugi::xml_node at, nccl::ChannelGraph& g) {
  std::vector<int> gpus;
  std::array<int, 2> nics{-1, -1};
  int nets = 0;
  for (pugi::xml_node x : at.children()) {
    std::string kind = x.name();
    if (kind != "gpu" && kind != "net") xml.fail(x, "a channel lists <net> and <gpu> only");
    auto dev = xml.integer(x, "dev", 0, INT32_MAX, 16);
    if (!dev) xml.fail(x, "dev is missing");
    if (kind == "gpu") {
      gpus.push_back(static_cast<int>(*dev));
      continue;
    }
    if (++nets > 2) xml.fail(x, "a channel has one NIC in and one NIC out; this is the third");
    nics[nets == 1 && gpus.empty() ? 0 : 1] = static_cast<int>(*dev);
  }
  if (gpus.empty()) xml.fail(at, "a channel lists at least one <gpu>");
  if (nets == 2 && nics[0] < 0) xml.fail(at, "a channel's first <net> stands before its <gpu>s");
  if (nets == 1) nics = {std::max(nics[0], nics[1]), std::max(nics[0], nics[1])};
  g.order.push_back(std::move(gpus));
  g.nics.push_back(nics);
}

nccl::ChannelGraph read_graph(const XmlFile& xml, pugi::xml_node at) {
  nccl::ChannelGraph g;
  auto need = [&](const auto& value, const char* name) {
    if (!value) xml.fail(at, std::string(name) + " is missing");
    return *value;
  };
  g.pattern = static_cast<nccl::Pattern>(need(xml.integer(at, "pattern", 0, 6), "pattern"));
  g.channels = static_cast<int>(need(xml.integer(at, "nchannels", 0, kMostChannels), "nchannels"));
  double intra = need(xml.number(at, "speedintra", 0, kMostBandwidth), "speedintra");
  auto rate = [](double gb_per_s) {
    return BytesPerSecond{std::round(bytes_per_s(GBps{gb_per_s}).bytes_per_s)};
  };
  g.bw_intra = rate(intra);
  g.bw_inter = rate(xml.number(at, "speedinter", 0, kMostBandwidth).value_or(intra));
  g.latency_inter = {static_cast<std::int64_t>(
      std::llround(xml.number(at, "latencyinter", 0, 1e9).value_or(0) * kPsPerUs))};
  g.crossnic = static_cast<int>(xml.integer(at, "crossnic", 0, 2).value_or(0));
  g.same_channels = xml.integer(at, "samechannels", 0, 1).value_or(1) == 1;
  g.type_intra = path_type(xml, at, "typeintra", nullptr);
  g.type_inter = path_type(xml, at, "typeinter", "LOC");
  for (pugi::xml_node c : at.children()) {
    if (std::string(c.name()) != "channel") xml.fail(c, "a graph lists <channel> only");
    read_channel(xml, c, g);
  }
  if (std::ssize(g.order) != g.channels)
    xml.fail(
        at, fmt::format("says nchannels=\"{}\" and lists {} channels", g.channels, g.order.size()));
  if (g.channels > 0 && !(g.bw_intra > BytesPerSecond{}))
    xml.fail(at, "speedintra is 0, but there are channels");
  bool none = std::all_of(g.nics.begin(), g.nics.end(),
                          [](const std::array<int, 2>& n) { return n[0] < 0; });
  if (none) g.nics.clear();
  if (!none && !(g.bw_inter > BytesPerSecond{}))
    xml.fail(at, "speedinter is 0, but its channels have NICs");
  return g;
}

}  // namespace

nccl::Graphs read_nccl_graph_xml(const std::string& text, const std::string& file) {
  XmlFile xml(text, file, "graphs");
  if (auto version = xml.integer(xml.root(), "version", 0, INT32_MAX); version && *version != 1)
    xml.fail(xml.root(), fmt::format("version {}; ddpsim reads version 1", *version));
  nccl::Graphs out;
  nccl::By<nccl::GraphId, bool> there;
  for (pugi::xml_node at : xml.root().children()) {
    if (std::string(at.name()) != "graph") xml.fail(at, "<graphs> lists <graph> only");
    auto id = xml.integer(at, "id", 0, 4);
    if (!id)
      xml.fail(at, "id is missing: 0 ring, 1 tree, 2 collnet chain, 3 NVLS, 4 collnet direct");
    auto graph = static_cast<nccl::GraphId>(*id);
    if (there[graph]) xml.fail(at, fmt::format("id {} appears twice", *id));
    there[graph] = true;
    out[graph] = read_graph(xml, at);
  }
  if (std::none_of(out.begin(), out.end(),
                   [](const nccl::ChannelGraph& g) { return g.channels > 0; }))
    throw InputError{file, "holds no graph with a channel"};
  return out;
}

OrderedJson write_nccl_graphs(const nccl::Graphs& graphs) {
  OrderedJson j{{"schema", "ddpsim.nccl_graph/1"}, {"graphs", OrderedJson::array()}};
  for (nccl::GraphId id : nccl::kAll<nccl::GraphId>) {
    const nccl::ChannelGraph& g = graphs[id];
    if (g.channels == 0) continue;
    OrderedJson x{
        {"algorithm", nccl::name_of(id)},
        {"pattern", static_cast<int>(g.pattern)},
        {"channels", g.channels},
        {"bw_intra_bytes_per_s", static_cast<std::int64_t>(std::llround(g.bw_intra.bytes_per_s))},
        {"bw_inter_bytes_per_s", static_cast<std::int64_t>(std::llround(g.bw_inter.bytes_per_s))},
        {"latency_inter_ps", g.latency_inter.ps},
        {"type_intra", nccl::kPathTypes[g.type_intra]},
        {"type_inter", nccl::kPathTypes[g.type_inter]},
        {"same_channels", g.same_channels},
        {"crossnic", g.crossnic},
        {"order", g.order},
        {"nics", g.nics}};
    j["graphs"].push_back(std::move(x));
  }
  return j;
}

nccl::Graphs read_nccl_graphs(const Json& j, const std::string& file) {
  Reader r(j, file);
  r.schema("ddpsim.nccl_graph/1");
  r.only({"schema", "graphs"});
  nccl::Graphs out;
  for (const Reader& item : r.at("graphs").items()) {
    item.only({"algorithm", "pattern", "channels", "bw_intra_bytes_per_s", "bw_inter_bytes_per_s",
               "latency_inter_ps", "type_intra", "type_inter", "same_channels", "crossnic", "order",
               "nics"});
    auto id = static_cast<nccl::GraphId>(
        item.at("algorithm").choice({"ring", "tree", "collnet_chain", "nvls", "collnet_direct"}));
    nccl::ChannelGraph& g = out[id];
    if (g.channels > 0) item.at("algorithm").fail("appears twice");
    auto bandwidth = [&](const char* key, std::int64_t least) {
      std::int64_t v = item.at(key).integer();
      if (v < least) item.at(key).fail(v < 0 ? "is not negative" : "a bandwidth is positive");
      return BytesPerSecond{static_cast<double>(v)};
    };
    auto type = [&](const char* key) {
      return static_cast<nccl::PathType>(item.at(key).choice(
          {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS"}));
    };
    g.pattern = static_cast<nccl::Pattern>(item.at("pattern").small(0, 6));
    g.channels = item.at("channels").small(1, kMostChannels);
    g.bw_intra = bandwidth("bw_intra_bytes_per_s", 1);
    g.bw_inter = bandwidth("bw_inter_bytes_per_s", item.at("nics").json().empty() ? 0 : 1);
    g.latency_inter = {item.at("latency_inter_ps").integer()};
    if (g.latency_inter.ps < 0) item.at("latency_inter_ps").fail("is not negative");
    g.type_intra = type("type_intra");
    g.type_inter = type("type_inter");
    g.same_channels = item.at("same_channels").boolean();
    g.crossnic = item.at("crossnic").small(0, 2);
    for (const Reader& channel : item.at("order").items()) {
      g.order.emplace_back();
      for (const Reader& gpu : channel.items()) g.order.back().push_back(gpu.small(0, INT32_MAX));
    }
    for (const Reader& channel : item.at("nics").items()) {
      auto two = channel.items();
      if (two.size() != 2) channel.fail("expected two NICs, in and out (-1: none)");
      g.nics.push_back({two[0].small(-1, INT32_MAX), two[1].small(-1, INT32_MAX)});
    }
    if (std::ssize(g.order) != g.channels)
      item.at("order").fail(
          fmt::format("lists {} channels; \"channels\" says {}", g.order.size(), g.channels));
    if (!g.nics.empty() && std::ssize(g.nics) != g.channels)
      item.at("nics").fail(
          fmt::format("lists {} channels; \"channels\" says {}", g.nics.size(), g.channels));
  }
  return out;
}

}  // namespace ddpsim::io
