// Files that are small on the disk and large once read, or that have very many lines or entries:
// each takes time in proportion, and less than a GB, or is refused with a sentence.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/io/chakra.h"
#include "sim/io/files.h"
#include "sim/io/protobuf.h"
#include "tests/support/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

namespace fs = std::filesystem;

constexpr int kMany = 80'000;

class LargeInput : public InFolder {
 protected:
  // Of each piece the gzip member, one behind the other, `middle` so many times.
  std::string bomb(const std::string& name, const std::string& head, const std::string& middle,
                   int times, const std::string& tail) const {
    auto member = [&](const std::string& text) {
      io::write_file(at("member.gz"), text);
      std::ifstream in(at("member.gz"), std::ios::binary);
      return std::string(std::istreambuf_iterator<char>(in), {});
    };
    std::string packed = member(head);
    const std::string repeated = member(middle);
    for (int k = 0; k < times; ++k) packed += repeated;
    return made(name, packed + member(tail));
  }
  // In a process of its own, which takes less than a GB.
  static void expect_refused_small(const Args& args, const std::string& words) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      Outcome o = ddpsim(args);
      rusage used{};
      ::getrusage(RUSAGE_SELF, &used);
      const std::string said =
          std::to_string(o.code) + " " + std::to_string(used.ru_maxrss / 1000) + " MB " + o.err;
      [[maybe_unused]] ssize_t n = ::write(ends[1], said.data(), said.size());
      ::_exit(used.ru_maxrss < 1'000'000 && o.code == 2 && has(o.err, words) ? 0 : 1);
    }
    ::close(ends[1]);
    std::string said(4000, '\0');
    const ssize_t n = ::read(ends[0], said.data(), said.size());
    ::close(ends[0]);
    said.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << args[0] << " " << args[1] << ": " << said;
  }
  // Within seconds, where what is quadratic takes a minute.
  static Outcome soon(const Args& args, int code = 0) {
    const double from = cpu_seconds();
    Outcome o = ddpsim(args);
    EXPECT_LT(cpu_seconds() - from, 20) << args[2];
    EXPECT_EQ(o.code, code) << args[2] << ": " << o.err.substr(0, 400);
    return o;
  }
};

TEST_F(LargeInput, OfAGigabyteWhenUnpacked) {
  const std::string mib(16 << 20, 'a');
  const std::string spaces(16 << 20, ' ');
  std::string numbers;
  while (numbers.size() < 16 << 20) numbers += "1,";
  const std::string events = R"({"traceEvents": [)";
  const std::string text = bomb("text.json.gz", events + R"({"name": ")", mib, 64, "\"}]}");
  const std::string key = bomb("key.json.gz", "{\"", mib, 64, "\": 1}");
  const std::string beside =
      bomb("beside.json.gz", R"({"x": ")", mib, 64, "\", \"traceEvents\": []}");
  const std::string space = bomb("space.json.gz", "{", spaces, 64, "\"traceEvents\": []}");
  const std::string shape =
      bomb("shape.json.gz", events + R"({"args": {"Input Dims": [[)", numbers, 64, "1]]}}]}");
  for (const std::string& file : {text, key, beside, space, shape})
    expect_refused_small({"import", "kineto", file}, "more than 64 MiB");
  expect_refused_small({"show", "run", text}, "larger than 64 MiB when decompressed");
  expect_refused_small({"import", "horovod-timeline", text}, "larger than 64 MiB");
}

TEST_F(LargeInput, LogsOfNcclTests) {
  const std::string table =
      "# nThread 1 nGpus 2 minBytes 4 maxBytes 4 step: 2(factor)\n"
      "#  Rank  0 Group  0 Pid 1 on host device  0 [0x00] GPU\n"
      "#  Rank  1 Group  0 Pid 1 on host device  1 [0x00] GPU\n"
      " 1048576 262144 float sum -1 44.6 23.51 23.51 0 44.6 23.51 23.51 0\n";
  for (const char* form : {"host:1:2 [0] NCCL INFO NCCL_X@ set by environment to 1.\n",
                           "NCCL_X@=1 ./build/all_reduce_perf\n", "NCCL_X@=1\n", "# x @\n",
                           "host:1:2 [0] NCCL INFO AllReduce: @ Bytes -> Algo RING proto LL "
                           "channel{Lo..Hi}={0..1}\n"}) {
    std::string log;
    for (int k = 0; k < kMany; ++k) {
      std::string line = form;
      line.replace(line.find('@'), 1, std::to_string(k));
      log += line;
    }
    made("log.txt", log + table);
    soon({"import", "nccl-tests", at("log.txt"), "--op", "all_reduce", "--out", at("run.json")});
  }
}

TEST_F(LargeInput, TimelinesOfHorovod) {
  std::string events = R"([{"name":"process_name","ph":"M","pid":1,"args":{"name":"t"}})";
  int us = 0;
  auto event = [&](const std::string& phase, const std::string& more) {
    events += ",{\"ph\":\"" + phase + "\",\"pid\":1,\"ts\":" + std::to_string(us++) + more + "}";
  };
  event("B", ",\"name\":\"ALLREDUCE\"");
  for (int k = 0; k < kMany; ++k) {
    event("B", ",\"name\":\"A" + std::to_string(k) + "_ALLREDUCE\"");
    event("E", "");
  }
  event("E", R"(,"args":{"dtype":"float32","shape":"[4]"})");
  made("timeline.json", events + "]");
  soon({"import", "horovod-timeline", at("timeline.json"), "--run", at("run.json")});
}

io::ChakraNode compute(int id) {
  io::ChakraNode n;
  n.id = static_cast<std::uint64_t>(id);
  n.name = "k" + std::to_string(id);
  n.type = io::ChakraType::Compute;
  n.duration_us = 1;
  return n;
}

TEST_F(LargeInput, TracesOfChakra) {
  io::ChakraTrace star;
  star.version = "0.0.4";
  io::ChakraNode middle = compute(kMany);
  middle.type = io::ChakraType::Metadata;
  for (int k = 0; k < kMany; ++k) {
    star.nodes.push_back(compute(k));
    middle.after.push_back(static_cast<std::uint64_t>(k));
  }
  star.nodes.push_back(middle);
  for (int k = kMany + 1; k < 2 * kMany; ++k) {
    star.nodes.push_back(compute(k));
    star.nodes.back().after = {kMany};
  }
  made("star.et", io::write_chakra(star));
  EXPECT_TRUE(has(soon({"import", "chakra", at("star.et"), "--ranks", "8"}, 2).err,
                  "more than 20 million dependencies"));
  io::ChakraTrace grouped;
  grouped.version = "0.0.4";
  std::string groups = "{";
  for (int k = 0; k < kMany; ++k) {
    io::ChakraNode n = compute(k);
    n.type = io::ChakraType::Collective;
    n.comm_type = 2;
    n.comm_size = 64;
    n.group = std::to_string(k + 1);
    grouped.nodes.push_back(n);
    groups += (k ? ",\"" : "\"") + n.group + "\":[0,1]";
  }
  made("groups.et", io::write_chakra(grouped));
  made("groups.json", groups + "}");
  soon({"import", "chakra", at("groups.et"), "--ranks", "8", "--groups", at("groups.json"), "--out",
        at("program.json")});
}

}  // namespace
}  // namespace ddpsim::test
