// Questions that are too large are refused in a sentence, at once; long ones say how long they
// last.
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "sim/io/files.h"
#include "tests/support/support.h"
#include "tools/cmd/progress.h"

namespace ddpsim::test {
namespace {

TEST(Size, MessagesThatTakeMoreThanAGigabyteAreRefused) {
  for (const char* cluster : {"testbed-star", "ethernet-10g"})
    for (const char* backend : {"tcp", "gloo"})
      expect_refusal({"predict", "--workload", "resnet18-cpu", "--cluster", cluster, "--set",
                      std::string("backend=") + backend, "--set", "cluster.hosts=256", "--fidelity",
                      "message"},
                     "use fewer ranks");
  expect_answer({"predict", "--workload", "mlp-cpu", "--cluster", "testbed-star", "--set",
                 "backend=tcp", "--set", "cluster.hosts=16", "--fidelity", "message"},
                {"16 ranks"});
}

TEST(Size, MoreTensorsThanHorovodsNegotiationHasRoomForAreRefused) {
  io::Json w = io::parse_json(io::read_file(source_path("workloads/mlp784-50-10-cpu.json")), "w");
  const std::size_t most = 44'000;
  io::Json tensors = io::Json::array();
  io::Json arrival = io::Json::array();
  io::Json ready = io::Json::array();
  for (std::size_t i = 0; i <= most; ++i) {
    tensors.push_back({{"name", "p" + std::to_string(i)}, {"shape", {1}}, {"dtype", "float32"}});
    arrival.push_back(i);
    ready.push_back(i);
  }
  w["tensors"] = tensors;
  w["arrival"] = arrival;
  w["times"] = {
      {"forward_ps", most}, {"backward_ps", most}, {"optimizer_ps", 1}, {"ready_ps", ready}};
  for (const char* key : {"layers", "buffers"}) w.erase(key);
  const std::string file =
      testing::TempDir() + "ddpsim_tensors_" + std::to_string(::getpid()) + ".json";
  std::ofstream(file) << w.dump();
  expect_refusal({"predict", "--workload", file, "--cluster", "ethernet-10g", "--plan", "horovod"},
                 "has 44001 tensors");
  std::filesystem::remove(file);
}

TEST(Elapsed, IsToldOnATerminalAfterAWhileAndIsGoneAtTheEnd) {
  std::ostringstream out;
  std::ostringstream err;
  cli::Terminal t{out, err, false, "", ""};
  auto work = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
  {
    const cli::Elapsed none(t, {});
    work();
  }
  EXPECT_EQ(err.str(), "") << "no terminal";
  t.err_is_terminal = true;
  for (int k = 0; k < 20 && err.str().empty(); ++k) {  // threads of a busy machine begin late
    const cli::Elapsed soon(t, {});
    work();
  }
  EXPECT_TRUE(err.str().starts_with("\rddpsim: 0 s ")) << err.str();
  EXPECT_TRUE(err.str().ends_with("\r\033[K"));
  err.str("");
  { const cli::Elapsed late(t, std::chrono::hours(1)); }
  EXPECT_EQ(err.str(), "");
  EXPECT_EQ(cli::timed(t, [] { return 7; }), 7);
}

}  // namespace
}  // namespace ddpsim::test
