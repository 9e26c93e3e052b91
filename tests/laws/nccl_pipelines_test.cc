// NCCL's trees, NVLS, NVLSTree, CollNet and PAT: the closed form beside their messages, and what
// each rank sends and receives.
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "sim/collective/backend/nccl.h"
#include "sim/collective/messages.h"
#include "sim/engine/execute.h"
#include "sim/nccl/fabric/messages.h"
#include "tests/support/nccl.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using nccl::Stage;

struct Machine {
  Cluster cluster;
  Profile profile;
  std::optional<topology::Fabric> fabric;
  Machine(const char* name, int hosts) : cluster(test::cluster(name)) {
    cluster.hosts = hosts;
    cluster.nccl.collnet = hosts > 1;
    profile = test::profile(
        cluster.profile.ends_with(".datasheet") ? cluster.profile : cluster.profile + ".datasheet");
    fabric.emplace(cluster);
  }
  collective::Communicator communicator(const char* algorithm, const char* protocol) const {
    std::vector<DeviceId> devices = first_devices(cluster.devices());
    nccl::ParsedSettings parsed =
        nccl::parse_settings({{"NCCL_ALGO", algorithm}, {"NCCL_PROTO", protocol}}, {28});
    EXPECT_EQ(parsed.problem.message, "");
    return collective::make_nccl_communicator(*fabric, devices, parsed.settings,
                                              profile.compute.capability);
  }
};

double messages_us(const collective::Communicator& c, const Profile& p, Operation op,
                   const nccl::Choice& choice, std::int64_t bytes) {
  engine::TaskGraph g;
  std::map<topology::LinkId, engine::ResourceId> links;
  nccl::Flows flows;
  flows.link = [&](topology::LinkId l) {
    auto [it, fresh] = links.try_emplace(l, 0);
    if (fresh) it->second = g.add_resource({collective::link_rate(c, p, Level::Mid, l), 0, 0});
    return it->second;
  };
  std::vector<engine::TaskId> arrive;
  for (int r = 0; r < c.ranks(); ++r) arrive.push_back(g.add_fixed({}));
  nccl::add_messages(g, *nccl_group(c), p, Level::Mid, op, choice, {bytes}, flows, arrive);
  engine::Timeline t = engine::execute(g);
  EXPECT_TRUE(t.complete());
  return static_cast<double>(t.makespan.ps) / 1e6;
}

struct Place {
  const char* cluster;
  int hosts;
};
constexpr Place kPlaces[] = {{"hgx-h100", 1},
                             {"hgx-h100", 2},
                             {"hgx-h100", 3},
                             {"hgx-h100", 8},
                             {"dgx-h100", 3},
                             {"dgx-a100", 5},
                             {"dgx1-v100", 1},
                             {"dgx1-v100", 2},
                             {"aws-p5", 4},
                             {"aws-p5", 7},
                             {"pcie-box", 1},
                             {"pcie-box-8", 2},
                             {"rtx-2080-ti-10g", 1},
                             {"rtx-2080-ti-10g", 3},
                             {"gpu-ethernet-100g", 4},
                             {"gh200x4-slingshot", 4},
                             {"gh200x4-slingshot", 16},
                             {"gpu-ethernet-25g", 2},
                             {"gpu-ethernet-25g", 6},
                             {"gpu-ethernet-25g", 64},
                             {"gb200-nvl72", 8}};
// Inside these the hops of one chain pass the same links.
bool shares_inside(std::string_view cluster) {
  return cluster == "dgx1-v100" || cluster.starts_with("pcie-box") || cluster == "rtx-2080-ti-10g";
}
constexpr const char* kAlgorithms[] = {"tree",          "nvls",         "nvlstree",
                                       "collnetdirect", "collnetchain", "pat"};
constexpr Operation kOperations[] = {Operation::AllReduce, Operation::AllGather,
                                     Operation::ReduceScatter};

// Chains that meet after unlike ways are not alike: a step that they shared would begin when the
// later is there, and this tree would take 2.4 % more than its messages.
TEST(NcclPipelines, ChainsThatMeetAreAsLateAsEachIs) {
  Machine m("dgx1-v100", 4);
  const collective::Communicator c = m.communicator("tree", "simple");
  const std::int64_t bytes = std::int64_t{1} << 20;
  const auto choice =
      nccl::choose(nccl_group(c)->system, nccl_group(c)->settings, Operation::AllReduce, bytes);
  ASSERT_TRUE(choice);
  const nccl::OperationTime price =
      nccl::time_of(*nccl_group(c), m.profile, Level::Mid, Operation::AllReduce, *choice, {bytes});
  const double messages = messages_us(c, m.profile, Operation::AllReduce, *choice, bytes);
  EXPECT_NEAR(static_cast<double>(price.total.ps) / 1e6 / messages, 1, 0.015);
}

