// The private MPS daemon's life, with a program of ours in its control program's place: no GPU is
// needed.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calib/cuda/ranks.h"

namespace ddpsim::test {
namespace {

namespace fs = std::filesystem;
using calib::cuda::MpsDaemon;

// A folder first on PATH whose nvidia-cuda-mps-control notes its arguments and its input, and ends
// with `status`.
class Mps : public testing::Test {
 protected:
  void SetUp() override {
    folder = fs::temp_directory_path() / ("ddpsim-mps-test-" + std::to_string(::getpid()));
    fs::create_directories(folder / "tmp");
    path = std::getenv("PATH");
    ::setenv("PATH", (folder.string() + ":" + path).c_str(), 1);
    ::setenv("TMPDIR", (folder / "tmp").c_str(), 1);
    control(0);
  }
  void TearDown() override {
    ::setenv("PATH", path.c_str(), 1);
    ::unsetenv("TMPDIR");
    fs::remove_all(folder);
  }
  void control(int status) {
    fs::path program = folder / "nvidia-cuda-mps-control";
    std::ofstream(program) << "#!/bin/sh\nif [ \"$1\" = -d ]; then echo start >> "
                           << (folder / "said").string() << "; else cat >> "
                           << (folder / "said").string() << "; fi\nexit " << status << "\n";
    fs::permissions(program, fs::perms::owner_all);
  }
  std::string said() const {
    std::ostringstream out;
    out << std::ifstream(folder / "said").rdbuf();
    return out.str();
  }
  bool nothing_left() const { return fs::is_empty(folder / "tmp"); }
  fs::path folder;
  std::string path;
};

TEST_F(Mps, IsEndedWithItsObject) {
  {
    MpsDaemon daemon;
    EXPECT_TRUE(fs::is_directory(daemon.folder() + "/pipe"));
    EXPECT_EQ(said(), "start\n");
  }
  EXPECT_EQ(said(), "start\nquit -t 1\n");
  EXPECT_TRUE(nothing_left());
}

TEST_F(Mps, IsEndedWhenItsProcessIsKilled) {
  pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    MpsDaemon daemon;
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  for (int i = 0; i < 200 && !nothing_left(); ++i) ::usleep(20'000);
  EXPECT_EQ(said(), "start\nquit -t 1\n");
  EXPECT_TRUE(nothing_left());
}

TEST_F(Mps, ThatDoesNotStartIsAReason) {
  control(3);
  try {
    MpsDaemon daemon;
    FAIL();
  } catch (const std::runtime_error& e) {
    EXPECT_NE(std::string(e.what()).find("status 3"), std::string::npos) << e.what();
  }
  EXPECT_TRUE(nothing_left());
}

TEST(OneGpu, EveryRankIsAHostOfItsOwn) {
  auto value = [](int rank, const std::string& name) {
    for (const auto& [key, text] : calib::cuda::one_gpu_environment(rank, 4, "/f"))
      if (key == name) return text;
    return std::string();
  };
  EXPECT_NE(value(0, "NCCL_HOSTID"), value(1, "NCCL_HOSTID"));
  EXPECT_EQ(value(2, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "25");
  EXPECT_EQ(value(3, "CUDA_MPS_PIPE_DIRECTORY"), "/f/pipe");
}

// What a rank says before it leaves is what the caller hears.
TEST(InChild, SaysWhatItSaidOrWhyNot) {
  EXPECT_EQ(calib::cuda::in_child([] { return std::string("yes"); }), "yes");
  EXPECT_EQ(calib::cuda::in_child([] { return std::string(); }), "");
  try {
    calib::cuda::in_child([]() -> std::string { throw std::runtime_error("no such kernel"); });
    FAIL();
  } catch (const std::runtime_error& e) {
    EXPECT_NE(std::string(e.what()).find("no such kernel"), std::string::npos) << e.what();
  }
  EXPECT_THROW(calib::cuda::in_child(
                   []() -> std::string {
                     ::usleep(5'000'000);
                     return "late";
                   },
                   0.3),
               std::runtime_error);
}

TEST(InChild, WhatWasSaidBeforeItHungOrDiedIsKept) {
  std::string why;
  auto said = [&](const std::function<void()>& end, double timeout_s) {
    return calib::cuda::in_child_so_far(
        [&](const auto& say) {
          say("a first part");
          say("the longer second part");
          end();
        },
        timeout_s, why);
  };
  EXPECT_EQ(said([] {}, 5), "the longer second part");
  EXPECT_EQ(why, "");
  EXPECT_EQ(said([] { ::usleep(9'000'000); }, 0.5), "the longer second part");
  EXPECT_NE(why.find("not done after"), std::string::npos) << why;
  EXPECT_EQ(said([] { ::kill(::getpid(), SIGSEGV); }, 5), "the longer second part");
  EXPECT_NE(why, "");
  EXPECT_EQ(said([] { throw std::runtime_error("out of memory"); }, 5), "the longer second part");
  EXPECT_NE(why.find("out of memory"), std::string::npos) << why;
  EXPECT_EQ(calib::cuda::in_child_so_far([](const auto&) { throw std::runtime_error("at once"); },
                                         5, why),
            "");
  EXPECT_NE(why.find("at once"), std::string::npos);
}

}  // namespace
}  // namespace ddpsim::test
