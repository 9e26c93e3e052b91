// ddpsim run, calibrate, fit: on plain loopback, so that they work wherever tests do.
#include <filesystem>
#include <map>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "calib/gloo/gloo.h"
#include "calib/mpi.h"
#include "calib/script_log.h"
#include "calib/torch.h"
#include "sim/io/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

namespace fs = std::filesystem;

const Args kRun{"run",   "--workload",      "mlp784-50-10-cpu", "--cluster", "testbed-star",
                "--set", "cluster.hosts=3", "--steps",          "3",         "--loopback"};

struct Folder {
  fs::path path = fs::temp_directory_path() / ("ddpsim_run_test" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

TEST(RunCommand, ExecutesEveryKindOfProgram) {
  for (const Args& more :
       {Args{}, Args{"--set", "comm_hook=fp16_compress"}, Args{"--set", "accumulation_steps=2"},
        Args{"--set", "find_unused_parameters=true"}, Args{"--set", "static_graph=true"},
        Args{"--plan", "averaging"},
        Args{"--plan", "averaging", "--set", "async_op=true", "--set", "tcp_streams=3"},
        Args{"--set", "ranks=2", "--set", "rank_order=[2,0]", "--set", "slow_ranks.1=1.5"},
        Args{"--compute", "real"},
        Args{"--set", "cluster.hosts=4", "--set", "ranks=2", "--set",
             "other_jobs=[{\"rank_order\":[2,3]}]"}}) {
    Outcome o = ddpsim(kRun + more);
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.err, "");
    EXPECT_NE(o.out.find("plain loopback, NOT shaped: asked for"), std::string::npos) << o.out;
    EXPECT_NE(o.out.find("measured"), std::string::npos);
    EXPECT_NE(o.out.find("predicted"), std::string::npos);
  }
}

// The prediction is a mean over what the other job does in a second; three steps are over in 20 ms.
TEST(RunCommand, SaysThatAFewStepsNeedNotMeetAnotherJob) {
  Outcome o = ddpsim(
      kRun +
      Args{"--set", "cluster.hosts=4", "--set", "ranks=2", "--set",
           R"(other_jobs=[{"workload":"mlp-cpu","plan":{"backend":"tcp"},"rank_order":[2,3]}])"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("; 2 need not meet them"), std::string::npos) << o.out;
}

TEST(RunCommand, ExecutesEveryAlgorithm) {
  for (const char* algorithm : {"double_binary_tree", "recursive_doubling", "halving_doubling",
                                "bcube", "hierarchical", "torus2d", "direct"})
    for (const char* hosts : {"3", "6"}) {
      Outcome o =
          ddpsim(kRun + Args{"--set", std::string("cluster.hosts=") + hosts, "--set",
                             std::string("algorithm=") + algorithm, "--set", "bucket_cap_mb=0.1",
                             "--set", "tcp_streams=2", "--format", "json"});
      ASSERT_EQ(o.code, 0) << o.err;
      io::Json run = io::parse_json(o.out, "stdout");
      EXPECT_NE(run["case"]["key"].get<std::string>().find(std::string("+") + algorithm),
                std::string::npos)
          << run["case"]["key"];
      int named = 0;
      for (const auto& s : run["spans"]) named += s.value("algorithm", "") == algorithm;
      EXPECT_GT(named, 0) << algorithm;
    }
}

TEST(RunCommand, ExecutesInShapedRacks) {
  for (const char* algorithm : {"hierarchical", "double_binary_tree", "direct"}) {
    Outcome o =
        ddpsim({"run", "--workload", "mlp784-50-10-cpu", "--cluster", "testbed-racks", "--set",
                "cluster.hosts=5", "--set", std::string("algorithm=") + algorithm, "--steps", "2"});
    ASSERT_EQ(o.code, 0)
        << o.err;  // in network namespaces, or (said so) over loopback where none can be made
    EXPECT_EQ(o.out.find("predicted  0.00"), std::string::npos) << o.out;
  }
}

TEST(CalibrateCommand, MeasuresTheRealGloo) {
  if (!calib::gloo_library::built()) GTEST_SKIP() << "built without libgloo";
  Outcome o = ddpsim({"calibrate", "--backend", "gloo", "--collectives", "--cluster",
                      "testbed-torch", "--set", "cluster.hosts=3", "--loopback", "--sizes",
                      "64KiB,1MiB", "--repetitions", "2", "--format", "json"});
  ASSERT_EQ(o.code, 0) << o.err;
  io::Json runs = io::parse_json(o.out, "stdout");
  ASSERT_EQ(runs.size(), 2u) << "ring and bcube; a sum that is wrong is an error";
  for (const io::Json& run : runs) {
    EXPECT_EQ(run["origin"]["backend"], "gloo");
    EXPECT_EQ(run["samples"].size(), 2u);
  }
  Outcome bad = ddpsim({"calibrate", "--backend", "gloo", "--collectives", "--cluster",
                        "testbed-torch", "--loopback", "--algorithms", "direct"});
  EXPECT_EQ(bad.code, 2);
  EXPECT_NE(bad.err.find("ring and bcube"), std::string::npos) << bad.err;
  EXPECT_EQ(ddpsim({"calibrate", "--backend", "gloo", "--cluster", "testbed-torch"}).code, 2);
}

TEST(CalibrateCommand, MeasuresCollectivesAlone) {
  Folder f;
  Outcome o = ddpsim({"calibrate", "--backend", "tcp", "--collectives", "--cluster", "testbed-star",
                      "--set", "cluster.hosts=3", "--set", "rank_order=[2,0,1]", "--algorithms",
                      "ring,recursive_doubling", "--sizes", "1KiB,100004B", "--repetitions", "3",
                      "--loopback", "--runs", f.path.string()});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("all_reduce+recursive_doubling@testbed-star/n3"), std::string::npos)
      << o.out;
  int with_algorithm = 0;
  auto files = io::list_files(f.path.string(), {".json.gz"});
  ASSERT_EQ(files.size(), 2u);
  for (const std::string& file : files) {
    io::Json run = io::parse_json(io::read_file(file), file);
    EXPECT_EQ(run["evidence"], "collective");
    EXPECT_EQ(run["case"]["split"], "held_out");
    ASSERT_EQ(run["samples"].size(), 2u);
    EXPECT_EQ(run["samples"][1]["op"], "all_reduce");
    EXPECT_EQ(run["samples"][1]["parameters"], (io::Json{{"bytes", 100'004}, {"ranks", 3}}));
    EXPECT_EQ(run["samples"][1]["durations_ps"].size(), 3u);
    std::string scenario =
        f.path.string() + "/scenarios/" + run["case"]["scenario"].get<std::string>() + ".json";
    io::Json asked = io::parse_json(io::read_file(scenario), scenario);
    EXPECT_EQ(asked["rank_order"], (io::Json{2, 0, 1}));
    with_algorithm += asked["plan"].contains("algorithm");
  }
  EXPECT_EQ(with_algorithm, 1) << "the ring is what a scenario without the key has";
  for (const auto& [more, says] : std::vector<std::pair<Args, std::string>>{
           {{"--collectives", "--algorithms", "rink"}, "did you mean ring?"},
           {{"--collectives", "--sizes", "4"}, "--sizes 4"},
           {{"--collectives", "--sizes", "2GiB"}, "4B to 1024MiB"},
           {{"--sizes", "4KiB"}, "are of --collectives"},
           {{"--collectives", "--backend", "torch"}, "is of backends tcp, gloo and mpi"},
           {{"--collectives", "--repetitions", "0"}, "1 to 1000"},
           {{"--collectives", "--set", "cluster.hosts=1"}, "needs two ranks"}}) {
    Outcome bad = ddpsim(Args{"calibrate", "--cluster", "testbed-star", "--loopback"} + more);
    EXPECT_EQ(bad.code, 2) << bad.out;
    EXPECT_NE(bad.err.find(says), std::string::npos) << bad.err;
  }
}

TEST(RunCommand, SaysWhatAProgramThatFailedSaidLast) {
  const std::string mpirun =
      "----------\nmpirun noticed that process rank 0 exited on signal 6 (Aborted).\n----------\n";
  EXPECT_EQ(calib::said(mpirun, "ddpsim_horovod: "),
            "mpirun noticed that process rank 0 exited on signal 6 (Aborted).");
  EXPECT_EQ(calib::said("ddpsim_horovod: no file\n" + mpirun, "ddpsim_horovod: "), "no file");
  EXPECT_EQ(calib::last_line("---\n"), "");
}

// The real Open MPI, where it and mpi4py are.
TEST(RunCommand, AveragesByOpenMpi) {
  try {
    calib::open_mpi_version();
    calib::require_mpi4py("/usr/bin/python3");
  } catch (const std::runtime_error& e) {
    GTEST_SKIP() << e.what();
  }
  const Args place{"--backend",       "mpi",       "--cluster", "testbed-mpi", "--set",
                   "cluster.hosts=2", "--loopback"};
  const Args step = Args{"run", "--workload", "mlp784-50-10-cpu"} + place;
  Outcome o = ddpsim(step + Args{"--plan", "averaging", "--steps", "3", "--format", "json"});
  ASSERT_EQ(o.code, 0) << o.err;
  io::Json run = io::parse_json(o.out, "stdout");
  EXPECT_EQ(run["evidence"], "system");
  EXPECT_EQ(run["steps"].size(), 4u);
  EXPECT_EQ(run["origin"]["backend"], "mpi");
  EXPECT_NE(run["origin"]["software"].get<std::string>().find("Open MPI"), std::string::npos);
  int sums = 0;
  for (const auto& s : run["spans"]) sums += s["op"] == "allreduce/fc1.weight" ? 1 : 0;
  EXPECT_EQ(sums, 6) << "two ranks, the last three steps";
  o = ddpsim(Args{"calibrate", "--collectives", "--sizes", "2KiB", "--repetitions", "2"} + place);
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("recursive_doubling"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("NOT shaped"), std::string::npos) << o.out;
  for (const auto& [more, says] : std::vector<std::pair<Args, std::string>>{
           {{}, "--plan averaging"},
           {{"--plan", "averaging", "--set", "async_op=true"}, "Allreduce blocks"},
           {{"--plan", "averaging", "--compute", "real"}, "--compute timed"}}) {
    Outcome bad = ddpsim(step + more);
    EXPECT_EQ(bad.code, 2) << bad.out;
    EXPECT_NE(bad.err.find(says), std::string::npos) << bad.err;
  }
}

// The real Horovod, where it is: a user's own build; else a sentence says what is missing.
TEST(RunCommand, RunsHorovodOverOpenMpi) {
  try {
    calib::open_mpi_version();
  } catch (const std::runtime_error& e) {
    GTEST_SKIP() << e.what();
  }
  const Args step{"run",
                  "--backend",
                  "mpi",
                  "--cluster",
                  "testbed-mpi",
                  "--set",
                  "cluster.hosts=2",
                  "--loopback",
                  "--workload",
                  "mlp784-50-10-cpu",
                  "--steps",
                  "3",
                  "--plan",
                  "horovod"};
  Outcome o = ddpsim(step + Args{"--set", "HOROVOD_HIERARCHICAL_ALLREDUCE=true"});
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("NCCL on GPUs"), std::string::npos) << o.err;
  o = ddpsim(step + Args{"--python", "/bin/false"});
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("/bin/false has no Horovod for PyTorch"), std::string::npos) << o.err;
  try {
    calib::require_horovod("/usr/bin/python3");
  } catch (const std::runtime_error& e) {
    GTEST_SKIP() << e.what();
  }
  Folder f;
  o = ddpsim(step +
             Args{"--set", "HOROVOD_CYCLE_TIME=2", "--format", "json", "--runs", f.path.string()});
  ASSERT_EQ(o.code, 0) << o.err;
  auto scenarios = io::list_files(f.path.string() + "/scenarios", {".json"});
  ASSERT_EQ(scenarios.size(), 1u);
  io::Json plan = io::parse_json(io::read_file(scenarios[0]), scenarios[0])["plan"];
  EXPECT_EQ(plan["pytorch"], calib::torch_version("/usr/bin/python3"));
  io::Json run = io::parse_json(o.out, "stdout");
  EXPECT_EQ(run["evidence"], "system");
  EXPECT_EQ(run["layers"]["ranks"], 2);
  EXPECT_NE(run["origin"]["software"].get<std::string>().find("Horovod"), std::string::npos);
  std::map<int, std::int64_t> bytes;  // by step: each gradient once
  for (const auto& s : run["spans"])
    if (s["op"].get<std::string>().starts_with("allreduce/fused."))
      bytes[s["step"].get<int>()] += s["bytes"].get<std::int64_t>();
  ASSERT_FALSE(bytes.empty());
  for (const auto& [number, of_step] : bytes) EXPECT_EQ(of_step, 159040) << number;
}

TEST(RunCommand, ExecutesTheLanesOfAGpu) {
  Outcome o = ddpsim({"run", "--workload", "mlp784-50-10", "--cluster", "testbed-gpu", "--set",
                      "cluster.hosts=2", "--steps", "2", "--loopback", "--format", "json"});
  ASSERT_EQ(o.code, 0) << o.err;
  io::Json run = io::parse_json(o.out, "stdout");
  bool comm = false;
  for (const auto& s : run["spans"]) comm = comm || s["lane"] == "comm";
  EXPECT_TRUE(comm);
}

TEST(RunCommand, WritesARunThatValidateReads) {
  Folder f;
  Outcome o = ddpsim(kRun + Args{"--runs", f.path.string(), "--split", "held_out"});
  ASSERT_EQ(o.code, 0) << o.err;
  auto files = io::list_files(f.path.string(), {".json.gz"});
  ASSERT_EQ(files.size(), 1u);
  io::Json run = io::parse_json(io::read_file(files[0]), files[0]);
  EXPECT_EQ(run["case"]["split"], "held_out");
  EXPECT_EQ(run["origin"]["hosts"], "loopback");
  std::string scenario =
      f.path.string() + "/scenarios/" + run["case"]["scenario"].get<std::string>() + ".json";
  ASSERT_TRUE(io::exists(scenario));
  // The stored scenario is the same question: it hashes to itself.
  Outcome again = ddpsim({"run", scenario, "--steps", "2", "--loopback", "--format", "json"});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(io::parse_json(again.out, "stdout")["case"]["scenario"], run["case"]["scenario"]);
  Outcome v = ddpsim({"validate", "--runs", f.path.string(), "--format", "json"});
  io::Json j = io::parse_json(v.out, "stdout");
  ASSERT_EQ(j["pairs"].size(), 1u);
  EXPECT_TRUE(j["pairs"][0]["loopback"].get<bool>());
  EXPECT_TRUE(j["errors"].empty()) << j["errors"].dump();
}

TEST(RunCommand, RefusesInASentence) {
  for (const auto& [more, says] : std::vector<std::pair<Args, std::string>>{
           {{"--backend", "smoke"}, "--backend smoke"},
           {{"--compute", "fast"}, "expected timed or real"},
           {{"--split", "train"}, "expected fit or held_out"},
           {{"--set", "tcp_streams=0"}, "1 to 16"},
           {{"--set", "other_jobs=[{\"rank_order\":[0,1]}]"}, "already has a rank"}}) {
    Outcome o = ddpsim(kRun + more);
    EXPECT_EQ(o.code, 2) << o.out;
    EXPECT_NE(o.err.find(says), std::string::npos) << o.err;
    EXPECT_EQ(o.out, "");
  }
}

TEST(RunCommand, NeedsTwoSteadySteps) {
  Outcome o = ddpsim(
      {"run", "--workload", "mlp784-50-10-cpu", "--cluster", "testbed-star", "--steps", "1"});
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("2 to 64"), std::string::npos) << o.err;
}

const Args kTorch{"run",       "--backend",     "torch", "--workload",      "mlp784-50-10-cpu",
                  "--cluster", "testbed-torch", "--set", "cluster.hosts=2", "--steps",
                  "2",         "--loopback"};

bool has_torch() {
  try {
    return !calib::torch_version("/usr/bin/python3").empty();
  } catch (const std::runtime_error&) {
    return false;
  }
}

TEST(TorchCommand, RunsTheRealPytorch) {
  if (!has_torch()) GTEST_SKIP() << "no python3-torch";
  Folder f;
  std::string file =
      (fs::temp_directory_path() / ("ddpsim_torch_run" + std::to_string(::getpid()) + ".json"))
          .string();
  Outcome o = ddpsim(kTorch + Args{"--set", "bucket_cap_mb=0.05", "--runs", f.path.string(),
                                   "--split", "held_out", "--out", file});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("from this run's layer profile"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("software   PyTorch "), std::string::npos) << o.out;
  io::Json run = io::parse_json(io::read_file(file), file);
  EXPECT_EQ(run["evidence"], "system");
  EXPECT_EQ(run["origin"]["backend"], "torch");
  EXPECT_EQ(run["origin"]["compute"], "timed");
  EXPECT_EQ(run["layers"]["ranks"], 2);
  // Its layer profile replaces the workload's times, and validate compares schedule and bucket
  // sizes.
  Outcome p = ddpsim({"predict", "--workload", "mlp784-50-10-cpu", "--cluster", "testbed-torch",
                      "--ranks", "2", "--layers", file, "--format", "json"});
  ASSERT_EQ(p.code, 0) << p.err;
  EXPECT_NEAR(io::parse_json(p.out, "stdout")["summary"]["forward_ps"].get<double>(),
              run["layers"]["forward_ps"].get<double>(), 10)
      << "split in two, rounded twice";
  io::Json j = io::parse_json(
      ddpsim({"validate", "--runs", f.path.string(), "--format", "json"}).out, "stdout");
  ASSERT_EQ(j["pairs"].size(), 1u);
  EXPECT_EQ(j["pairs"][0]["evidence"], "system_other") << "a star of two hosts at 1 Gb/s";
  EXPECT_TRUE(j["errors"].empty()) << j["errors"].dump();
  Outcome other = ddpsim(
      {"predict", "--workload", "resnet18-cpu", "--cluster", "testbed-torch", "--layers", file});
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("its model has 4 parameters, workload \"resnet18-cpu\" has 62"),
            std::string::npos)
      << other.err;
  fs::remove(file);
}

// Ranks come seconds after their port was chosen: meanwhile nobody else gets it, and rank 0's
// store, which reuses addresses, does.
TEST(TorchCommand, KeepsThePortForRankZero) {
  calib::HeldPort port;
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_port = htons(static_cast<std::uint16_t>(port.number()));
  auto* address = reinterpret_cast<sockaddr*>(&any);
  io::Descriptor other(::socket(AF_INET6, SOCK_STREAM, 0));
  if (other.number() < 0) GTEST_SKIP() << "no IPv6";
  EXPECT_EQ(::bind(other.number(), address, sizeof any), -1);
  io::Descriptor store(::socket(AF_INET6, SOCK_STREAM, 0));
  int yes = 1;
  ::setsockopt(store.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  EXPECT_EQ(::bind(store.number(), address, sizeof any), 0);
  EXPECT_EQ(::listen(store.number(), 1), 0);
}

// ZeroRedundancyOptimizer's broadcasts are those of the prediction, with their ends.
TEST(TorchCommand, RunsZeroRedundancyOptimizer) {
  if (!has_torch()) GTEST_SKIP() << "no python3-torch";
  for (const char* view : {"false", "true"}) {
    Folder f;
    Outcome o = ddpsim(kTorch + Args{"--plan", "zero-redundancy", "--set",
                                     std::string("parameters_as_bucket_view=") + view, "--runs",
                                     f.path.string()});
    ASSERT_EQ(o.code, 0) << o.err;
    io::Json j = io::parse_json(
        ddpsim({"validate", "--runs", f.path.string(), "--format", "json"}).out, "stdout");
    ASSERT_EQ(j["pairs"].size(), 1u);
    EXPECT_TRUE(j["errors"].empty()) << j["errors"].dump();
    EXPECT_EQ(j["pairs"][0]["evidence"], "system_other") << "of two ranks";
  }
}

// PyTorch's own PowerSGD hook, fused optimizer, Join and post-local SGD, beside their predictions.
TEST(TorchCommand, ExecutesDdpsOtherWaysAndRounds) {
  if (!has_torch()) GTEST_SKIP() << "no python3-torch";
  const Args one_bucket{"--set", "bucket_cap_mb=1000", "--set", "first_bucket_bytes=1000000000"};
  for (const Args& asked :
       {one_bucket + Args{"--set", "comm_hook=powerSGD", "--set", "start_powerSGD_iter=2"},
        Args{"--set", "optimizer_in_backward=true"},
        Args{"--set", "join=true", "--set", "joined_ranks=1"},
        Args{"--plan", "local_sgd", "--set", "accumulation_steps=2", "--set",
             "averaging_periods=[1,2]", "--set", "averaging_group_sizes=[2,4]", "--set", "ranks=4",
             "--set", "cluster.hosts=4"},
        Args{"--plan", "local_sgd", "--set", "accumulation_steps=2", "--set", "subgroup_size=2",
             "--set", "start_localSGD_iter=2"}}) {
    Folder f;
    Outcome o = ddpsim(kTorch + asked + Args{"--runs", f.path.string()});
    ASSERT_EQ(o.code, 0) << o.err;
    io::Json j = io::parse_json(
        ddpsim({"validate", "--runs", f.path.string(), "--format", "json"}).out, "stdout");
    ASSERT_EQ(j["pairs"].size(), 1u) << asked.back();
    EXPECT_TRUE(j["errors"].empty()) << j["errors"].dump();  // of its schedule
  }
}

TEST(TorchCommand, KeepsWhatItDoesNotPredictApart) {
  if (!has_torch()) GTEST_SKIP() << "no python3-torch";
  Folder f;
  Outcome o = ddpsim(kTorch +
                     Args{"--record", "zero_redundancy_optimizer=true", "--runs", f.path.string()});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("recorded and not predicted"), std::string::npos) << o.out;
  io::Json j = io::parse_json(
      ddpsim({"validate", "--runs", f.path.string(), "--format", "json"}).out, "stdout");
  EXPECT_EQ(j["unpredicted"], 1);
  EXPECT_TRUE(j["pairs"].empty());
}

TEST(TorchCommand, CalibratesWhatAFitReads) {
  if (!has_torch()) GTEST_SKIP() << "no python3-torch";
  Outcome o = ddpsim({"calibrate", "--backend", "torch", "--cluster", "testbed-torch", "--set",
                      "cluster.hosts=2", "--loopback", "--format", "json"});
  ASSERT_EQ(o.code, 0) << o.err;
  io::Json run = io::parse_json(o.out, "stdout");
  EXPECT_EQ(run["evidence"], "collective");
  std::map<std::string, int> count;
  for (const auto& s : run["samples"]) ++count[s["op"].get<std::string>()];
  for (const char* op :
       {"all_reduce", "all_reduce_cpu", "half_all_reduce", "broadcast", "broadcast_idle",
        "in_flight", "bare_backward", "ddp_backward", "half_backward"})
    EXPECT_GT(count[op], 0) << op;
  EXPECT_EQ(count["bare_backward"], count["ddp_backward"]);
  EXPECT_EQ(count["half_backward"], count["ddp_backward"]);
}

bool has_gpu() {
  return fs::exists("/dev/nvidia0");
}

const Args kTorchGpu{"run", "--backend", "torch", "--workload", "resnet18", "--ranks", "2"};

TEST(TorchCommand, RefusesInASentence) {
  for (const auto& [command, says] : std::vector<std::pair<Args, std::string>>{
           {kTorch + Args{"--python", "/bin/false"}, "/bin/false has no PyTorch"},
           {kRun + Args{"--record", "zero_redundancy_optimizer=true"}, "is of --backend torch"},
           {{"run", "--backend", "torch", "--workload", "resnet18", "--cluster", "testbed-torch",
             "--loopback"},
            "--workload resnet18: timed layers need a captured workload"},
           {kTorch + Args{"--set", "cluster.hosts=4", "--set", "ranks=2", "--set",
                          "other_jobs=[{\"rank_order\":[2,3]}]"},
            "runs one job"},
           {kTorch + Args{"--record", "powersgd=1"}, "known are zero_redundancy_optimizer"},
           {kTorch + Args{"--set", "comm_hook=powerSGD", "--set", "bucket_cap_mb=1000", "--set",
                          "first_bucket_bytes=1000000000"},
            "--set start_powerSGD_iter=2"},
           {kTorch + Args{"--plan", "local_sgd", "--set", "subgroup_size=2"},
            "--set start_localSGD_iter=2"},
           {kTorch + Args{"--plan", "diloco"}, "is not recorded"},
           {kTorch + Args{"--compute", "real"}, "does not say how to make its model"},
           {kTorch + Args{"--compute", "real", "--set", "slow_ranks.1=2"}, "cannot be slowed down"},
           {kTorch + Args{"--one-gpu"}, "needs a cluster of GPUs"},
           {kTorchGpu + Args{"--cluster", "hgx-h100", "--compute", "real"},
            "on a GPU computation is always real"},
           {kTorchGpu + Args{"--cluster", "one-gpu"}, "add --one-gpu"},
           {kTorchGpu + Args{"--cluster", "hgx-h100"}, "this PyTorch finds no CUDA GPU"}}) {
    if (has_gpu() && says.find("no CUDA GPU") != std::string::npos) continue;
    if (!has_torch() && says != "is of --backend torch" &&
        says.find("/bin/false") == std::string::npos)
      continue;
    Outcome o = ddpsim(command);
    EXPECT_EQ(o.code, 2) << o.out;
    EXPECT_NE(o.err.find(says), std::string::npos) << o.err;
    EXPECT_EQ(o.out, "");
  }
}

TEST(TorchCommand, RanksKeepTheirMemory) {
  if (!has_torch()) GTEST_SKIP() << "no python3-torch";
  Outcome o = ddpsim(kTorch + Args{"--format", "json"});
  ASSERT_EQ(o.code, 0) << o.err;
  io::Json run = io::parse_json(o.out, "stdout");
  EXPECT_NE(run["origin"]["software"].get<std::string>().find("freed memory kept"),
            std::string::npos);
}

// ---- GPUs: what is said where there is none (on one, tests/gpu)

TEST(GpuCommand, RefusesInASentence) {
  std::vector<std::pair<Args, std::string>> cases{
      {{"calibrate", "--one-gpu"}, "--one-gpu of cuda and nccl"},
      {{"calibrate", "--stage", "gemm"}, "is of backends cuda, nccl and torch"},
      {{"calibrate", "--backend", "cuda", "--seconds", "0"}, "1 to 86400"},
      {{"calibrate", "--backend", "cuda", "--stage", "gem"},
       "--stage gem: backend cuda has memory, gemm"},
      {{"calibrate", "--backend", "nccl", "--ranks", "x"}, "--ranks x: expected a whole number"},
      {{"calibrate", "--backend", "cuda", "--stage", "nccl"},
       "--stage nccl: backend cuda has memory, gemm"},
      {kRun + Args{"--one-gpu"}, "is of --backend nccl"},
      {{"run", "--backend", "nccl", "--workload", "resnet18-cpu", "--cluster", "testbed-star"},
       "needs a cluster of GPUs"},
      {{"run", "--backend", "nccl", "--workload", "resnet18", "--cluster", "hgx-h100", "--ranks",
        "1", "--compute", "real"},
       "on a GPU computation is always real"},
      {{"fit", "--backend", "ncc"}, "expected tcp, torch, mpi, cuda, cpu, nccl or nccl-tests"},
      {{"fit", "--backend", "nccl", "--base", "h100-sxm.datasheet"},
       "no Run holds all-reduces whose ring was forced"},
      {kRun + Args{"--timeout", "5"}, "is of --backend nccl"},
      {{"run", "--backend", "nccl", "--workload", "resnet18", "--cluster", "hgx-h100", "--ranks",
        "2", "--one-gpu"},
       "use --cluster one-gpu"},
      {{"run", "--backend", "nccl", "--workload", "resnet18", "--cluster", "one-gpu", "--ranks",
        "2"},
       "add --one-gpu"},
      {{"fit", "--backend", "cuda", "--base", "cpu-generic.datasheet"}, "is a profile of CPUs"},
      {{"fit", "--backend", "cuda", "--base", "h200-sxm.datasheet"},
       "holds no Run of a GPU's kernels"}};
  if (!has_gpu()) {
    cases.push_back({{"calibrate", "--backend", "cuda"}, "calibrate, stage memory: "});
    cases.push_back({{"calibrate", "--backend", "nccl"}, "calibrate, stage nccl: "});
    cases.push_back({{"run", "--backend", "nccl", "--workload", "resnet18", "--cluster", "hgx-h100",
                      "--ranks", "1"},
                     "run: "});
  }
  for (const auto& [command, says] : cases) {
    Outcome o = ddpsim(command);
    EXPECT_EQ(o.code, 2) << o.out;
    EXPECT_NE(o.err.find(says), std::string::npos) << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    EXPECT_EQ(o.out, "");
  }
}

TEST(GpuCommand, FitsKernelsOfAFolder) {
  Folder f;
  fs::create_directories(f.path);
  ddpsim::Run r;
  r.kind = RunKind::Measured;
  r.evidence = EvidenceClass::Kernel;
  r.key = "calibrate/memory";
  r.origin.backend = "cuda";
  r.origin.hosts = "gpus";
  r.origin.gpu = "a GPU that does not exist";
  r.origin.compute = "real";
  for (std::int64_t n : {1ll << 12, 1ll << 16, 1ll << 20, 1ll << 22, 1ll << 24, 1ll << 26})
    for (int kernel : {0, 1, 7})
      r.samples.push_back({"move",
                           {{"kernel", kernel}, {"elements", n}, {"traffic", 8 * n}},
                           {Duration{2'000'000 + 8 * n / 3}}});
  io::write_file(f.path.string() + "/cuda-memory.json.gz", io::write_run(r).dump() + "\n");
  std::string out = f.path.string() + "/gpu.json";
  Outcome o = ddpsim({"fit", "--backend", "cuda", "--runs", f.path.string(), "--base",
                      "h200-sxm.datasheet", "--name", "imaginary", "--out", out});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("held out"), std::string::npos) << o.out;
  io::Json p = io::parse_json(io::read_file(out), out);
  EXPECT_EQ(p["hardware"], "a GPU that does not exist");
  EXPECT_EQ(p["memory"]["basis"], "measured");
  EXPECT_EQ(p["compute"]["basis"], "datasheet");
  // A prediction takes it; validate counts the Run and judges nothing.
  EXPECT_EQ(
      ddpsim({"predict", "--workload", "resnet50", "--cluster", "hgx-h100", "--profile", out}).code,
      0);
  fs::remove(out);
  Outcome v = ddpsim({"validate", "--runs", f.path.string(), "--format", "json"});
  ASSERT_FALSE(v.out.empty()) << v.err;
  EXPECT_EQ(io::parse_json(v.out, "stdout")["without_steps"], 1);
  r.origin.gpu = "another";
  io::write_file(f.path.string() + "/cuda-other.json.gz", io::write_run(r).dump() + "\n");
  EXPECT_NE(ddpsim({"fit", "--backend", "cuda", "--runs", f.path.string(), "--base",
                    "h200-sxm.datasheet"})
                .err.find("is of another GPU"),
            std::string::npos);
}