// 1 % where a piece passes each link once, and for single pieces. Pieces of one operation that pass
// a link twice (a tree's way up and down) delay one another, which the closed form has only in
// part: it is the lower end, by as much as is said below.
TEST(NcclPipelines, TakeTheSameMessageByMessage) {
  std::vector<double> shared;
  for (const Place& place : kPlaces) {
    Machine m(place.cluster, place.hosts);
    for (const char* algorithm : kAlgorithms)
      for (const char* protocol : {"simple", "ll128", "ll"}) {
        collective::Communicator c = m.communicator(algorithm, protocol);
        for (Operation op : kOperations)
          for (std::int64_t bytes :
               {std::int64_t{64} << 10, std::int64_t{1} << 20, std::int64_t{4} << 20,
                std::int64_t{25} << 20, std::int64_t{128} << 20}) {
            if (bytes >> 20 == 128 && c.ranks() > 24) continue;  // time
            auto choice = nccl::choose(nccl_group(c)->system, nccl_group(c)->settings, op, bytes);
            if (!choice || choice->algorithm == nccl::Algorithm::Ring) continue;
            auto closed = static_cast<double>(nccl::time_of(*nccl_group(c), m.profile, Level::Mid,
                                                            op, *choice, {bytes})
                                                  .total.ps) /
                          1e6;
            double ratio = messages_us(c, m.profile, op, *choice, bytes) / closed;
            std::string what = std::string(place.cluster) + " x" + std::to_string(place.hosts) +
                               " " + name_of(op) + " " + nccl::name_of(choice->algorithm) + "/" +
                               nccl::name_of(choice->protocol) + " " + std::to_string(bytes);
            using enum nccl::Algorithm;
            bool once = (choice->algorithm == Nvls && nccl_group(c)->nodes.size() == 1) ||
                        choice->algorithm == CollnetDirect || choice->algorithm == Pat;
            bool single =
                bytes <= choice->chunk * choice->channels && !shares_inside(place.cluster);
            if (single || once) {
              EXPECT_NEAR(ratio, 1, 0.01) << what;
            } else {
              // Where hops of one chain share links they do not all go at once, as the closed form
              // has it.
              EXPECT_GT(ratio, shares_inside(place.cluster) ? 0.94 : 0.98) << what;
              shared.push_back(ratio);
            }
          }
      }
  }
  std::sort(shared.begin(), shared.end());
  ASSERT_GT(shared.size(), 150u);
  auto quantile = [&](double q) {
    return shared[static_cast<std::size_t>(q * static_cast<double>(shared.size() - 1))];
  };
  EXPECT_LT(quantile(0.5), 1.005);
  EXPECT_LT(quantile(0.75), 1.005);
  EXPECT_LT(quantile(0.95), 1.06);
  EXPECT_LT(shared.back(), 1.25);
  RecordProperty("shared", std::to_string(quantile(0.5)) + " " + std::to_string(quantile(0.75)) +
                               " " + std::to_string(quantile(0.95)) + " " +
                               std::to_string(shared.back()));
}

// Of all bytes, by rank: sent and received between ranks.
struct Moved {
  std::vector<double> sent;
  std::vector<double> received;
};
Moved moved(const collective::Communicator& c, nccl::Pipeline p, Operation op) {
  Moved out{std::vector<double>(static_cast<std::size_t>(c.ranks()), 0),
            std::vector<double>(static_cast<std::size_t>(c.ranks()), 0)};
  nccl::Stages stages = nccl::stages_of(*nccl_group(c), p, op);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    nccl::Stage s = stages.at(i);
    if (s.kind != nccl::Stage::Kind::Hop && s.kind != nccl::Stage::Kind::Net) continue;
    out.sent[static_cast<std::size_t>(s.from)] += s.share;
    out.received[static_cast<std::size_t>(s.to)] += s.share;
  }
  return out;
}
double sum(const std::vector<double>& v) {
  return std::accumulate(v.begin(), v.end(), 0.0);
}

