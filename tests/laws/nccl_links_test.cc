// NCCL on shipped clusters whose links are a thousand times slower to a thousand times faster:
// there is always something that it runs, and of one algorithm and protocol on the same channels a
// slower link is never faster.
//
// Of NCCL's choice that is not true, and of one algorithm and protocol it is not true either: NCCL
// chooses by an estimate of its own, and its search finds other channels for other links (more and
// slower ones pipeline small operations better). A sweep says where (sim/sweep/flips.h). Nor
// is it true where messages change from one kind of link to another: of ways of as few links NCCL
// takes the widest, so that PCIe ten times faster than it is takes messages from NVLink, at its
// latency.
#include <cstdlib>
#include <functional>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "sim/collective/backend/nccl.h"
#include "sim/io/files.h"
#include "sim/nccl/finder.h"
#include "tests/support/nccl.h"
#include "tests/support/support.h"

namespace ddpsim {
namespace {

struct LinkOf {
  std::string name;
  std::function<LinkSpec*(Cluster&)> in;
};

std::vector<LinkOf> links_of(const Cluster& c) {
  std::vector<LinkOf> out{{"link", [](Cluster& k) { return &k.link; }}};
  auto add = [&](bool there, const char* name, std::function<LinkSpec*(Cluster&)> in) {
    if (there) out.push_back({name, std::move(in)});
  };
  bool dragonfly = c.pattern == Pattern::Dragonfly;
  add(c.intra.has_value(), "intra", [](Cluster& k) { return &*k.intra; });
  add(c.pattern == Pattern::Racks, "uplink", [](Cluster& k) { return &k.uplink; });
  add(dragonfly || c.pattern == Pattern::Ring || c.pattern == Pattern::Torus, "trunk",
      [](Cluster& k) { return &k.trunk; });
  add(dragonfly, "global", [](Cluster& k) { return &k.global; });
  if (!c.inside) return out;
  add(true, "inside.link", [](Cluster& k) { return &k.inside->link; });
  add(c.inside->pcie.has_value(), "inside.pcie", [](Cluster& k) { return &*k.inside->pcie; });
  add(c.inside->c2c.has_value(), "inside.c2c", [](Cluster& k) { return &*k.inside->c2c; });
  add(c.inside->pcie_uplink.has_value(), "inside.pcie_uplink",
      [](Cluster& k) { return &*k.inside->pcie_uplink; });
  add(c.inside->nic_link.has_value(), "inside.nic_link",
      [](Cluster& k) { return &*k.inside->nic_link; });
  add(c.inside->cpu_link.has_value(), "inside.cpu_link",
      [](Cluster& k) { return &*k.inside->cpu_link; });
  for (std::size_t i = 0; i < c.inside->links.size(); ++i)
    add(true, "inside.links", [i](Cluster& k) { return &k.inside->links[i].link; });
  return out;
}

// Everything that makes a graph of it.
std::string text_of(const nccl::Channels& c, const nccl::Node& node) {
  std::string out = std::to_string(c.count) + " x " + std::to_string(c.intra.gb_per_s) + ", " +
                    std::to_string(c.inter.gb_per_s) + " GB/s, " + name_of(c.far_intra) + ", " +
                    name_of(c.far_inter);
  for (int k = 0; k < c.count; ++k) {
    for (int g = 0; g < node.gpus; ++g) out += " " + std::to_string(c.order[k * node.gpus + g]);
    if (!c.nics.empty())
      out += " by " + std::to_string(c.nics[k][0]) + ", " + std::to_string(c.nics[k][1]);
  }
  return out;
}

// Every shipped cluster of GPUs, each rank on one of its own.
const std::vector<std::string>& gpu_clusters() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const std::string& name : io::Home(DDPSIM_SOURCE_DIR, "", "").list("topologies"))
      if (Cluster c = test::cluster(name);
          c.device == DeviceKind::Gpu && c.profile.ends_with(".datasheet"))
        out.push_back(name);
    return out;
  }();
  return names;
}

Cluster scaled(const std::string& name, int hosts, const LinkOf& link, double factor) {
  Cluster c = test::cluster(name);
  c.hosts = hosts;
  if (c.pattern == Pattern::Racks) c.racks = std::min(c.racks, hosts);
  LinkSpec& l = *link.in(c);
  auto rate = static_cast<double>(l.bandwidth.bits_per_s) * factor;
  l.bandwidth.bits_per_s = static_cast<std::int64_t>(std::clamp(rate, 1e3, 1e15));
  if (l.peak.bits_per_s > 0) l.peak = std::max(l.peak, l.bandwidth);
  return c;
}

