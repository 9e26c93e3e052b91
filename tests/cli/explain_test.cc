// ddpsim explain --op, export nccl-tuner --cluster, fit --backend nccl-tests, validate
// --collectives.
#include <cmath>
#include <filesystem>
#include <set>

#include <gtest/gtest.h>
#include <unistd.h>

#include "sim/io/files.h"
#include "sim/io/json_reader.h"
#include "sim/report/nccl_tuner.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

io::Json explained(Args args) {
  args.insert(args.begin(), "explain");
  args.insert(args.end(), {"--format", "json"});
  Outcome o = ddpsim(args);
  EXPECT_EQ(o.code, 0) << o.err;
  return o.code == 0 ? io::parse_json(o.out, "stdout") : io::Json{};
}

TEST(Explain, NamesTheChoiceThePricesAndWhatLimitsThem) {
  Outcome o =
      ddpsim({"explain", "--op", "all_reduce", "--bytes", "25MiB", "--cluster", "hgx-h100"});
  ASSERT_EQ(o.code, 0) << o.err;
  for (const char* part : {"\n* ", "ring/simple", "nvls/simple", "NCCL says", "ddpsim",
                           "limited by", "nvlink", "NCCL's choice by size:"})
    EXPECT_TRUE(has(o.out, part)) << part << "\n" << o.out;
}

