// What a training step's collectives take on GPUs: NCCL's choice at ddpsim's price, alone and
// beside others, at both fidelities.
#include <cmath>

#include <gtest/gtest.h>

#include "sim/collective/backend/nccl.h"
#include "sim/play/alone.h"
#include "tests/support/nccl.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

struct Machine {
  Cluster cluster;
  Profile profile;
  std::optional<topology::Fabric> fabric;
  Machine(const std::string& name, int hosts) : cluster(test::cluster(name)) {
    cluster.hosts = hosts;
    profile = test::profile(
        cluster.profile.ends_with(".datasheet") ? cluster.profile : cluster.profile + ".datasheet");
    fabric.emplace(cluster);
  }
  collective::Communicator communicator(
      std::vector<DeviceId> devices,
      const std::map<std::string, std::string>& environment = {}) const {
    nccl::ParsedSettings parsed = nccl::parse_settings(environment, {28});
    EXPECT_EQ(parsed.problem.message, "");
    return collective::make_nccl_communicator(*fabric, std::move(devices), parsed.settings,
                                              profile.compute.capability);
  }
};

struct Place {
  const char* cluster;
  int hosts;
};
constexpr Place kPlaces[] = {
    {"hgx-h100", 1},    {"hgx-h100", 4},          {"dgx-h100", 3},         {"dgx-a100", 2},
    {"dgx1-v100", 1},   {"dgx1-v100", 2},         {"aws-p5", 4},           {"pcie-box", 1},
    {"pcie-box-8", 2},  {"gh200x4-slingshot", 4}, {"gpu-ethernet-25g", 6}, {"rtx-2080-ti-10g", 2},
    {"gb200-nvl72", 18}};

TEST(NcclSteps, TakeThePriceOfWhatNcclChooses) {
  for (const Place& place : kPlaces) {
    Machine m(place.cluster, place.hosts);
    collective::Communicator c = m.communicator(first_devices(m.cluster.devices()));
    for (std::int64_t bytes : {std::int64_t{4}, std::int64_t{64} << 10, std::int64_t{1} << 20,
                               std::int64_t{25} << 20, std::int64_t{512} << 20})
      for (Operation op : {Operation::AllReduce, Operation::Broadcast}) {
        auto choice = nccl::choose(nccl_group(c)->system, nccl_group(c)->settings, op, bytes);
        ASSERT_TRUE(choice);
        Duration wanted =
            nccl::time_of(*nccl_group(c), m.profile, Level::Mid, op, *choice, {bytes}).total;
        collective::Price p = op == Operation::AllReduce
                                  ? collective::all_reduce(c, m.profile, Level::Mid, {bytes})
                                  : collective::broadcast(c, m.profile, Level::Mid, {bytes});
        std::string what = std::string(place.cluster) + " x" + std::to_string(place.hosts) + " " +
                           name_of(op) + " " + std::to_string(bytes) + " " + p.algorithm;
        EXPECT_EQ(p.alone, wanted) << what;
        if (op == Operation::AllReduce) {
          Duration simulated =
              predict::all_reduce_alone(c, m.profile, {bytes}, predict::Fidelity::Collective);
          EXPECT_NEAR(static_cast<double>(simulated.ps), static_cast<double>(wanted.ps),
                      1e-6 * static_cast<double>(wanted.ps) + 2)
              << what;
        }
      }
  }
}

