// ddpsim import and export: what comes of the fixtures in tests/data/nccl (written by hand, in the
// formats of several versions), and of what is no such file.
#include <algorithm>
#include <filesystem>
#include <ostream>
#include <set>

#include <gtest/gtest.h>
#include <unistd.h>

#include "sim/io/files.h"
#include "sim/io/nccl_tests.h"
#include "sim/io/nccl_xml.h"
#include "sim/report/nccl_tuner.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

namespace fs = std::filesystem;
using io::Json;

std::string fixture(const std::string& name) {
  return source_path("tests/data/nccl/" + name);
}

Outcome import_tests(const std::string& name, std::vector<std::string> more = {}) {
  std::vector<std::string> args{"import", "nccl-tests", fixture(name)};
  args.insert(args.end(), more.begin(), more.end());
  return ddpsim(args);
}

ddpsim::Run run_of(const Outcome& o) {
  EXPECT_EQ(o.code, 0) << o.err;
  return io::read_run(io::parse_json(o.out, "out"), "out");
}

std::int64_t value(const Sample& s, const char* name) {
  return s.parameters.at(name);
}

TEST(Import, AModernLogOfOneProcess) {
  Outcome o =
      import_tests("all_reduce_modern.txt", {"--cluster", "hgx-h100", "--source", "a fixture"});
  EXPECT_EQ(o.err, "");
  ddpsim::Run run = run_of(o);
  EXPECT_EQ(run.kind, RunKind::Measured);
  EXPECT_EQ(run.evidence, EvidenceClass::Published);
  ASSERT_TRUE(run.collectives);
  const CollectiveSetting& c = *run.collectives;
  EXPECT_EQ(c.op, "all_reduce");
  EXPECT_EQ(c.ranks, 8);
  EXPECT_EQ(c.gpus_per_process, 8);
  EXPECT_EQ(c.hosts, 1);
  EXPECT_EQ(c.gpu, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(c.nccl, "2.28.9");
  EXPECT_EQ(c.algorithm, "");
  EXPECT_EQ(c.cluster, "hgx-h100");
  EXPECT_EQ(c.source, "a fixture");
  ASSERT_EQ(run.samples.size(), 10u);
  const Sample& s = run.samples.front();
  EXPECT_EQ(s.op, "all_reduce");
  EXPECT_EQ(value(s, "bytes"), 1048576);
  EXPECT_EQ(value(s, "count"), 262144);
  EXPECT_EQ(value(s, "element_bytes"), 4);
  EXPECT_EQ(value(s, "in_place"), 0);
  EXPECT_EQ(value(s, "ranks"), 8);
  EXPECT_EQ(s.durations, std::vector<Duration>{{41'070'000}});
  EXPECT_EQ(value(run.samples[1], "in_place"), 1);
  EXPECT_TRUE(run.skipped.empty());
}

// Markdown takes a '#' at the beginning of a line for its own.
TEST(Import, ALogThatLostItsHashes) {
  for (const char* name : {"all_reduce_modern.txt", "all_reduce_old.txt", "all_gather_early.txt"}) {
    std::string text = io::read_file(fixture(name));
    std::string without;
    bool begins = true;
    for (char c : text) {
      if (!begins || c != '#') without += c;
      begins = c == '\n';
    }
    auto read = [&](const std::string& log) {
      io::NcclTestsSetting s;
      s.file = "f";
      return io::run_of(io::read_nccl_tests(log, "f"), s);
    };
    const io::NcclTestsRun one = read(text);
    const io::NcclTestsRun other = read(without);
    EXPECT_EQ(io::write_run(one.run).dump(), io::write_run(other.run).dump()) << name;
    EXPECT_EQ(one.notes, other.notes);
  }
}

// Without MPI each process is a job of its own, and nothing goes between them.
TEST(Import, ProcessesThatAreNoJob) {
  const std::string log =
      "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1048576 step: 2(factor)\n"
      "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1048576 step: 2(factor)\n"
      "#  Rank  0 Group  0 Pid    127 on     node0 device  0 [0x8d] NVIDIA A10G\n"
      "#  Rank  0 Group  0 Pid    139 on     node1 device  0 [0x8d] NVIDIA A10G\n"
      " 1048576 262144 float sum -1 44.6 23.51 0.00 0 44.6 23.51 0.00 0\n"
      " 1048576 262144 float sum -1 44.6 23.51 0.00 0 44.6 23.51 0.00 0\n";
  io::NcclTestsSetting s;
  s.op = "all_reduce";
  s.file = "f";
  try {
    io::run_of(io::read_nccl_tests(log, "f"), s);
    FAIL() << "two runs of one rank each are taken for one";
  } catch (const InputError& e) {
    EXPECT_TRUE(has(e.what, "2 processes each call themselves rank 0")) << e.what;
    EXPECT_TRUE(has(e.what, "built without MPI")) << e.what;
  }
}

TEST(Import, AnOldLogWithoutRoot) {
  ddpsim::Run run =
      run_of(import_tests("all_reduce_old.txt", {"--nccl", "2.4.2", "--evidence", "collective"}));
  EXPECT_EQ(run.evidence, EvidenceClass::Collective);
  EXPECT_EQ(run.samples.size(), 10u);
  EXPECT_EQ(run.collectives->ranks, 4);
  EXPECT_EQ(run.collectives->nccl, "2.4.2");
  EXPECT_EQ(run.collectives->op, "all_reduce");  // by its columns
}

TEST(Import, PrefixesColoursFencesAndTheCommandLine) {
  Outcome o = import_tests("all_gather_mpirun.txt");
  EXPECT_EQ(o.err, "");
  ddpsim::Run run = run_of(o);
  EXPECT_EQ(run.samples.size(), 8u);
  EXPECT_EQ(run.collectives->op, "all_gather");
  EXPECT_EQ(run.collectives->hosts, 2);
  EXPECT_EQ(run.collectives->gpus_per_process, 1);
  EXPECT_EQ(run.collectives->algorithm, "ring");
  EXPECT_EQ(run.collectives->environment.at("NCCL_ALGO"), "Ring");
  EXPECT_EQ(run.origin.hosts, "machines");
}

TEST(Import, RowsThatNcclsOwnLinesSplit) {
  Outcome o = import_tests("all_reduce_interleaved.txt");
  EXPECT_EQ(o.err, "");
  ddpsim::Run run = run_of(o);
  ASSERT_EQ(run.samples.size(), 6u);
  EXPECT_EQ(run.samples[0].durations.front().ps, 12'300'000);
  EXPECT_EQ(run.samples[3].durations.front().ps, 13'200'000);
  EXPECT_EQ(run.collectives->protocol, "simple");
  EXPECT_EQ(run.collectives->nccl, "2.21.5+cuda12.4");
  std::vector<CollectiveChoice> chosen{
      {4096, "ring", "simple", 1}, {8192, "ring", "simple", 2}, {16384, "tree", "simple", 4}};
  EXPECT_EQ(run.collectives->chosen, chosen);
}

TEST(Import, ATruncatedLogSaysWhatItLacks) {
  Outcome o = import_tests("broadcast_truncated.txt", {"--op", "broadcast"});
  ddpsim::Run run = run_of(o);
  EXPECT_EQ(run.samples.size(), 2u);
  for (const char* says :
       {"line 6 is dropped: 4096 bytes in 10.5 us are 0.39 GB/s, not 0.93", "line 7 is dropped",
        "3 of 4 declared sizes are missing", "the footer is missing"})
    EXPECT_NE(o.err.find(says), std::string::npos) << says << "\n" << o.err;
  EXPECT_EQ(run.skipped.size(), 4u);
}

// Cut anywhere in its table, a log gives the rows that are whole, and stderr says that sizes and
// the footer are missing.
TEST(Import, ALogCutAnywhereYieldsItsRows) {
  const std::string log = io::read_file(fixture("all_reduce_modern.txt"));
  const std::size_t table = log.find("     1048576");
  const std::string file = testing::TempDir() + "ddpsim_cut_" + std::to_string(::getpid()) + ".txt";
  for (std::size_t end = log.find('\n', table) + 1; end <= log.find("# Out of bounds"); end += 13) {
    SCOPED_TRACE(end);
    std::string text = log.substr(0, end);
    io::write_file(file, text);
    Outcome o = ddpsim({"import", "nccl-tests", file});
    std::size_t rows = run_of(o).samples.size();
    auto whole = static_cast<std::size_t>(
        std::count(text.begin() + static_cast<std::ptrdiff_t>(table), text.end(), '\n'));
    // Out of place and in place; of the line in which it ends, what can be read.
    EXPECT_GE(rows, 2 * whole);
    EXPECT_LE(rows, 2 * whole + (text.back() == '\n' ? 0 : 2));
    EXPECT_EQ(o.err.find("of 5 declared sizes are missing") != std::string::npos, rows <= 8)
        << o.err;
    EXPECT_NE(o.err.find("the footer is missing"), std::string::npos) << o.err;
  }
  fs::remove(file);
}

TEST(Import, PerIterationColumnsAndTimestamps) {
  ddpsim::Run run = run_of(import_tests("reduce_scatter_per_iteration.txt"));
  ASSERT_EQ(run.samples.size(), 4u);
  EXPECT_EQ(run.samples[1].durations.front().ps, 20'100'000);
  EXPECT_EQ(value(run.samples[0], "element_bytes"), 2);
  EXPECT_EQ(run.collectives->op, "reduce_scatter");
}

// Where algbw was less than size / time.
TEST(Import, AnAllGatherOfAnEarlyVersion) {
  Outcome o = import_tests("all_gather_early.txt");
  ddpsim::Run run = run_of(o);
  EXPECT_EQ(o.err.find("is dropped"), std::string::npos) << o.err;
  EXPECT_EQ(o.err.find("missing"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("1 rows of 0 bytes are left out"), std::string::npos) << o.err;
  ASSERT_EQ(run.samples.size(), 4u);
  EXPECT_EQ(run.samples[2].durations.front().ps, 186'400'000);
  EXPECT_EQ(run.collectives->ranks, 3);
  EXPECT_EQ(run.collectives->op, "all_gather");  // by the command line
  Outcome wrong = import_tests("all_gather_early.txt", {"--ranks", "8"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("as all_gather of 3 ranks has it; --ranks says 8"), std::string::npos)
      << wrong.err;
}

TEST(Import, TimesOfTheHostAreNoTimesOfTheCollective) {
  Outcome o = import_tests("sendrecv_host_time.txt");
  EXPECT_EQ(run_of(o).samples.front().op, "send_receive_host_time");
  EXPECT_NE(o.err.find("host's (-C)"), std::string::npos);
}

TEST(Import, JsonWithEachIteration) {
  Outcome o = import_tests("all_reduce.json");
  EXPECT_EQ(o.err, "");
  ddpsim::Run run = run_of(o);
  ASSERT_EQ(run.samples.size(), 4u);
  std::vector<Duration> three{{7'623'456}, {8'123'456}, {8'623'456}};
  EXPECT_EQ(run.samples[0].durations, three);
  EXPECT_EQ(run.samples[1].durations.size(), 1u);
  // Two processes of two GPUs; only the first of each is listed.
  EXPECT_EQ(run.collectives->ranks, 4);
  EXPECT_EQ(run.collectives->gpus_per_process, 2);
  EXPECT_EQ(run.collectives->hosts, 2);
  EXPECT_EQ(run.collectives->algorithm, "tree");
  EXPECT_EQ(run.collectives->environment.count("HOME"), 0u);  // nobody else's business
}

TEST(Import, OneOfSeveralForcedTables) {
  ddpsim::Run run = run_of(import_tests("sweep.csv", {"--forced", "ALGO=Tree", "--ranks", "4"}));
  EXPECT_EQ(run.samples.size(), 1u);  // no time in place
  EXPECT_EQ(run.collectives->algorithm, "tree");
  EXPECT_EQ(run_of(import_tests("sweep.csv", {"--forced", "PROTO=LL", "--ranks", "4"}))
                .collectives->protocol,
            "ll");
  Outcome inferred = import_tests("sweep.csv", {"--forced", "ALGO=Ring"});
  EXPECT_EQ(run_of(inferred).collectives->ranks, 4);
  EXPECT_NE(inferred.err.find("busbw / algbw is that of 4"), std::string::npos);
}

TEST(Import, WhatIsShippedIsWhatTheImporterWrites) {
  int count = 0;
  for (const std::string& file : io::list_files(source_path("calib/published"), {".json"})) {
    std::string text = io::read_file(file);
    ddpsim::Run run = io::read_run(io::parse_json(text, file), file);
    EXPECT_EQ(io::write_run(run).dump(1) + "\n", text) << file;
    ASSERT_TRUE(run.collectives) << file;
    EXPECT_EQ(run.evidence, EvidenceClass::Published);
    EXPECT_FALSE(run.collectives->cluster.empty()) << file;
    EXPECT_FALSE(run.collectives->source.empty()) << file;
    EXPECT_GT(run.collectives->hosts, 0) << file;
    for (const Sample& s : run.samples)
      EXPECT_EQ(value(s, "ranks"), run.collectives->ranks) << file;
    ++count;
  }
  EXPECT_EQ(count, 43);
}

TEST(Import, ShowRunPrintsIt) {
  std::string file = source_path("calib/published/h100_nvswitch_g4_Ring.json");
  Outcome table = ddpsim({"show", "run", file});
  ASSERT_EQ(table.code, 0) << table.err;
  for (const char* says : {"measured (published)  nccl-tests/all_reduce/hgx-h100/n4/ring",
                           "all_reduce on 4 ranks", "2.29.2; algorithm ring", "8589934592"})
    EXPECT_NE(table.out.find(says), std::string::npos) << says;
  EXPECT_EQ(ddpsim({"show", "run", file, "--format", "json"}).out, io::read_file(file));
  EXPECT_TRUE(
      ddpsim({"show", "run", file, "--format", "csv"})
          .out.starts_with(
              "op,bytes,count,element_bytes,in_place,ranks,readings,median_us,least_us,most_us\n"));
  EXPECT_EQ(ddpsim({"show", "run"}).code, 2);
}

TEST(Import, ATopologyBehindNvswitch) {
  Outcome o = ddpsim({"import", "nccl-topo", fixture("dgx_a100_topo.xml")});
  ASSERT_EQ(o.code, 0) << o.err;
  // NCCL's file has no latencies: one line says so, and the cluster's source.
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  for (const char* part : {"latencies", "0 ps", "--set cluster.link.latency="})
    EXPECT_NE(o.err.find(part), std::string::npos) << o.err;
  EXPECT_NE(io::parse_json(o.out, "out")["source"].get<std::string>().find(
                "latencies of links are not in it"),
            std::string::npos);
  EXPECT_EQ(o.out, io::read_file(fixture("expected/dgx_a100_topo.json")));
}

TEST(Import, ATopologyOfNvlinkBridges) {
  Outcome o = ddpsim({"import", "nccl-topo", fixture("nvlink_bridge_topo.xml")});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("link_speed is not said, 8 GT/s"), std::string::npos);
  EXPECT_EQ(o.out, io::read_file(fixture("expected/nvlink_bridge_topo.json")));
  Json more = io::parse_json(ddpsim({"import", "nccl-topo", fixture("nvlink_bridge_topo.xml"),
                                     "--hosts", "16", "--name", "pair", "--profile", "mine"})
                                 .out,
                             "out");
  EXPECT_EQ(more["hosts"], 16);
  EXPECT_EQ(more["name"], "pair");
  EXPECT_EQ(more["device"]["profile"], "mine");
}

// What weighs in NCCL's choice besides the wires: the CPUs' make, and what the network says.
// NCCL takes, and writes, 10 Gb/s where it does not know a NIC's speed.
TEST(Import, ATopologyWhoseNicsAreOfNoKnownSpeed) {
  auto notes = [](const std::string& nic) {
    const std::string xml =
        "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\">"
        "<pci busid=\"0\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\">"
        "<gpu dev=\"0\" sm=\"90\" rank=\"0\"/></pci>" +
        nic + "</cpu></system>";
    io::NcclTopoSetting s;
    s.file = "f";
    std::string out;
    for (const std::string& note : io::read_nccl_topo(xml, s).notes) out += note + "\n";
    return out;
  };
  EXPECT_TRUE(has(notes(R"(<nic><net name="eth0" dev="0"/></nic>)"), "10 Gb/s are taken"));
  EXPECT_TRUE(has(notes(R"(<nic><net name="eth0" dev="0" speed="-1"/></nic>)"), "10 Gb/s are"));
  const std::string unsure = notes(R"(<nic><net name="eth0" dev="0" speed="10000"/></nic>)");
  EXPECT_TRUE(has(unsure, "NIC eth0 is of speed 10000 (10 Gb/s), which NCCL also writes"))
      << unsure;
  EXPECT_TRUE(has(unsure, "--set cluster.link.bandwidth=")) << unsure;
  EXPECT_TRUE(has(notes(R"(<nic><net name="mlx5_0" dev="0" speed="100"/></nic>)"),
                  "speed 100, which is of Mb/s as NCCL writes it: 0.1 Gb/s"));
  EXPECT_TRUE(has(notes("<nic/>"), "without a <net> is left out"));
  EXPECT_FALSE(has(notes(R"(<nic><net name="mlx5_0" dev="0" speed="100000"/></nic>)"), "NIC"));
}

TEST(Import, ATopologySaysItsCpusAndItsNetworksLatency) {
  const std::string xml = io::read_file(fixture("dgx_a100_topo.xml"));
  auto facts_of = [](std::string text, const std::string& from, const std::string& to) {
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (!from.empty()) text.replace(at, from.size(), to);
    io::NcclTopoSetting setting;
    setting.file = "topo.xml";
    return io::read_nccl_topo(text, setting).cluster["nccl"].dump();
  };
  EXPECT_EQ(facts_of(xml, "", ""), "{\"cpu\":\"amd\"}");
  EXPECT_EQ(facts_of(xml, "latency=\"0.000000\"", "latency=\"75.500000\""),
            "{\"cpu\":\"amd\",\"net_latency\":\"75.5us\"}");
  EXPECT_EQ(facts_of(xml, "AuthenticAMD", "GenuineIntel"), "{\"cpu\":\"mixed\"}");
}

TEST(Import, ATopologysGpusAreOfTheProfileThatStandsForTheirCapability) {
  const std::string xml = io::read_file(fixture("nvlink_bridge_topo.xml"));
  for (auto [sm, profile] :
       {std::pair{"70", "v100-sxm2.datasheet"}, std::pair{"80", "a100-sxm4-80gb.datasheet"},
        std::pair{"90", "h100-sxm.datasheet"}, std::pair{"100", "b200.datasheet"}}) {
    std::string text = xml;
    for (std::size_t at; (at = text.find("sm=\"70\"")) != std::string::npos;)
      text.replace(at, 7, std::string("sm= \"") + sm + "\"");
    io::NcclTopoSetting setting;
    setting.file = "topo.xml";
    EXPECT_EQ(io::read_nccl_topo(text, setting).cluster["device"]["profile"], profile);
  }
}

TEST(Import, AGraphComesBack) {
  Outcome o = ddpsim({"import", "nccl-graph", fixture("graph_2hosts.xml")});
  ASSERT_EQ(o.code, 0) << o.err;
  nccl::Graphs g = io::read_nccl_graphs(io::parse_json(o.out, "out"), "out");
  EXPECT_EQ(io::write_nccl_graphs(g).dump(1) + "\n", o.out);
  const nccl::ChannelGraph& ring = g[nccl::GraphId::Ring];
  EXPECT_EQ(ring.channels, 2);
  EXPECT_EQ(ring.bw_intra, BytesPerSecond{20e9});
  EXPECT_EQ(ring.bw_inter, BytesPerSecond{12.5e9});
  EXPECT_EQ(ring.latency_inter.ps, 1'500'000);
  EXPECT_EQ(ring.type_intra, nccl::PathType::Nvl);
  EXPECT_EQ(ring.type_inter, nccl::PathType::Pxb);
  EXPECT_EQ(ring.order, (std::vector<std::vector<int>>{{0, 10}, {10, 0}}));
  EXPECT_EQ(ring.nics, (std::vector<std::array<int, 2>>{{0, 0}, {1, 1}}));
  EXPECT_EQ(g[nccl::GraphId::Tree].bw_inter,
            BytesPerSecond{20e9});  // as speedintra, where it is not said
  EXPECT_TRUE(g[nccl::GraphId::Tree].nics.empty());
  EXPECT_EQ(g[nccl::GraphId::CollnetChain].channels, 0);
  EXPECT_FALSE(g[nccl::GraphId::Nvls].same_channels);
  // All channels by NIC 0 is a host of one NIC, not one without.
  std::string one = io::read_file(fixture("graph_2hosts.xml"));
  for (std::size_t at; (at = one.find("0x1")) != std::string::npos;) one.replace(at, 3, "0");
  g = io::read_nccl_graph_xml(one, "f");
  EXPECT_EQ(g[nccl::GraphId::Ring].nics, (std::vector<std::array<int, 2>>{{0, 0}, {0, 0}}));
}

TEST(Export, ATunerConfigurationOfMeasurements) {
  Outcome o = ddpsim({"export", "nccl-tuner", "--from", fixture("tuner_measured.csv")});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("allreduce,0,65536,tree,ll,2,1,8\nallreduce,65537,9223372036854775807,nvls,"
                       "simple,16,1,8\n# What no line above matches.\nallgather,0,"),
            std::string::npos)
      << o.out;
  EXPECT_EQ(o.out.find(",-1,"), std::string::npos);
  auto rows = tuner_rows(o.out);
  EXPECT_EQ(rows.size(), 3u);
  EXPECT_FALSE(report::validate(rows)) << report::validate(rows).message;
  // The larger bandwidth is the better one.
  EXPECT_EQ(tuner_rows(ddpsim({"export", "nccl-tuner", "--from", fixture("tuner_measured.csv"),
                               "--metric", "bandwidth_gbps"})
                           .out),
            rows);
}

// --- what is refused
// ------------------------------------------------------------

struct Bad {
  const char* name;
  std::vector<std::string> command;  // FILE is the file of `text`
  std::string text;
  std::string says;
};

std::string with(const std::string& name, const std::string& from, const std::string& to) {
  std::string text = io::read_file(fixture(name));
  auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}
std::string deep(int n) {
  std::string out = "<system version=\"1\"><cpu>";
  for (int i = 0; i < n; ++i) out += "<pci class=\"0x060400\">";
  for (int i = 0; i < n; ++i) out += "</pci>";
  return out + "</cpu></system>";
}

const std::vector<std::string> kTests{"import", "nccl-tests", "FILE"};
const std::vector<std::string> kTopo{"import", "nccl-topo", "FILE"};
const std::vector<std::string> kGraph{"import", "nccl-graph", "FILE"};
const std::vector<std::string> kTuner{"export", "nccl-tuner", "--from", "FILE"};

std::vector<Bad> bad_cases() {
  const std::string csv_header =
      "size_bytes,count,type,redop,root,oop_time_us,oop_algbw_GBs,oop_busbw_GBs,oop_err,ip_time_us,"
      "ip_algbw_GBs,ip_busbw_GBs,ip_err\n";
  const std::string tuner_header =
      "collective,size_bytes,algorithm,protocol,channels,nodes,ranks,latency_us\n";
  const std::string modern = io::read_file(fixture("all_reduce_modern.txt"));
  return {
      // Logs.
      {"LogEmpty", kTests, "", "is empty"},
      {"LogBlank", kTests, " \n\n", "is empty"},
      {"LogOfProse", kTests, "we ran it and it was fast\n", "no row of nccl-tests"},
      {"LogHeaderOnly", kTests, modern.substr(0, modern.find("     1048576")),
       "no row of nccl-tests"},
      {"LogRanksContradictDevices", kTests, with("all_reduce_modern.txt", "#  Rank  7 ", "#  x "),
       "as all_reduce of 8 ranks has it; its list of devices has 7"},
      {"LogRanksContradictFlag", kTests + std::vector<std::string>{"--ranks", "4"}, modern,
       "as all_reduce of 8 ranks has it; --ranks says 4"},
      {"LogOtherOperation", kTests + std::vector<std::string>{"--op", "all_gather"}, modern,
       "the file holds all_reduce"},
      {"LogOperationMistyped", kTests + std::vector<std::string>{"--op", "all_reduse"}, modern,
       "did you mean \"all_reduce\"?"},
      {"LogTwoOperations", kTests,
       modern + io::read_file(fixture("reduce_scatter_per_iteration.txt")), "choose one with --op"},
      {"LogTwoSettings", kTests, modern + with("all_reduce_modern.txt", "#  Rank  7 ", "#  x "),
       "on 8 ranks and on 7 ranks"},
      {"LogTwoTablesWithoutDevices", kTests,
       "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n1048576 "
       "262144 float sum -1 40.00 26.21 26.21 0 40.00 26.21 26.21 0\n"
       "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n1048576 "
       "262144 float sum -1 50.00 20.97 20.97 0 50.00 20.97 20.97 0\n",
       "split it"},
      {"LogUnnamedOperation", kTests, io::read_file(fixture("broadcast_truncated.txt")),
       "say it with --op"},
      {"LogNoRanks", kTests + std::vector<std::string>{"--op", "broadcast"},
       "1024 256 float 9.50 0.11 0.11 0 9.40 0.11 0.11 0\n", "say how many with --ranks"},
      {"LogAllDamaged", kTests + std::vector<std::string>{"--ranks", "2"},
       "4096 1024 float sum 10.50 0.93 0.93 0 10.40 0.93 0.93 0\n", "no row of nccl-tests is left"},
      {"LogRanksZero", kTests + std::vector<std::string>{"--ranks", "0"}, modern,
       "at least one rank"},
      {"LogHostsZero", kTests + std::vector<std::string>{"--hosts", "0"}, modern, "--hosts"},
      {"LogSetting", kTests + std::vector<std::string>{"--set", "NCCL_ALGO"}, modern,
       "expected KEY=VALUE"},
      {"LogEvidence", kTests + std::vector<std::string>{"--evidence", "system"}, modern,
       "expected published"},
      {"LogForcedNothing", kTests + std::vector<std::string>{"--forced", "ALGO=Ring"}, modern,
       "forces nothing"},
      // JSON.
      {"JsonTruncated", kTests, io::read_file(fixture("all_reduce.json")).substr(0, 900),
       "not valid JSON"},
      {"JsonWithoutResults", kTests, "{\"version\": 3}", "no \"results\""},
      {"JsonEmptyResults", kTests, "{\"results\": []}", "nothing was measured"},
      {"JsonSizeIsText", kTests, with("all_reduce.json", "\"size\": 1024", "\"size\": \"1024\""),
       "#/results/0/size: expected a whole number"},
      {"JsonNegativeSize", kTests, with("all_reduce.json", "\"size\": 1024", "\"size\": -1024"),
       "is not negative"},
      {"JsonResultsIsObject", kTests, "{\"results\": {}}", "expected a list"},
      // CSV.
      {"CsvUnknownColumn", kTests, "size_bytes,cuont,type\n", "did you mean \"count\"?"},
      {"CsvMissingColumn", kTests, "size_bytes,count,type\n", "column \"oop_time_us\" is missing"},
      {"CsvColumnTwice", kTests, "size_bytes,count,type,count\n", "appears twice"},
      {"CsvForcedKindAlone", kTests, "forced_kind," + csv_header, "go together"},
      {"CsvHeaderOnly", kTests, csv_header, "has a header and no row"},
      {"CsvChoose", kTests, io::read_file(fixture("sweep.csv")),
       "holds ALGO=Ring, ALGO=Tree, PROTO=LL; choose one with --forced"},
      {"CsvForcedOther", kTests + std::vector<std::string>{"--forced", "ALGO=PAT"},
       io::read_file(fixture("sweep.csv")), "the file holds ALGO=Ring"},
      {"CsvNoNumbers", kTests + std::vector<std::string>{"--ranks", "2"},
       csv_header + "a,b,float,sum,-1,1,1,1,0,1,1,1,0\n", "no row of nccl-tests is left"},
      // Topologies.
      {"TopoEmpty", kTopo, "", "is empty"},
      {"TopoNoXml", kTopo, "hello", "not valid XML"},
      {"TopoTruncated", kTopo, io::read_file(fixture("dgx_a100_topo.xml")).substr(0, 1200),
       "not valid XML (truncated?)"},
      {"TopoBinary", kTopo, std::string("<system>\0</system>", 18), "binary data"},
      {"TopoIsGraph", kTopo, io::read_file(fixture("graph_2hosts.xml")),
       "begins with <graphs>; expected <system>"},
      {"TopoVersion", kTopo, with("dgx_a100_topo.xml", "version=\"1\"", "version=\"2\""),
       "reads version 1"},
      {"TopoWithoutCpu", kTopo, "<system version=\"1\"/>", "holds no <cpu>"},
      {"TopoWithoutGpu", kTopo, "<system version=\"1\"><cpu numaid=\"0\"/></system>",
       "holds no GPU"},
      {"TopoCountInWords", kTopo, with("dgx_a100_topo.xml", "count=\"2\"", "count=\"two\""),
       ":7: <nvlink>: count=\"two\" is not a whole number"},
      {"TopoCountZero", kTopo, with("dgx_a100_topo.xml", "count=\"2\"", "count=\"0\""),
       "is not within 1 and 256"},
      {"TopoRankTwice", kTopo, with("dgx_a100_topo.xml", "rank=\"1\"", "rank=\"0\""),
       "rank 0 appears twice"},
      {"TopoLinkToItself", kTopo,
       with("nvlink_bridge_topo.xml", "target=\"0000:18:00.0\"", "target=\"0000:3b:00.0\""),
       "to itself"},
      {"TopoLinksDisagree", kTopo, with("nvlink_bridge_topo.xml", "count=\"2\"", "count=\"1\""),
       "gpu0 names 50GB/s of NVLink to gpu1, which names 25GB/s"},
      {"TopoC2cWithoutBandwidth", kTopo,
       with("nvlink_bridge_topo.xml", "<nvlink", "<c2c count=\"1\"/><nvlink"), "bw is missing"},
      {"TopoUnknownGpu", kTopo,
       with("nvlink_bridge_topo.xml", "dev=\"0\" sm=\"70\"", "dev=\"0\" sm=\"75\""), "--profile"},
      {"TopoHostsWithoutNic", kTopo + std::vector<std::string>{"--hosts", "2"},
       with("nvlink_bridge_topo.xml", "<net ", "<met "), "cannot be joined"},
      {"TopoSpeed", kTopo, with("nvlink_bridge_topo.xml", "speed=\"25000\"", "speed=\"fast\""),
       "speed=\"fast\""},
      {"TopoDeep", kTopo, deep(200), "nested deeper"},
      // Graphs.
      {"GraphIsTopo", kGraph, io::read_file(fixture("dgx_a100_topo.xml")),
       "begins with <system>; expected <graphs>"},
      {"GraphId", kGraph, with("graph_2hosts.xml", "id=\"3\"", "id=\"7\""),
       "is not within 0 and 4"},
      {"GraphWithoutId", kGraph, with("graph_2hosts.xml", "id=\"3\" ", ""), "id is missing"},
      {"GraphIdTwice", kGraph, with("graph_2hosts.xml", "id=\"3\"", "id=\"0\""),
       "id 0 appears twice"},
      {"GraphChannels", kGraph, with("graph_2hosts.xml", "nchannels=\"2\"", "nchannels=\"3\""),
       "says nchannels=\"3\" and lists 2 channels"},
      {"GraphPathType", kGraph, with("graph_2hosts.xml", "typeintra=\"NVL\"", "typeintra=\"NVX\""),
       "is none of LOC, NVL"},
      {"GraphWithoutPattern", kGraph, with("graph_2hosts.xml", "pattern=\"4\" ", ""),
       "pattern is missing"},
      {"GraphSpeed", kGraph, with("graph_2hosts.xml", "speedintra=\"20\"", "speedintra=\"quick\""),
       "is not a number"},
      {"GraphSpeedNan", kGraph, with("graph_2hosts.xml", "speedintra=\"20\"", "speedintra=\"nan\""),
       "is not a number"},
      {"GraphSpeedZero", kGraph, with("graph_2hosts.xml", "speedintra=\"20\"", "speedintra=\"0\""),
       "speedintra is 0"},
      {"GraphDev", kGraph, with("graph_2hosts.xml", "gpu dev=\"a\"", "gpu dev=\"zz\""),
       "dev=\"zz\" is not a whole number"},
      {"GraphThirdNic", kGraph,
       with("graph_2hosts.xml", "<net dev=\"0\"/>", "<net dev=\"0\"/><net dev=\"0\"/>"),
       "this is the third"},
      {"GraphChannelWithoutGpu", kGraph,
       "<graphs><graph id=\"0\" pattern=\"4\" nchannels=\"1\" speedintra=\"1\" "
       "typeintra=\"NVL\"><channel/></graph></graphs>",
       "at least one <gpu>"},
      {"GraphNetsBehindGpus", kGraph,
       with("graph_2hosts.xml", "<net dev=\"0\"/>\n      <gpu dev=\"0\"/>",
            "<gpu dev=\"0\"/>\n      <net dev=\"0\"/>"),
       "stands before its <gpu>s"},
      {"GraphOfNothing", kGraph, "<graphs version=\"1\"/>", "no graph with a channel"},
      // Measurements for the tuner.
      {"TunerEmpty", kTuner, "", "is empty"},
      {"TunerHeaderOnly", kTuner, tuner_header, "has a header and no row"},
      {"TunerUnknownColumn", kTuner, "collective,bytes\n", "unknown column \"bytes\""},
      {"TunerMissingColumn", kTuner, "collective,size_bytes\n", "column \"algorithm\" is missing"},
      {"TunerNothingToCompare", kTuner,
       "collective,size_bytes,algorithm,protocol,channels,nodes,ranks\n",
       "what is to be compared?"},
      {"TunerAnyChannels", kTuner, tuner_header + "allreduce,1024,ring,ll,-1,1,8,5\n",
       "makes the plugin force one channel"},
      {"TunerAlgorithm", kTuner, tuner_header + "allreduce,1024,rnig,ll,1,1,8,5\n",
       "\"rnig\" is no algorithm"},
      {"TunerCollective", kTuner, tuner_header + "alltoall,1024,ring,ll,1,1,8,5\n",
       "is no collective"},
      {"TunerNegative", kTuner, tuner_header + "allreduce,1024,ring,ll,1,1,8,-5\n",
       "is not a positive number"},
      {"TunerFields", kTuner, tuner_header + "allreduce,1024,ring,ll,1,1,8\n",
       ":2: has 7 fields, the header 8"},
      {"TunerSize", kTuner, tuner_header + "allreduce,1KiB,ring,ll,1,1,8,5\n",
       "size_bytes: \"1KiB\" is not a whole number"},
      {"TunerMetric", kTuner + std::vector<std::string>{"--metric", "speed"}, tuner_header,
       "expected latency_us"},
      {"TunerMetricMissing", kTuner + std::vector<std::string>{"--metric", "cost_metric"},
       tuner_header, "column \"cost_metric\" is missing"},
      {"TunerWithoutFile", {"export", "nccl-tuner"}, "", "needs --from FILE.csv"},
      {"ChakraGroupOfNoRanks",
       {"import", "chakra", "rank.et", "--groups", "FILE"},
       "{\"7\": []}",
       "#/7: expected a list of ranks"},
      // Commands.
      {"CommandMistyped", {"import", "ncl-tests", "FILE"}, "", "did you mean \"nccl-tests\"?"},
      {"CommandMissing", {"import"}, "", "import of what? Known are nccl-tests"},
      {"FlagMistyped", kTopo + std::vector<std::string>{"--hots", "2"}, "",
       "did you mean --hosts?"},
      {"FlagWithoutValue",
       {"import", "nccl-topo", "--name", "--hosts", "FILE"},
       "",
       "needs a value"},
      {"FileMissing", {"import", "nccl-graph", "FILE.none"}, "", "no such file"},
  };
}

class Folder {
 public:
  Folder() : path_(fs::path(testing::TempDir()) / ("ddpsim_import_" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code e;
    fs::remove_all(path_, e);
  }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  fs::path path_;
};

TEST(ImportBad, ExitCode2ASentenceNothingWritten) {
  Folder folder;
  std::vector<Bad> cases = bad_cases();
  std::set<std::string> kinds;
  for (const Bad& b : cases) kinds.insert(b.name);
  EXPECT_EQ(kinds.size(), cases.size());
  EXPECT_GE(kinds.size(),
            70u);  // of logs, JSON, CSV, topologies, graphs and the tuner's measurements
  for (const Bad& b : cases) {
    SCOPED_TRACE(b.name);
    std::string file = folder.file("input");
    io::write_file(file, b.text);
    std::vector<std::string> args = b.command;
    for (std::string& a : args)
      if (a.starts_with("FILE")) a = file + a.substr(4);
    if (args.size() > 1) args.insert(args.end(), {"--out", folder.file("out.json")});
    Outcome o = ddpsim(args);
    EXPECT_EQ(o.code, 2) << o.err;
    EXPECT_EQ(o.out, "");
    EXPECT_NE(o.err.find(b.says), std::string::npos) << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    EXPECT_EQ(folder.files(), 1u) << "something was written";
  }
}

TEST(ImportBad, GraphsThatNcclDidNotWrite) {
  Json good =
      io::parse_json(ddpsim({"import", "nccl-graph", fixture("graph_2hosts.xml")}).out, "f");
  auto refused = [&](const char* pointer, const Json& value, const std::string& says) {
    Json j = good;
    j[Json::json_pointer(pointer)] = value;
    try {
      io::read_nccl_graphs(j, "f");
      ADD_FAILURE() << pointer;
    } catch (const InputError& e) {
      EXPECT_NE((e.where + ": " + e.what).find(says), std::string::npos)
          << e.where << ": " << e.what;
    }
  };
  refused("/schema", "ddpsim.nccl_graph/2", "f#/schema");
  refused("/graphs/0/algorithm", "rings", "did you mean \"ring\"?");
  refused("/graphs/1/algorithm", "ring", "appears twice");
  refused("/graphs/0/channels", 3, "lists 2 channels; \"channels\" says 3");
  refused("/graphs/0/nics", Json::array({Json::array({1})}), "expected two NICs");
  refused("/graphs/0/type_inter", "PXX", "is none of \"LOC\"");
  refused("/graphs/0/bw_intra_bytes_per_s", -1, "is not negative");
  refused("/graphs/0/speed", 1, "unknown key");
}

// --- damage
// ------------------------------------------------------------

std::string damaged(std::string text, Random& random) {
  static const std::vector<std::string> words{"0",     "-1",          "99999999999999999999",
                                              "1e308", "nan",         "inf",
                                              "1e999", "N/A",         "\"",
                                              "<",     "/>",          ",",
                                              "\n",    "#",           "\xff\xfe",
                                              "0x",    " NCCL INFO ", ":1:2 [0] NCCL INFO x\n",
                                              "float", "Rank",        "device"};
  switch (random.below(6)) {
    case 0:
      return text.substr(0, random.below(text.size()));
    case 1:
      text[random.below(text.size())] = static_cast<char>(random.below(256));
      break;
    case 2:
      text.erase(random.below(text.size()), 1 + random.below(40));
      break;
    case 3: {  // a part of it again, elsewhere
      std::string part = text.substr(random.below(text.size()), 1 + random.below(120));
      text.insert(random.below(text.size()), part);
      break;
    }
    case 4: {  // a number
      auto at = text.find_first_of("0123456789", random.below(text.size()));
      if (at == std::string::npos) break;
      auto end = text.find_first_not_of("0123456789.", at);
      text.replace(at, std::min(end, text.size()) - at, words[random.below(words.size())]);
      break;
    }
    default:
      text.insert(random.below(text.size()), words[random.below(words.size())]);
      break;
  }
  return text;
}

TEST(ImportFuzz, DamageGivesAnAnswerOrExitCode2AndThenNoFile) {
  Folder folder;
  struct Subject {
    std::string file;
    std::vector<std::string> args;  // before the file
    std::vector<std::string> more;
  };
  std::vector<Subject> subjects;
  for (const char* name :
       {"all_reduce_modern.txt", "all_reduce_old.txt", "all_gather_early.txt",
        "all_gather_mpirun.txt", "all_reduce_interleaved.txt", "reduce_scatter_per_iteration.txt",
        "sendrecv_host_time.txt", "all_reduce.json"})
    subjects.push_back({name, {"import", "nccl-tests"}, {}});
  subjects.push_back({"broadcast_truncated.txt", {"import", "nccl-tests"}, {"--op", "broadcast"}});
  subjects.push_back({"sweep.csv", {"import", "nccl-tests"}, {"--forced", "ALGO=Ring"}});
  for (const char* name : {"dgx_a100_topo.xml", "nvlink_bridge_topo.xml"})
    subjects.push_back({name, {"import", "nccl-topo"}, {}});
  subjects.push_back({"graph_2hosts.xml", {"import", "nccl-graph"}, {}});
  subjects.push_back({"tuner_measured.csv", {"export", "nccl-tuner", "--from"}, {}});
  Random random(20260203);
  int answered = 0;
  constexpr int kRounds = 1300;
  for (int i = 0; i < kRounds; ++i) {
    const Subject& s = subjects[static_cast<std::size_t>(i) % subjects.size()];
    std::string text = io::read_file(fixture(s.file));
    for (std::size_t n = 1 + random.below(3u); n > 0 && !text.empty(); --n)
      text = damaged(text, random);
    std::string file = folder.file("input");
    std::string out = folder.file("out");
    io::write_file(file, text);
    std::vector<std::string> args =
        s.args + std::vector<std::string>{file} + s.more + std::vector<std::string>{"--out", out};
    Outcome o = ddpsim(args);
    ASSERT_TRUE(o.code == 0 || o.code == 2) << s.file << ": " << o.err << "\n" << text;
    ASSERT_EQ(o.out, "");
    ASSERT_EQ(fs::exists(out), o.code == 0) << o.err;
    if (o.code == 2) {
      ASSERT_FALSE(o.err.empty());
      continue;
    }
    ++answered;
    std::string written = io::read_file(out);
    if (s.args[1] == "nccl-tests")
      (void)io::read_run(io::parse_json(written, "out"), "out");
    else if (s.args[1] == "nccl-graph")
      (void)io::read_nccl_graphs(io::parse_json(written, "out"), "out");
    else if (s.args[1] == "nccl-topo")
      (void)io::parse_json(written, "out");
    else
      ASSERT_FALSE(report::validate(tuner_rows(written)));
    fs::remove(out);
  }
  // Neither is all refused, nor does all damage go unseen.
  EXPECT_GT(answered, kRounds / 10);
  EXPECT_LT(answered, kRounds);
}

}  // namespace
}  // namespace ddpsim::test
