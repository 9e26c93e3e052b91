// `--plan parameter_server` in every command that makes sense, and what it refuses.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

std::vector<std::string> served(const char* command, std::initializer_list<const char*> settings) {
  std::vector<std::string> out = about_plan("parameter_server", command, {}, "resnet50");
  std::replace(out.begin(), out.end(), std::string("hgx-h100"), std::string("dgx-h100"));
  for (const char* s : settings) out.insert(out.end(), {"--set", s});
  return out;
}

TEST(ParameterServerCommand, AnswersInItsOwnWords) {
  expect_answer(served("predict", {"servers=2"}),
                {"parameter servers over tcp, 161 shards, servers=2", "workers at their own pace",
                 "misses 7.0 updates", "from source reading", "memory ",
                 "what servers take to sum and to update is left out"});
  expect_answer(served("predict", {"synchronous=true", "cluster.host_memory=300GB/s"}),
                {"parameter servers over tcp, 161 shards", "exposed communication"});
  expect_answer(served("explain", {"synchronous=true"}), {"what the step waits for"});
  expect_answer(served("explain", {}), {"what the step waits for"});
  expect_answer(
      served("show program", {"servers=2"}),
      {"wait/clock", "pull/shard.0", "push/shard.160", "serve/shard.160", "wait/applied"});
  expect_answer({"show", "plan", "parameter_server"},
                {"servers", "server_hosts", "synchronous", "staleness", "placement",
                 "variable_partitioner", "max_shards", "shard_bytes", "pull"});
  expect_answer({"list", "plans"}, {"parameter_server", "Ho et al. 2013"});
  expect_answer({"predict", "--workload", "resnet50", "--cluster", "dgx-h100", "--plan",
                 "ParameterServerStrategy"},
                {"parameter servers over tcp"});
  std::vector<std::string> json = served("predict", {"staleness=3"});
  json.insert(json.end(), {"--format", "json"});
  expect_answer(json, {"\"steps_per_s\"", "\"staleness_mean\"", "\"staleness_share\""});
}

TEST(ParameterServerCommand, RefusesInASentence) {
  const auto refused = [](std::initializer_list<const char*> settings, const char* words) {
    expect_refusal(served("predict", settings), words);
  };
  refused({"servers=0"}, "1 to 100 servers");
  refused({"servers=101"}, "1 to 100 servers");
  refused({"staleness=-2"}, "or -1 (any)");
  refused({"staleness=2", "synchronous=true"}, "leave out one of the two");
  refused({"max_shards=4"}, "fixed_shards, min_size or max_size");
  refused({"shard_bytes=4"}, "is of variable_partitioner min_size and max_size");
  refused({"variable_partitioner=max_size", "shard_bytes=0"}, "1 to 2^40 bytes");
  refused({"placement=random"}, "is none of \"round_robin\", \"by_size\"");
  refused({"server_hosts=own"}, "server_hosts=shared puts servers on the workers' hosts");
  refused({"backend=nccl"}, "leave it out");
  expect_refusal(about_plan("parameter_server", "predict", {}, "resnet50"),
                 "draws no PCIe (or C2C) link to a CPU; dgx-h100");
  refused({"workload.compile=regional"}, "workload.compile=none");
  refused({"slow_ranks={\"1\":9}"}, "at most 8 times as slow");
  refused({"jitter={\"cv\":0.1}"}, "slow_ranks");
  refused({"bucket_cap_mb=5"}, "is a knob of pytorch_ddp");
  expect_refusal({"predict", "--workload", "resnet50", "--cluster", "dgx-h100", "--set",
                  "cluster.hosts=16", "--plan", "parameter_server"},
                 "synchronous=true: as many as the cluster has");
}

TEST(ParameterServerCommand, OtherNamesLeadToIt) {
  for (const char* name : {"ps", "ssp", "byteps", "ps-lite", "AsyncParameterServer"})
    expect_refusal(about_plan(name, "predict", {}, "resnet50"), "--plan parameter_server");
}

// Every system is in the order, or says why not.
TEST(RankPlansCommand, RanksEverySystem) {
  expect_answer(
      {"rank-plans", "--workload", "resnet50", "--cluster", "dgx-h100"},
      {"pytorch_ddp", "averaging", "fsdp", "fsdp2", "horovod", "zero", "zero_redundancy",
       "megatron", "apex", "data_parallel", "local_sgd", "mirrored", "multi_worker_mirrored",
       "parameter_server", "what no run stands behind:", "  megatron: schedule from source reading",
       "how many more steps that needs", "what servers take to sum and to update is left out"});
  expect_answer(
      {"rank-plans", "--workload", "resnet50", "--cluster", "dgx-h100", "--format", "json"},
      {"\"evidence\"", "\"extrapolated\""});
}

// A worker on the servers' host has ended all of its steps before another ends its first.
TEST(ParameterServers, AWorkerFarAheadIsPlayedUntilTheOthersAreAtWork) {
  const io::Json j = json_of({"predict", "--workload", "mlp784-50-10", "--cluster", "testbed-star",
                              "--plan", "parameter_server"})["summary"];
  const io::Json& pace = j["workers"]["steps_per_s"];
  EXPECT_GT(pace[0].get<double>(), 20 * pace[1].get<double>());
  double all = 0;
  for (const io::Json& each : pace) all += each.get<double>();
  EXPECT_NEAR(j["step_ps"].get<double>() * all / 4e12, 1, 1e-6);
  EXPECT_GT(pace[3].get<double>(), 100);
}

}  // namespace
}  // namespace ddpsim::test