TEST(NcclSteps, RingsTakeTheSameMessageByMessage) {
  // Some of a node's GPUs: channels that begin at different ones are one ring.
  for (int ranks = 2; ranks <= 8; ++ranks) {
    Machine m("hgx-h100", 1);
    collective::Communicator c =
        m.communicator(first_devices(ranks), {{"NCCL_ALGO", "ring"}, {"NCCL_PROTO", "simple"}});
    EXPECT_EQ(c.rings.size(), 1u);
    auto closed =
        static_cast<double>(collective::all_reduce(c, m.profile, Level::Mid, {25 << 20}).alone.ps);
    EXPECT_NEAR(
        static_cast<double>(
            predict::all_reduce_alone(c, m.profile, {25 << 20}, predict::Fidelity::Message).ps) /
            closed,
        1, 0.01)
        << ranks;
  }
  for (const Place& place : kPlaces) {
    Machine m(place.cluster, place.hosts);
    for (const char* protocol : {"simple", "ll"}) {
      collective::Communicator c = m.communicator(
          first_devices(m.cluster.devices()), {{"NCCL_ALGO", "ring"}, {"NCCL_PROTO", protocol}});
      for (std::int64_t bytes :
           {std::int64_t{64} << 10, std::int64_t{1} << 20, std::int64_t{25} << 20}) {
        auto closed =
            static_cast<double>(collective::all_reduce(c, m.profile, Level::Mid, {bytes}).alone.ps);
        auto messages = static_cast<double>(
            predict::all_reduce_alone(c, m.profile, {bytes}, predict::Fidelity::Message).ps);
        EXPECT_NEAR(messages / closed, 1, 0.01)
            << place.cluster << " x" << place.hosts << " " << protocol << " " << bytes;
      }
    }
  }
}

// Renaming: which hosts a job sits on, and in which order, changes nothing on a network that treats
// all alike.
TEST(NcclSteps, DoNotDependOnNames) {
  Machine m("hgx-h100", 4);
  std::vector<DeviceId> moved;
  for (int host : {2, 0, 3, 1})
    for (int g = 0; g < 8; ++g) moved.push_back(DeviceId::at(host * 8 + g));
  for (std::int64_t bytes : {std::int64_t{64} << 10, std::int64_t{25} << 20})
    EXPECT_EQ(
        collective::all_reduce(m.communicator(first_devices(32)), m.profile, Level::Mid, {bytes})
            .alone,
        collective::all_reduce(m.communicator(moved), m.profile, Level::Mid, {bytes}).alone);
}

// Two jobs whose hosts share their racks' uplinks: together they take at least as long as each
// alone, at most as long as one after the other.
TEST(NcclSteps, OfTwoJobsShareTheirLinks) {
  Cluster cluster = test::cluster("gpu-ethernet-25g");
  cluster.hosts = 8;
  cluster.pattern = Pattern::Racks;
  cluster.racks = 2;
  cluster.uplink = cluster.link;
  Profile profile = test::profile(
      cluster.profile.ends_with(".datasheet") ? cluster.profile : cluster.profile + ".datasheet");
  topology::Fabric fabric(cluster);
  Workload w = test::workload("resnet50");
  Scenario alone;
  alone.ranks = 4;
  alone.rank_order = {0, 4, 1, 5};
  Scenario both = alone;
  OtherJob job;
  job.workload = w;
  job.plan = alone.plan;
  job.rank_order = {2, 6, 3, 7};
  both.other_jobs.push_back(job);
  auto step = [&](const Scenario& s, const char* algorithm) {
    Scenario forced = s;
    forced.plan.environment["NCCL_ALGO"] = std::string("allreduce:") + algorithm;
    forced.plan.environment["NCCL_SOCKET_NTHREADS"] = "4";  // or they decide, each job's its own
    for (OtherJob& o : forced.other_jobs) o.plan.environment = forced.plan.environment;
    predict::Question q{w, fabric, profile, forced};
    EXPECT_EQ(predict::check(q).message, "");
    return static_cast<double>(predict::steady_period(q).ps);
  };
  for (const char* algorithm : {"ring", "tree"}) {
    double one = step(alone, algorithm);
    double two = step(both, algorithm);
    EXPECT_GT(two, 1.5 * one) << algorithm;  // communication decides here
    EXPECT_LT(two, 2.1 * one) << algorithm;
  }
}

}  // namespace
}  // namespace ddpsim::test