Profile profile_of(const Cluster& c) {
  return test::profile(c.profile.find('.') != std::string::npos ? c.profile
                                                                : c.profile + ".datasheet");
}

// Which kinds of link messages take, from each GPU of the first two hosts to each.
std::string kinds_of(const topology::Fabric& f) {
  std::string out;
  topology::Route route;
  int n = std::min(f.devices(), 2 * f.cluster().devices_per_host);
  for (DeviceId a : each<DeviceId>(n))
    for (DeviceId b : each<DeviceId>(n)) {
      if (a == b) continue;
      f.find_route(a, b, route);
      for (topology::LinkId l : route.links) out += name_of(f.links()[l].kind);
      out += ' ';
    }
  return out;
}

constexpr std::array kOps{Operation::AllReduce, Operation::AllGather, Operation::Broadcast};
constexpr std::array<std::int64_t, 3> kSizes{kKiB, 25 * kMiB, 1024 * kMiB};

TEST(NcclLinks, WhateverTheyCarryThereIsAChoice) {
  for (const std::string& name : gpu_clusters())
    for (const LinkOf& link : links_of(test::cluster(name)))
      for (int hosts : {1, 3})
        for (double factor : {1e-3, 1e-2, 0.1, 0.4, 10.0, 1e3}) {
          Cluster c = scaled(name, hosts, link, factor);
          if (validate(c) || c.devices() < 2) continue;
          std::string what = name + " x " + std::to_string(hosts) + ", " + link.name + " x " +
                             std::to_string(factor);
          Profile p = profile_of(c);
          topology::Fabric f(c);
          auto g = nccl::make_group(f, first_devices(c.devices()), {}, p.compute.capability);
          EXPECT_GE(g.system.graphs[nccl::GraphId::Ring].channels, 1) << what;
          EXPECT_GE(g.system.graphs[nccl::GraphId::Tree].channels, 1) << what;
          for (Operation op : kOps)
            for (std::int64_t bytes : kSizes) {
              auto choice = nccl::choose(g.system, g.settings, op, bytes);
              ASSERT_TRUE(choice) << what;
              Duration price = nccl::time_of(g, p, Level::Mid, op, *choice, {bytes}).total;
              EXPECT_GT(price.ps, 0) << what;
              EXPECT_LT(price.ps, kForever) << what;
            }
        }
}

TEST(NcclLinks, SlowerIsNeverFasterOnTheSameChannels) {
  for (const std::string& name : gpu_clusters())
    for (const LinkOf& link : links_of(test::cluster(name)))
      for (int hosts : {1, 3}) {
        std::map<std::string, Duration>
            faster;  // by kinds of links, algorithm, protocol, operation and size
        for (double factor : {1e3, 30.0, 5.0, 2.0, 1.0, 0.7, 0.4, 0.1, 0.01, 1e-3}) {
          Cluster c = scaled(name, hosts, link, factor);
          if (validate(c) || c.devices() < 2) continue;
          Profile p = profile_of(c);
          Cluster whole = scaled(name, hosts, link, 1);
          topology::Fabric shipped(whole);
          auto graphs =
              nccl::make_group(shipped, first_devices(c.devices()), {}, p.compute.capability)
                  .system.graphs;
          topology::Fabric f(c);
          auto g =
              nccl::make_group(f, first_devices(c.devices()), {}, p.compute.capability, &graphs);
          std::string kinds = kinds_of(f);
          for (Operation op : kOps)
            for (std::int64_t bytes : kSizes)
              for (const nccl::Candidate& k : nccl::candidates(g.system, g.settings, op, bytes)) {
                if (!k.estimate) continue;
                nccl::Choice choice =
                    nccl::complete(g.system, g.settings, op, k.algorithm, k.protocol, bytes);
                Duration now = nccl::time_of(g, p, Level::Mid, op, choice, {bytes}).total;
                std::string what = std::string(name_of(k.algorithm)) + "/" + name_of(k.protocol) +
                                   " of " + ddpsim::name_of(op) + ", " + std::to_string(bytes) +
                                   " bytes";
                auto [it, first] = faster.emplace(kinds + what, now);
                // A picosecond or two: each part of a price is rounded.
                EXPECT_GE(now.ps + 2, it->second.ps) << name << " x " << hosts << ", " << link.name
                                                     << " x " << factor << ": " << what;
                it->second = std::max(it->second, now);
              }
        }
      }
}