TEST(FitCommand, RefusesAnUnknownSplit) {
  Outcome o = ddpsim({"fit", "--split", "tuning"});
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("expected fit or held_out"), std::string::npos) << o.err;
}

TEST(FitCommand, RefusesAFolderWithoutSamples) {
  Folder f;
  fs::create_directories(f.path / "scenarios");
  Outcome o = ddpsim({"fit", "--runs", f.path.string()});
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("all_reduce samples"), std::string::npos) << o.err;
}

// Streams and communicators of a system's own, groups of ranks, trees from any rank; each
// collective leaves what it says (checked by the executor), and the Run names the streams.
TEST(RunCommand, PlaysShardedSystems) {
  struct Case {
    Args plan;
    const char* span;
  };
  const Case cases[] = {
      {{"fsdp", "--set", "sharding_strategy=hybrid_shard", "--set", "shard_degree=2"},
       "comm_replicas"},
      {{"fsdp2", "--set", "pytorch=2.13", "--set", "separate_reduce_scatter_group=true"},
       "comm_reduce_scatter"},
      {{"zero3", "--set", "zero_hpz_partition_size=2"}, "comm_secondary"},
      {{"megatron", "--set", "use_distributed_optimizer=true"}, "reduce_scatter/bucket.0"},
      {{"zero_redundancy"}, "broadcast_param/"}};
  for (const Case& c : cases) {
    Args asked{"run", "--workload", "resnet18", "--cluster", "testbed-gpu", "--steps",
               "2",   "--loopback", "--format", "json",      "--plan"};
    asked.insert(asked.end(), c.plan.begin(), c.plan.end());
    Outcome o = ddpsim(asked);
    ASSERT_EQ(o.code, 0) << c.plan.front() << ": " << o.err;
    EXPECT_NE(o.out.find(c.span), std::string::npos) << c.plan.front();
  }
}

}  // namespace
}  // namespace ddpsim::test