TEST(NcclPipelines, MoveWhatTheAlgorithmsNeed) {
  for (const Place& place : kPlaces) {
    Machine m(place.cluster, place.hosts);
    std::string what = std::string(place.cluster) + " x" + std::to_string(place.hosts);
    collective::Communicator c = m.communicator("tree", "simple");
    double n = c.ranks();
    // A tree: all but its root send once up, and get once down. Two trees, half each; the root of
    // one is no root of the other.
    Moved t = moved(c, nccl::Pipeline::Tree, Operation::AllReduce);
    EXPECT_NEAR(sum(t.sent), 2 * (n - 1), 1e-9) << what;
    for (std::size_t r = 0; r < t.sent.size(); ++r) {
      EXPECT_NEAR(t.sent[r], t.received[r], 1e-9) << what;  // each edge both ways
      EXPECT_GE(t.sent[r], 0.5 - 1e-9) << what;
    }
    if (!nccl_group(c)->pipes[nccl::Pipeline::Pat].steps.empty())
      for (Operation op : {Operation::AllGather, Operation::ReduceScatter}) {
        Moved p = moved(c, nccl::Pipeline::Pat, op);
        for (std::size_t r = 0; r < p.sent.size(); ++r) {
          EXPECT_NEAR(p.sent[r], (n - 1) / n, 1e-9) << what;
          EXPECT_NEAR(p.received[r], (n - 1) / n, 1e-9) << what;
        }
      }
    if (!nccl_group(c)->pipes[nccl::Pipeline::NvlsTree].steps.empty()) {
      Moved v = moved(c, nccl::Pipeline::NvlsTree, Operation::AllReduce);
      auto nodes = static_cast<double>(nccl_group(c)->nodes.size());
      EXPECT_NEAR(sum(v.sent), 2 * (nodes - 1), 1e-9) << what;
    }
  }
}

// A group of a tree's threads has one stage (nccl_pipe.cc keeps nothing of such groups), and
// channels go the same way by GPUs of the same node.
TEST(NcclPipelines, TreesGiveEachGroupOfThreadsOneStage) {
  for (const Place& place : kPlaces) {
    Machine m(place.cluster, place.hosts);
    std::string what = std::string(place.cluster) + " x" + std::to_string(place.hosts);
    collective::Communicator c = m.communicator("tree", "simple");
    for (nccl::Pipeline p : {nccl::Pipeline::Tree, nccl::Pipeline::CollnetChain}) {
      if (nccl_group(c)->pipes[p].steps.empty()) continue;
      nccl::Stages stages = nccl::stages_of(*nccl_group(c), p, Operation::AllReduce);
      EXPECT_EQ(stages.channels.size(), nccl_group(c)->trees.size()) << what;
      std::set<std::pair<int, int>> seen;
      for (std::size_t i = 0; i < stages.size(); ++i) {
        nccl::Stage s = stages.at(i);
        if (s.blocks > 0 && !s.same_pass) {
          EXPECT_TRUE(seen.emplace(s.from, s.group).second) << what << ", stage " << i;
        }
        EXPECT_LT(s.group, nccl::groups_of(*nccl_group(c), p)) << what;
        const nccl::Stage& listed = stages.list[i % stages.list.size()];
        auto node = [&](int rank) {
          return nccl_group(c)->node_of[static_cast<std::size_t>(rank)];
        };
        EXPECT_EQ(node(s.from), node(listed.from)) << what;
        EXPECT_EQ(node(s.to), node(listed.to)) << what;
        if (s.kind == nccl::Stage::Kind::Net) {
          EXPECT_EQ(s.nic, nccl_group(c)->trees[i / stages.list.size()].nic) << what;
        }
      }
    }
  }
}

// A pipeline that NCCL cannot choose here is not made: it would be hundreds of thousands of stages
// in large jobs. One that it can choose is there.
TEST(NcclPipelines, AreMadeWhereNcclMayChooseThem) {
  using nccl::Algorithm;
  std::set<nccl::Pipeline> made;
  for (const Place& place : kPlaces)
    for (bool collnet : {false, true}) {
      Machine m(place.cluster, place.hosts);
      m.cluster.nccl.collnet = collnet;
      m.fabric.emplace(m.cluster);
      collective::Communicator c = m.communicator("ring", "simple");
      for (nccl::Pipeline p : nccl::kAll<nccl::Pipeline>) {
        bool available = false;
        for (Operation op : {Operation::AllReduce, Operation::AllGather, Operation::ReduceScatter})
          for (const nccl::Candidate& a :
               nccl::candidates(nccl_group(c)->system, nccl::Settings(), op, 1 << 20))
            available = available || (a.algorithm != Algorithm::Ring &&
                                      nccl::pipeline_of(a.algorithm) == p && a.estimate);
        EXPECT_EQ(nccl_group(c)->pipes[p].stages > 0, available)
            << place.cluster << " x" << place.hosts << ", pipeline " << static_cast<int>(p);
        if (available) made.insert(p);
      }
    }
  EXPECT_EQ(made.size(), nccl::kCount<nccl::Pipeline>);
}