// What the search leaves out changes nothing: each case has another number of hosts, links, GPUs of
// a host, release of NCCL and NCCL_CROSS_NIC, drawn with a fixed seed (DDPSIM_SEARCH_SEED, and
// DDPSIM_SEARCH_CASES, take others).
TEST(NcclLinks, TheSearchFindsWhatAllOfNcclsTriesFind) {
  auto given = [](const char* name, unsigned otherwise) {
    const char* v = std::getenv(name);
    return v ? static_cast<unsigned>(std::stoul(v)) : otherwise;
  };
  std::mt19937 random(given("DDPSIM_SEARCH_SEED", 1));
  auto one_of = [&](const auto& list) { return list[random() % std::size(list)]; };
  constexpr std::array kReleases{2'08, 2'12, 2'18, 2'19, 2'21, 2'23, 2'25, 2'27, 2'28};
  constexpr std::array kFactors{1e-3, 0.05, 0.3, 0.45, 0.6, 0.8, 1.0, 1.0, 1.3, 2.0, 4.0, 30.0};
  unsigned compared = 0;
  for (unsigned cases = given("DDPSIM_SEARCH_CASES", 400); cases > 0; --cases) {
    const std::string& name = one_of(gpu_clusters());
    Cluster c = test::cluster(name);
    LinkOf link = one_of(links_of(c));
    int hosts = one_of(std::array{1, 2, 4});
    double factor = one_of(kFactors);
    c = scaled(name, hosts, link, factor);
    LinkOf second = one_of(links_of(c));
    auto rate = static_cast<double>(second.in(c)->bandwidth.bits_per_s) * one_of(kFactors);
    second.in(c)->bandwidth.bits_per_s = static_cast<std::int64_t>(std::clamp(rate, 1e3, 1e15));
    if (c.inside && second.in(c)->peak.bits_per_s > 0) second.in(c)->peak = {};
    if (validate(c) || c.devices_per_host > 16) continue;
    std::vector<DeviceId> devices;
    auto used = static_cast<int>(1 + random() % static_cast<unsigned>(c.devices_per_host));
    for (DeviceId d : each<DeviceId>(c.devices()))
      if (d.number % c.devices_per_host < used) devices.push_back(d);
    if (devices.size() < 2) continue;
    nccl::Settings settings;
    int release = one_of(kReleases);
    settings.version = {release / 100, release % 100};
    settings.cross_nic = one_of(std::array{0, 1, 2, 2});
    std::vector<std::pair<nccl::SearchQuestion, nccl::Graphs>> asked;
    nccl::Searches listen{
        [](const nccl::SearchQuestion&) { return std::nullopt; },
        [&](const nccl::SearchQuestion& q, const nccl::Graphs& g) { asked.emplace_back(q, g); }};
    topology::Fabric f(c);
    nccl::make_group(f, devices, settings, profile_of(c).compute.capability, nullptr, &listen);
    for (const auto& [question, found] : asked) {
      ++compared;
      const nccl::Reach reach(question.node, question.several);
      auto finder = [&](bool in_full) {
        return nccl::Finder(question.node, question.machine, reach, question.several, in_full);
      };
      nccl::Finder quick = finder(false), full = finder(true);
      const int rings = found[nccl::GraphId::Ring].channels;
      for (auto [shape, least, most] : {std::tuple{nccl::Shape::Ring, 1, nccl::kMostChannels},
                                        {nccl::Shape::Balanced, rings, rings},
                                        {nccl::Shape::Plain, rings, rings}})
        EXPECT_EQ(text_of(quick.find(shape, least, most), question.node),
                  text_of(full.find(shape, least, most), question.node))
            << name << " x " << hosts << ", " << used << " GPUs, " << link.name << " x " << factor
            << ", then " << second.name << ", NCCL " << release << ", NCCL_CROSS_NIC "
            << settings.cross_nic << ": shape " << static_cast<int>(shape);
    }
  }
  EXPECT_GT(compared, given("DDPSIM_SEARCH_CASES", 400) / 2);
}

}  // namespace
}  // namespace ddpsim