TEST(Explain, SaysWhereTheTimeFallsAlthoughTheSizeGrows) {
  Outcome o = ddpsim({"explain", "--cluster", "gh200x4-slingshot", "--nccl", "2.23.4"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(has(o.out, "NCCL 2.23;")) << o.out;
}

// Before 2.24 NCCL falls back to a ring where its settings leave nothing.
TEST(Explain, OldVersionsFallBackToRings) {
  Outcome o = ddpsim({"explain", "--op", "all_gather", "--cluster", "hgx-h100", "--set",
                      "NCCL_ALGO=tree", "--nccl", "2.20"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(has(o.out, "* ring/")) << o.out;
  o = ddpsim({"explain", "--op", "broadcast", "--cluster", "hgx-h100", "--set", "NCCL_ALGO=nvls",
              "--nccl", "2.23", "--format", "json"});
  ASSERT_EQ(o.code, 0) << o.err;
  io::Json j = io::parse_json(o.out, "stdout");
  ASSERT_EQ(j["candidates"].size(), 1u);
  EXPECT_EQ(j["candidates"][0]["chosen"], true);
}

// A variable is the same question at a plan's place as by its name.
TEST(Explain, TakesAVariableAsPlansHaveIt) {
  io::Json byname = explained({"--cluster", "dgx-a100", "--set", "NCCL_ALGO=tree"});
  for (const char* place : {"environment.NCCL_ALGO=tree", "plan.environment.NCCL_ALGO=tree"})
    EXPECT_EQ(explained({"--cluster", "dgx-a100", "--set", place}), byname) << place;
  EXPECT_NE(explained({"--cluster", "dgx-a100"}), byname);
}

TEST(Explain, JsonHoldsTheParts) {
  Outcome o = ddpsim({"explain", "--bytes", "1MiB", "--cluster", "dgx-a100", "--ranks", "8",
                      "--set", "NCCL_ALGO=ring", "--format", "json"});
  ASSERT_EQ(o.code, 0) << o.err;
  io::Json j = io::parse_json(o.out, "stdout");
  int chosen = 0;
  ASSERT_FALSE(j["candidates"].empty());
  for (const io::Json& c : j["candidates"]) {
    EXPECT_EQ(c["algorithm"], "ring");
    chosen += c["chosen"].get<bool>();
    EXPECT_EQ(c["price_ps"].get<std::int64_t>(),
              c["base_ps"].get<std::int64_t>() + c["steps_ps"].get<std::int64_t>() +
                  c["fill_ps"].get<std::int64_t>() + c["transfer_ps"].get<std::int64_t>());
  }
  EXPECT_EQ(chosen, 1);
}

// ncclSend and ncclRecv: one price, and a sentence where NCCL's estimate would be.
TEST(Explain, PointToPointHasNoEstimate) {
  for (const char* op : {"all_to_all", "send_recv"}) {
    Outcome o = ddpsim({"explain", "--op", op, "--bytes", "64MiB", "--cluster", "dgx-h100", "--set",
                        "cluster.hosts=2"});
    ASSERT_EQ(o.code, 0) << o.err;
    for (const char* part : {"none: NCCL has no estimate for point-to-point", "* send/recv",
                             "inside a node: ", "between nodes: ", "by simple", "limited by"})
      EXPECT_TRUE(has(o.out, part)) << part << "\n" << o.out;
    io::Json j = explained(
        {"--op", op, "--bytes", "64MiB", "--cluster", "dgx-h100", "--set", "cluster.hosts=2"});
    ASSERT_EQ(j["candidates"].size(), 1u);
    const io::Json& c = j["candidates"][0];
    EXPECT_TRUE(c["nccl_ps"].is_null());
    std::int64_t sum = 0;
    for (const char* part : {"base_ps", "steps_ps", "fill_ps", "transfer_ps"})
      sum += c[part].get<std::int64_t>();
    EXPECT_EQ(c["price_ps"], sum);
    // nccl-tests: an all-to-all's size is a rank's buffer, of which each pair exchanges a 16th.
    EXPECT_EQ(c["message_bytes"], std::string(op) == "all_to_all" ? 4 * 1048576 : 64 * 1048576);
    double factor = std::string(op) == "all_to_all" ? 15.0 / 16 : 1;
    EXPECT_NEAR(c["bus_bytes_per_s"].get<double>() * c["price_ps"].get<double>() / 1e12 /
                    (64 * 1048576 * factor),
                1, 1e-9);
  }
  io::Json one = explained({"--op", "all_to_all", "--bytes", "1KiB", "--cluster", "hgx-h100"});
  EXPECT_EQ(one["candidates"][0]["inside"]["protocol"], "ll");
  EXPECT_TRUE(one["candidates"][0]["between"].is_null());
}

// A rank's 64 MiB in 4 parts, a byte more in 8: faster. Of all_reduce the choice between
// algorithms. Text and JSON name the same sizes.
TEST(Explain, NamesWhereThePriceFalls) {
  io::Json one = explained({"--op", "send_recv", "--cluster", "hgx-h100"});
  bool found = false;
  for (const io::Json& c : one["changes"]) {
    if (c["from_bytes"] != 64 * 1048576 + 1) continue;
    found = true;
    EXPECT_EQ(c["price_falls"], true);
    EXPECT_EQ(c["where"], "inside a node");
    EXPECT_EQ(c["before"], "simple in 4 parts by chunks of 512 KiB");
    EXPECT_EQ(c["after"], "simple in 8 parts by chunks of 512 KiB");
  }
  EXPECT_TRUE(found) << one["changes"];
  for (const Args& question :
       {Args{"--op", "send_recv", "--cluster", "hgx-h100"},
        Args{"--op", "all_to_all", "--cluster", "hgx-h100"},
        Args{"--op", "all_to_all", "--cluster", "dgx-h100", "--set", "cluster.hosts=2"},
        Args{"--op", "send_recv", "--cluster", "gpu-ethernet-10g"},
        Args{"--cluster", "gh200x4-slingshot", "--nccl", "2.23.4"}}) {
    auto price = [&](std::int64_t bytes) {
      Args args = question;
      args.insert(args.end(), {"--bytes", std::to_string(bytes) + "B"});
      io::Json j = explained(args);
      for (const io::Json& c : j["candidates"])
        if (c["chosen"].get<bool>()) return c["price_ps"].get<std::int64_t>();
      return std::int64_t{0};
    };
    bool p2p = question[0] == "--op";
    io::Json j = explained(question);
    std::size_t falls = 0;
    for (const io::Json& c : j["changes"]) {
      std::int64_t bytes = c["from_bytes"].get<std::int64_t>();
      EXPECT_EQ(c["price_falls"].get<bool>(), price(bytes) < price(p2p ? bytes - 1 : bytes / 2))
          << c;
      falls += c["price_falls"].get<bool>();
    }
    Args text = question;
    text.insert(text.begin(), "explain");
    std::string out = ddpsim(text).out;
    std::size_t named = 0;
    for (std::size_t at = out.find("the time falls"); at != std::string::npos;
         at = out.find("the time falls", at + 1))
      ++named;
    EXPECT_EQ(named, falls) << out;
  }
}

TEST(Explain, SaysWhatSymmetricWindowsAndOneProcessWouldDo) {
  Args args{"--bytes", "64MiB", "--cluster", "hgx-h100", "--ranks", "8", "--nccl", "2.28"};
  io::Json j = explained(args);
  EXPECT_EQ(j["symmetric"]["kernel"], "AllReduce_RSxLDMC_AGxSTMC");
  EXPECT_EQ(j["symmetric"]["blocks"], 2);
  EXPECT_EQ(j["launches"]["gpus_per_process"], 8);
  auto text = [&] {
    Args whole = args;
    whole.insert(whole.begin(), "explain");
    return ddpsim(whole).out;
  };
  EXPECT_TRUE(has(text(), "AllReduce_RSxLDMC_AGxSTMC")) << text();
  EXPECT_FALSE(has(text(), "One process")) << "launches hide behind 64 MiB\n" << text();
  args[1] = "64KiB";
  EXPECT_TRUE(has(text(), "One process")) << text();
  args.back() = "2.26";
  EXPECT_FALSE(explained(args).contains("symmetric"));
}

TEST(Explain, ShowsWhatIsMadeOfNcclsCalls) {
  Outcome o =
      ddpsim({"explain", "--bytes", "64MiB", "--cluster", "dgx-h100", "--set", "cluster.hosts=4"});
  ASSERT_EQ(o.code, 0) << o.err;
  for (const char* part : {"Made of NCCL's calls", "  two_level ", "    reduce_scatter ",
                           "4 x 8 ranks, 64 MiB", "8 x 4 ranks, 8 MiB", "  direct ", "send/recv"})
    EXPECT_TRUE(has(o.out, part)) << part << "\n" << o.out;
  io::Json j = explained({"--bytes", "64MiB", "--cluster", "dgx-h100", "--set", "cluster.hosts=4"});
  ASSERT_EQ(j["made_of_calls"].size(), 2u);
  EXPECT_FALSE(j.contains("symmetric")) << "several nodes";
  for (const io::Json& c : j["made_of_calls"]) {
    std::int64_t sum = 0;
    for (const io::Json& s : c["stages"]) sum += s["time_ps"].get<std::int64_t>();
    EXPECT_EQ(c["price_ps"], sum);
  }
  // One host, one GPU a host, another operation: nothing to compose.
  for (const Args& args :
       {Args{"--cluster", "hgx-h100"}, Args{"--cluster", "gpu-ethernet-25g"},
        Args{"--cluster", "dgx-h100", "--set", "cluster.hosts=4", "--op", "all_gather"}})
    EXPECT_FALSE(explained(args).contains("made_of_calls"));
  o = ddpsim({"explain", "--cluster", "dgx-h100", "--set", "cluster.hosts=2", "--ranks", "12"});
  EXPECT_TRUE(has(o.out, "not here: its groups have different numbers of ranks")) << o.out;
}

// What limits a call is said in the words of the table above it.
TEST(Explain, SaysOfCallsThatThePipelineIsFilled) {
  Args cluster{"--bytes",          "16MiB", "--cluster",        "dgx-h100", "--set",
               "cluster.hosts=16", "--set", "NCCL_PROTO=simple"};
  std::set<std::string> words;
  io::Json answer = explained(cluster);
  for (const io::Json& c : answer["made_of_calls"])
    for (const io::Json& s : c["stages"]) words.insert(s["limited_by"].get<std::string>());
  EXPECT_TRUE(words.count("filling the pipeline")) << io::Json(words);
}

// From there on the price has the rendezvous, and a byte less does without. Text and JSON agree; a
// cluster without an eager limit has none.
TEST(Explain, SaysFromWhichSizeOnTheReceiverIsAskedFirst) {
  for (const char* op : {"all_reduce", "all_gather", "send_recv", "all_to_all"}) {
    Args question{"--op", op, "--cluster", "gh200x4-slingshot"};
    io::Json found = explained(question)["rendezvous"];
    ASSERT_FALSE(found.empty()) << op;
    auto price = [&](std::int64_t bytes, bool asks) {
      Args args = question;
      args.insert(args.end(), {"--bytes", std::to_string(bytes) + "B"});
      if (!asks) args.insert(args.end(), {"--set", "profile.transports.libfabric.rendezvous_ps=0"});
      io::Json answer = explained(args);
      for (const io::Json& c : answer["candidates"])
        if (c["chosen"].get<bool>()) return c["price_ps"].get<std::int64_t>();
      return std::int64_t{0};
    };
    for (const io::Json& r : found) {
      std::int64_t bytes = r["from_bytes"].get<std::int64_t>();
      EXPECT_EQ(r["price_ps"], price(bytes, true));
      if (op == std::string("send_recv")) {
        EXPECT_EQ(bytes, 8192) << "one message: the limit";
      }
      EXPECT_EQ(r["before_ps"], price(bytes - 1, true));
      EXPECT_GT(price(bytes, true), price(bytes, false)) << op << " " << bytes;
      EXPECT_EQ(price(bytes - 1, true), price(bytes - 1, false)) << op << " " << bytes;
    }
    question.insert(question.begin(), "explain");
    std::string out = ddpsim(question).out;
    EXPECT_TRUE(has(out, "the network asks the receiver first")) << out;
  }
  EXPECT_TRUE(
      explained({"--cluster", "dgx-h100", "--set", "cluster.hosts=2"})["rendezvous"].empty());
  EXPECT_FALSE(has(ddpsim({"explain", "--cluster", "dgx-h100", "--set", "cluster.hosts=2"}).out,
                   "asks the receiver"));
}

// A step beside other jobs is not explained; the sentence says what can be asked instead, and it
// can.
TEST(Explain, SaysWhatToDoWithOtherJobs) {
  Args beside{"explain",
              "--workload",
              "mlp784-50-10-cpu",
              "--cluster",
              "testbed-racks",
              "--set",
              "cluster.hosts=4",
              "--set",
              "backend=tcp",
              "--set",
              "ranks=2",
              "--set",
              "rank_order=[0,2]",
              "--set",
              R"(other_jobs=[{"workload":"mlp-cpu","plan":{"backend":"tcp"},"rank_order":[1,3]}])"};
  Outcome o = ddpsim(beside);
  EXPECT_EQ(o.code, 2);
  for (const char* part : {"--set other_jobs=[]", "ddpsim predict"})
    EXPECT_TRUE(has(o.err, part)) << o.err;
  beside.insert(beside.end(), {"--set", "other_jobs=[]"});
  EXPECT_EQ(ddpsim(beside).code, 0);
}

std::string changed(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// The file's channels decide: how many, which algorithms, and which links they cross.
TEST(Explain, TakesTheChannelsThatNcclFound) {
  std::string file = source_path("tests/data/nccl/graph_8gpus.xml");
  auto row = [](const io::Json& j, const char* algorithm) {
    for (const io::Json& c : j["candidates"])
      if (c["algorithm"] == algorithm && c["protocol"] == "simple") return c;
    return io::Json{};
  };
  auto chosen = [](const io::Json& j) {
    for (const io::Json& c : j["candidates"])
      if (c["chosen"].get<bool>()) return c["algorithm"].get<std::string>();
    return std::string();
  };
  io::Json own = explained({"--bytes", "1GiB", "--cluster", "hgx-h100"});
  io::Json found = explained({"--bytes", "1GiB", "--cluster", "hgx-h100", "--graph", file});
  EXPECT_EQ(row(own, "ring")["channels"], 24);
  EXPECT_EQ(row(found, "ring")["channels"], 8);
  EXPECT_EQ(chosen(own), "nvls");
  EXPECT_EQ(chosen(found), "ring");
  EXPECT_TRUE(row(found, "nvls").is_null());
  EXPECT_GT(row(found, "ring")["nccl_ps"], row(own, "ring")["nccl_ps"]);
  EXPECT_GT(row(found, "ring")["price_ps"], row(own, "ring")["price_ps"]);
  EXPECT_EQ(explained({"--op", "send_recv", "--cluster", "hgx-h100", "--graph",
                       file})["candidates"][0]["channels"],
            8);
  // A long path is on a line of its own.
  std::string page = ddpsim({"explain", "--cluster", "hgx-h100", "--graph", file}).out;
  EXPECT_TRUE(has(page, "channels of") && has(page, file)) << page;

  // A ring that goes from one CPU to the other and back at every step, instead of twice.
  namespace fs = std::filesystem;
  fs::path folder = fs::path(testing::TempDir()) / ("ddpsim_graph_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  std::string text = changed(io::read_file(file), "\"NVL\"", "\"SYS\"");
  auto written = [&](const std::string& name, const std::string& content) {
    io::write_file((folder / name).string(), content);
    return (folder / name).string();
  };
  std::string swapped =
      changed(changed(changed(text, "dev=\"1\"", "dev=\"x\""), "dev=\"4\"", "dev=\"1\""),
              "dev=\"x\"", "dev=\"4\"");
  swapped = changed(changed(changed(swapped, "dev=\"3\"", "dev=\"x\""), "dev=\"6\"", "dev=\"3\""),
                    "dev=\"x\"", "dev=\"6\"");
  io::Json near = explained(
      {"--bytes", "64MiB", "--cluster", "pcie-box-8", "--graph", written("near.xml", text)});
  io::Json far = explained(
      {"--bytes", "64MiB", "--cluster", "pcie-box-8", "--graph", written("far.xml", swapped)});
  EXPECT_EQ(row(near, "ring")["channels"], row(far, "ring")["channels"]);
  EXPECT_GT(row(far, "ring")["price_ps"].get<double>(),
            1.5 * row(near, "ring")["price_ps"].get<double>());

  // What `import nccl-graph` made of it says the same.
  std::string imported = (folder / "graph.json").string();
  ASSERT_EQ(ddpsim({"import", "nccl-graph", file, "--out", imported}).code, 0);
  EXPECT_EQ(
      explained({"--bytes", "1GiB", "--cluster", "hgx-h100", "--graph", imported})["candidates"],
      found["candidates"]);

  // Two GPUs a host, between hosts by the NICs that the file names.
  Args pairs{
      "--cluster", "dgx-a100", "--set", "cluster.hosts=2", "--set", "cluster.devices_per_host=2",
      "--set"};
  Args hosts = pairs;
  hosts.insert(hosts.end(), {"cluster.nics_per_host=2", "--bytes", "64MiB"});
  Args one_nic = pairs;
  one_nic.push_back("cluster.nics_per_host=1");
  Args with = hosts;
  with.insert(with.end(), {"--graph", source_path("tests/data/nccl/graph_2hosts.xml")});
  EXPECT_EQ(row(explained(with), "ring")["channels"], 4);
  EXPECT_NE(row(explained(hosts), "ring")["nccl_ps"], row(explained(with), "ring")["nccl_ps"]);
  // The file is not of sub-communicators.
  for (const io::Json& c : explained(with)["made_of_calls"])
    EXPECT_EQ(c["channels_found_by"], c["name"] == "direct" ? "nccl" : "ddpsim");
  for (const io::Json& c : explained(hosts)["made_of_calls"])
    EXPECT_EQ(c["channels_found_by"], "ddpsim");
  Args text_of = with;
  text_of.insert(text_of.begin(), "explain");
  EXPECT_TRUE(has(ddpsim(text_of).out, "; channels of ddpsim's own search\n"));
  text_of.resize(text_of.size() - 2);
  EXPECT_FALSE(has(ddpsim(text_of).out, "own search"));

  struct Bad {
    Args args;
    std::string file;
    const char* part;
  };
  std::string two = source_path("tests/data/nccl/graph_2hosts.xml");
  std::string twice = text;
  twice.replace(twice.rfind("dev=\"3\""), 7, "dev=\"2\"");
  for (const Bad& b :
       {Bad{{"--cluster", "hgx-h100"}, two, "2 GPUs"},
        Bad{{"--cluster", "hgx-h100", "--ranks", "4"}, file, "8 GPUs, and the ranks here are 4"},
        Bad{{"--cluster", "dgx-h100", "--set", "cluster.hosts=2", "--ranks", "12"},
            file,
            "8 GPUs, and the ranks here are 4"},
        Bad{{"--cluster", "dgx-h100", "--set", "cluster.hosts=2"}, file, "is of one host"},
        Bad{{"--cluster", "hgx-h100", "--ranks", "2"}, two, "is of several hosts"},
        Bad{one_nic, two, "names NIC 1"},
        Bad{{"--cluster", "hgx-h100"}, written("twice.xml", twice), "does not go through each"},
        Bad{{"--cluster", "hgx-h100"}, written("other.xml", "<graphs version=\"1\"/>"), "no graph"},
        Bad{{"--cluster", "hgx-h100"}, "/nowhere.xml", "no such file"}}) {
    Args args = b.args;
    args.insert(args.begin(), "explain");
    args.insert(args.end(), {"--graph", b.file});
    Outcome o = ddpsim(args);
    EXPECT_EQ(o.code, 2) << b.part << o.out;
    EXPECT_TRUE(has(o.err, b.part)) << b.part << "\n" << o.err;
    EXPECT_EQ(o.out, "");
  }
  fs::remove_all(folder);
}

TEST(Explain, RefusesWhatItCannotAnswer) {
  struct Bad {
    Args args;
    const char* part;
  };
  for (const Bad& b :
       {Bad{{"explain"}, "no cluster given"},
        Bad{{"explain", "--cluster", "hgx-h10"}, "hgx-h100"},
        Bad{{"explain", "--cluster", "ethernet-10g", "--backend", "nccl"}, "GPUs"},
        Bad{{"explain", "--cluster", "hgx-h100", "--op", "alreduce"}, "all_reduce"},
        Bad{{"explain", "--cluster", "hgx-h100", "--op", "gather"}, "all_to_all, send_recv"},
        Bad{{"explain", "--cluster", "hgx-h100", "--op", "barrier"}, "expected one of all_reduce"},
        Bad{{"explain", "--cluster", "ethernet-10g", "--op", "all_to_all"}, "GPUs"},
        Bad{{"explain", "--cluster", "fat-tree-h100", "--set", "cluster.hosts=1024", "--op",
             "all_to_all"},
            "4096 ranks at most"},
        Bad{{"explain", "--workload", "resnet50", "--cluster", "hgx-h100", "--graph", "x.xml"},
            "--graph"},
        Bad{{"explain", "--cluster", "hgx-h100", "--bytes", "25"}, "unit"},
        Bad{{"explain", "--cluster", "hgx-h100", "--bytes", "0B"}, "at least one byte"},
        Bad{{"explain", "--cluster", "hgx-h100", "--set", "cluster.hosts=1", "--ranks", "9"},
            "8 devices"},
        Bad{{"explain", "--cluster", "hgx-h100", "--ranks", "1"}, "two ranks"},
        Bad{{"explain", "--cluster", "hgx-h100", "--nccl", "two"}, "version"},
        Bad{{"explain", "--cluster", "hgx-h100", "--nccl", "2.7"}, "2.19"},
        Bad{{"explain", "--cluster", "hgx-h100", "--set", "NCCL_ALGO=rings"}, "none of ring"},
        Bad{{"explain", "--cluster", "hgx-h100", "--set", "NCCL_ALGOS=ring"}, "NCCL_ALGO"},
        Bad{{"explain", "--cluster", "hgx-h100", "--set", "nccl_algo=ring"},
            "variable of NCCL that ddpsim reads (did you mean NCCL_ALGO?)"},
        Bad{{"explain", "--cluster", "hgx-h100", "--set", "NCLL_ALGO=ring"},
            "variable of NCCL that ddpsim reads (did you mean NCCL_ALGO?)"},
        Bad{{"explain", "--cluster", "hgx-h100", "--set", "NCCL_DEBUG_SUBSYSTEMS=all"},
            "those are NCCL_ALGO, NCCL_PROTO"},
        Bad{{"predict", "--workload", "resnet50", "--cluster", "hgx-h100", "--set",
             "nccl_algo=ring"},
            "variable of NCCL that ddpsim reads (did you mean NCCL_ALGO?)"},
        Bad{{"predict", "--workload", "resnet50", "--cluster", "hgx-h100", "--set",
             "NCCL_ALG0=ring"},
            "variable of NCCL that ddpsim reads (did you mean NCCL_ALGO?)"},
        Bad{{"explain", "--workload", "resnet50", "--cluster", "hgx-h100", "--set",
             "NCCL_ALG0=ring"},
            "variable of NCCL that ddpsim reads (did you mean NCCL_ALGO?)"},
        Bad{{"sweep", "--workload", "resnet50", "--cluster", "hgx-h100", "--axis",
             "nccl_algo=ring,tree"},
            "--axis nccl_algo: is not a variable of NCCL"},
        Bad{{"explain", "--cluster", "hgx-h100", "--set", "NCCL_CROSS_NIC=3"}, "from 0 to 2"},
        Bad{{"explain", "--cluster", "hgx-h100", "--set", "NCCL_SOCKET_NTHREADS=17"},
            "from 0 to 16"},
        Bad{{"explain", "--cluster", "pcie-box", "--set", "NCCL_P2P_LEVEL=FAR"}, "PIX, PXB"},
        Bad{{"explain", "--cluster", "hgx-h100", "--set", "NCCL_P2P_DISABLE=1"}, "draw PCIe"},
        Bad{{"explain", "--cluster", "rtx-2080-ti-10g", "--set", "NCCL_SHM_DISABLE=1"},
            "through the host's network interface"},
        Bad{{"predict", "--workload", "resnet50", "--cluster", "rtx-2080-ti-10g", "--set",
             "NCCL_SHM_DISABLE=1"},
            "through the host's network interface"},
        Bad{{"explain", "--cluster", "pcie-box", "--set", "cluster.nccl.nic_vendor=intel"},
            "nic_vendor"},
        Bad{{"explain", "--cluster", "hgx-h100", "--set", "NCCL_ALGO=pat"}, "leave nothing"},
        Bad{{"explain", "--cluster", "hgx-h100", "--set", "bucket_cap_mb=3"},
            "none of a cluster, a profile or NCCL's variables"},
        Bad{{"explain", "--cluster", "hgx-h100", "--profile", "h100"}, "did you mean \"h100-pcie"},
        Bad{{"topology", "hgx-h100"}, "ddpsim topology show NAME"},
        Bad{{"fit", "--backend", "nccl-tests"}, "for example --base h100-sxm.datasheet"},
        Bad{{"explain", "--cluster", "hgx-h100", "--set", "environment.NCCL_ALG0=ring"},
            "did you mean NCCL_ALGO?"},
        Bad{{"export", "nccl-tuner"}, "--cluster"},
        Bad{{"export", "nccl-tuner", "--cluster", "hgx-h100", "--set", "NCCL_ALGO=collnetchain"},
            "leaves nothing"}}) {
    Outcome o = ddpsim(b.args);
    EXPECT_EQ(o.code, 2) << o.out;
    EXPECT_TRUE(has(o.err, b.part)) << b.part << "\n" << o.err;
    EXPECT_EQ(o.out, "");
  }
}

TEST(ExportTuner, WritesPricesWithExplicitChannels) {
  Outcome o = ddpsim({"export", "nccl-tuner", "--cluster", "hgx-h100"});
  ASSERT_EQ(o.code, 0) << o.err;
  std::vector<report::TunerRow> rows = tuner_rows(o.out);
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(report::validate(rows).message, "");
  for (const report::TunerRow& r : rows) {
    EXPECT_GE(r.channels, 1);
    EXPECT_GE(r.ranks, 2);
    EXPECT_LE(r.ranks, 8);
  }
}

// A table made of the mechanism itself, with a known latency and efficiency: the fit finds them.
TEST(FitNcclTests, FindsWhatATableWasMadeWith) {
  namespace fs = std::filesystem;
  fs::path folder = fs::path(testing::TempDir()) / ("ddpsim_fit_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  io::Json run = read_json("calib/published/alps_gh200_g00004_n0001_slingshot.json");
  io::Json profile = read_json("calib/profiles/gh200-96gb.datasheet.json");
  profile["transports"]["nvlink"]["step_factor"] = 1.5;
  profile["transports"]["nvlink"]["efficiency"]["mid"] = 0.824 * 0.9;
  std::string other = (folder / "other.json").string();
  io::write_file(other, profile.dump());
  for (io::Json& s : run["samples"]) {
    Outcome o = ddpsim({"explain", "--cluster", "gh200x4-slingshot", "--ranks", "4", "--nccl",
                        "2.23.4", "--profile", other, "--bytes",
                        std::to_string(s["parameters"]["bytes"].get<std::int64_t>()) + "B",
                        "--format", "json"});
    ASSERT_EQ(o.code, 0) << o.err;
    io::Json answer = io::parse_json(o.out, "stdout");
    for (const io::Json& c : answer["candidates"])
      if (c["chosen"].get<bool>()) s["durations_ps"] = io::Json::array({c["price_ps"]});
  }
  io::write_file((folder / "table.json").string(), run.dump());
  fs::path runs = folder / "runs";
  fs::create_directories(runs);
  fs::rename(folder / "table.json", runs / "table.json");
  std::string out = (folder / "fitted.json").string();
  Outcome o = ddpsim({"fit", "--backend", "nccl-tests", "--runs", runs.string(), "--base",
                      "gh200-96gb.datasheet", "--name", "fitted", "--out", out});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(has(o.out, "steps x 1.50, efficiency x 0.90")) << o.out;
  // The fit's own errors, those of a fit that does not see the size, and the table's neighbours are
  // three things: a table that the mechanism made is fitted exactly also without a size, and no
  // line between two sizes finds the third.
  double unseen = 0, line = 0;
  std::size_t sizes = 0, lines = 0;
  io::Json fitted = io::parse_json(io::read_file(out), out);
  for (const io::Json& r : fitted["fit"]["residuals"]) {
    EXPECT_LT(std::abs(r["error"].get<double>()), 1e-4);
    unseen = std::max(unseen, std::abs(r["without_size"].get<double>()));
    ++sizes;
    if (!r.contains("interpolated")) continue;
    line = std::max(line, std::abs(r["interpolated"].get<double>()));
    ++lines;
  }
  EXPECT_LT(unseen, 1e-4);
  EXPECT_GT(line, 0.01);
  EXPECT_EQ(sizes, lines + 2);
  for (const char* part :
       {"\nerror ", "what this profile predicts for the sizes that it was fitted to",
        "\nsize left out ", "what a profile fitted without that size predicts for it",
        "\ninterpolated ", "no profile: the line between the table's own sizes beside it"})
    EXPECT_TRUE(has(o.out, part)) << part << "\n" << o.out;
  // The profile says what it is, wherever it is named.
  EXPECT_EQ(fitted["transports"]["nvlink"]["basis"], "published");
  EXPECT_EQ(fitted["compute"]["basis"], "datasheet");
  for (const Args& args : {Args{"explain", "--cluster", "gh200x4-slingshot", "--profile", out},
                           Args{"predict", "--workload", "resnet50", "--cluster",
                                "gh200x4-slingshot", "--profile", out}}) {
    Outcome named = ddpsim(args);
    EXPECT_TRUE(has(named.out, "fitted to published tables (nvlink), the rest datasheet"))
        << named.out << named.err;
  }
  Outcome bad = ddpsim(
      {"fit", "--backend", "nccl-tests", "--runs", runs.string(), "--base", "h100-sxm.datasheet"});
  EXPECT_EQ(bad.code, 2);
  EXPECT_TRUE(has(bad.err, "h100-sxm.datasheet")) << bad.err;
  EXPECT_EQ(ddpsim({"fit", "--backend", "nccl-tests", "--runs", runs.string(), "--base",
                    "testbed.datasheet"})
                .code,
            2);
  fs::remove_all(folder);
}

TEST(ValidateCollectives, RefusesWhatItCannotJudge) {
  EXPECT_EQ(ddpsim({"validate", "--published", "/nowhere"}).code, 2);
  EXPECT_EQ(ddpsim({"validate", "--collectives", "--published", "/nowhere"}).code, 2);
  EXPECT_EQ(ddpsim({"validate", "--collectives", "--format", "junit"}).code, 2);
  for (const char* flag : {"--budget", "--profile", "--without"})
    EXPECT_EQ(ddpsim({"validate", "--collectives", flag, "x"}).code, 2) << flag;
  EXPECT_EQ(ddpsim({"validate", "--collectives", "--published", source_path("workloads")}).code, 2);
}

}  // namespace
}  // namespace ddpsim::test