// NCCL (src/graph/connect.cc): a child's first GPU is joined to its parent's first one, of a
// balanced tree's first child to its second one. ncclGetBtree: the first child stands before its
// parent.
TEST(NcclPipelines, ChildrenOfBalancedTreesEnterAtTwoGpus) {
  for (const char* name : {"dgx-a100", "hgx-h100"}) {
    Machine m(name, 5);
    collective::Communicator c = m.communicator("tree", "simple");
    bool balanced = std::string_view(name) == "dgx-a100";
    ASSERT_EQ(nccl_group(c)->system.graphs[nccl::GraphId::Tree].pattern,
              balanced ? nccl::Pattern::BalancedTree : nccl::Pattern::PlainTree);
    int firsts = 0;
    int seconds = 0;
    nccl::Stages stages =
        nccl::stages_of(*nccl_group(c), nccl::Pipeline::Tree, Operation::AllReduce);
    for (std::size_t i = 0; i < stages.size(); ++i) {
      nccl::Stage s = stages.at(i);
      if (s.kind != nccl::Stage::Kind::Net || s.group % 2 != 0) continue;  // the way up
      const auto& orders = nccl_group(c)->trees[static_cast<std::size_t>(s.group / 4)].order;
      auto node = [&](int rank) {
        return static_cast<std::size_t>(nccl_group(c)->node_of[static_cast<std::size_t>(rank)]);
      };
      EXPECT_EQ(s.from, orders[node(s.from)][0]);
      // The first tree of five nodes: 0 above 4, 4 above 2, 2 above 1 and 3; the second the same,
      // one further.
      std::size_t shift = s.group % 4 == 2 ? 1 : 0;
      bool before = (node(s.from) + 5 - shift) % 5 < (node(s.to) + 5 - shift) % 5;
      EXPECT_EQ(s.to, orders[node(s.to)][balanced && before ? 1 : 0]) << name;
      ++(before ? firsts : seconds);
    }
    EXPECT_EQ(firsts, seconds);  // 1 below 2, 2 below 4; 3 below 2, 4 below 0
    EXPECT_GT(firsts, 0);
  }
}

// Whatever the switch does, it takes NCCL's latency of it; whatever the protocol, a thread block
// does not move more than one does.
TEST(NcclPipelines, PayLatenciesAndThreads) {
  for (Operation op : kOperations) {
    Machine m("hgx-h100", 1);
    collective::Communicator c = m.communicator("nvls", "simple");
    auto choice = nccl::choose(nccl_group(c)->system, nccl_group(c)->settings, op, 8);
    ASSERT_TRUE(choice);
    EXPECT_NEAR(
        static_cast<double>(
            nccl::time_of(*nccl_group(c), m.profile, Level::Mid, op, *choice, {8}).total.ps) /
            1e6,
        13.8 + 0.7 * (op == Operation::AllGather ? 1 : 8), 0.1)
        << name_of(op) << ": NCCL's 25 us, less the first chunks of eight heads in and out; those "
        << "that go in, of a gather a rank's own";
  }
  for (const char* algorithm : {"tree", "ring"}) {
    Machine m("hgx-h100", 1);
    auto bus = [&](const char* protocol) {
      collective::Communicator c = m.communicator(algorithm, protocol);
      nccl::Settings one = nccl_group(c)->settings;
      one.max_channels = 1;
      auto choice = nccl::choose(nccl_group(c)->system, one, Operation::AllReduce, 1 << 30);
      return nccl::time_of(*nccl_group(c), m.profile, Level::Mid, Operation::AllReduce, *choice,
                           {1 << 30})
          .bus_bytes_per_s;
    };
    EXPECT_LT(bus("ll"), 0.55 * bus("simple")) << algorithm;
  }
}

// A piece after the other: never less time for more bytes, with the same chunks and channels.
TEST(NcclPipelines, TakeLongerForMoreBytes) {
  for (const Place& place : kPlaces) {
    Machine m(place.cluster, place.hosts);
    for (const char* algorithm : {"tree", "nvls", "nvlstree", "collnetchain"}) {
      collective::Communicator c = m.communicator(algorithm, "simple,ll128,ll");
      auto choice = nccl::choose(nccl_group(c)->system, nccl_group(c)->settings,
                                 Operation::AllReduce, std::int64_t{8} << 20);
      if (!choice) continue;
      Duration before;
      for (std::int64_t bytes = 4096; bytes < std::int64_t{1} << 30; bytes += bytes / 7) {
        Duration now = nccl::time_of(*nccl_group(c), m.profile, Level::Mid, Operation::AllReduce,
                                     *choice, {bytes})
                           .total;
        EXPECT_GE(now, before) << place.cluster << " x" << place.hosts << " " << algorithm << " "
                               << bytes;
        before = now;
      }
    }
  }
}

}  // namespace
}  // namespace ddpsim::test
