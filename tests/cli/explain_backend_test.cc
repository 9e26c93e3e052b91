// ddpsim explain --op over backends tcp, gloo and mpi: which algorithm, why, what each rank does,
// and its time by part, in every format.
#include <sstream>

#include <gtest/gtest.h>

#include "sim/io/json_reader.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

io::Json explained(Args args) {
  args.insert(args.begin(), {"explain", "--cluster", "ethernet-10g"});
  args.insert(args.end(), {"--format", "json"});
  Outcome o = ddpsim(args);
  EXPECT_EQ(o.code, 0) << o.err;
  return o.code == 0 ? io::parse_json(o.out, "stdout") : io::Json{};
}

io::Json chosen(const io::Json& j) {
  for (const io::Json& c : j["candidates"])
    if (c["chosen"].get<bool>()) return c;
  ADD_FAILURE() << "nothing is chosen: " << j;
  return {};
}

std::int64_t whole(const io::Json& c, const char* key) {
  return c[key].get<std::int64_t>();
}

// 8 ranks of ethernet-10g, as its profile has them: a step's latency and a launch of "tcp", two
// links of 5 us, and the wire's share that TCP reaches.
struct Facts {
  double launch = 0, latency = 0, byte = 0, sum = 0;
};
Facts facts() {
  const Profile p = profile("cpu-generic.datasheet");
  const TransportSection& t = p.transports.at("tcp");
  Facts f;
  f.launch = static_cast<double>(t.launch.ps);
  f.latency = static_cast<double>(t.latency.ps) + 10e6;
  f.byte = 800 / t.efficiency.mid;
  f.sum = p.reduction_bytes_per_s > 0 ? 1e12 / p.reduction_bytes_per_s : 0;
  return f;
}

void expect_parts(const io::Json& c, double latency, double bytes, double summed) {
  const Facts f = facts();
  EXPECT_EQ(whole(c, "price_ps"), whole(c, "launch_ps") + whole(c, "latency_ps") +
                                      whole(c, "transfer_ps") + whole(c, "sums_ps"));
  EXPECT_NEAR(c["launch_ps"].get<double>(), f.launch, 1);
  EXPECT_NEAR(c["latency_ps"].get<double>(), latency, 1e4);
  EXPECT_NEAR(c["transfer_ps"].get<double>() / (bytes * f.byte), 1, 1e-5);
  EXPECT_NEAR(c["sums_ps"].get<double>(), summed * f.sum, 1e4);
}

TEST(ExplainBackend, PricesTcpByClosedForms) {
  const Facts f = facts();
  const double s = 8 << 20;
  io::Json ring = chosen(explained({"--backend", "tcp", "--bytes", "8MiB"}));
  EXPECT_EQ(ring["algorithm"], "ring");
  EXPECT_EQ(ring["steps"], 14);
  EXPECT_NEAR(ring["sent_bytes"].get<double>(), 1.75 * s, 1);
  expect_parts(ring, 14 * f.latency, 1.75 * s, 0.875 * s);
  EXPECT_NEAR(ring["bus_bytes_per_s"].get<double>() * ring["price_ps"].get<double>() / 1e12,
              1.75 * s, 1);
  io::Json halving = chosen(explained(
      {"--set", "backend=tcp", "--set", "algorithm=halving_doubling", "--bytes", "8MiB"}));
  EXPECT_EQ(halving["steps"], 6);
  expect_parts(halving, 6 * f.latency, 1.75 * s, 0.875 * s);
  io::Json sent = chosen(explained({"--backend", "tcp", "--op", "send_recv", "--size", "8MiB"}));
  EXPECT_EQ(sent["algorithm"], "send/recv");
  expect_parts(sent, f.latency, s, 0);
  EXPECT_EQ(explained({"--backend", "tcp"})["candidates"].size(), 8u);
}

TEST(ExplainBackend, PricesGlooAndSaysWhoChose) {
  const Facts f = facts();
  const double s = 8 << 20;
  io::Json own = explained({"--bytes", "8MiB"});  // the backend of CPUs
  EXPECT_EQ(own["backend"], "gloo");
  EXPECT_EQ(own["chosen_by"]["who"], "gloo");
  EXPECT_EQ(chosen(own)["algorithm"], "ring");
  ASSERT_EQ(own["candidates"].size(), 3u);
  io::Json halving = explained({"--bytes", "8MiB", "--algorithm", "halving_doubling"});
  EXPECT_EQ(halving["chosen_by"]["who"], "caller");
  expect_parts(chosen(halving), 12 * f.latency, 1.75 * s, 0.875 * s);
  io::Json bcube = explained({"--bytes", "8MiB", "--set", "gloo_algorithm=bcube"});
  EXPECT_TRUE(has(bcube["chosen_by"]["why"].get<std::string>(), "setAlgorithm(BCUBE)"));
  expect_parts(chosen(bcube), 12 * f.latency, 1.75 * s, 0.875 * s);
  expect_parts(chosen(explained({"--op", "send_recv", "--bytes", "8MiB"})), 2 * f.latency, s, 0);
  io::Json seven = explained({"--algorithm", "halving_doubling", "--ranks", "7"});
  EXPECT_TRUE(has(seven["notes"][0].get<std::string>(), "no power of two")) << seven;
}

// The row of the table, the version, and variables.
TEST(ExplainBackend, PricesOpenMpiByItsTable) {
  const Facts f = facts();
  const Args mpi{"--backend", "mpi", "--bytes"};
  auto ask = [&](const std::string& bytes, Args more = {}) {
    Args args = mpi;
    args.push_back(bytes);
    args.insert(args.end(), more.begin(), more.end());
    return explained(args);
  };
  io::Json large = ask("4MiB");
  EXPECT_EQ(large["library"], "Open MPI 4.1");
  EXPECT_EQ(chosen(large)["algorithm"], "rabenseifner");
  EXPECT_EQ(large["chosen_by"]["who"], "open_mpi");
  const io::Json& table = large["chosen_by"]["table"];
  EXPECT_EQ(table["ranks_from"], 8);
  EXPECT_EQ(table["ranks_below"], 16);
  ASSERT_EQ(table["rows"].size(), 2u);
  EXPECT_EQ(table["rows"][1]["from_bytes"], 8192);
  EXPECT_EQ(table["rows"][1]["number"], 6);
  EXPECT_TRUE(table["rows"][1]["below_bytes"].is_null());
  EXPECT_TRUE(has(large["chosen_by"]["why"].get<std::string>(),
                  "8 to 15 ranks: rabenseifner (6) from 8 KiB on"))
      << large["chosen_by"];
  // A border: to the byte.
  EXPECT_EQ(chosen(ask("8191B"))["algorithm"], "recursive_doubling");
  EXPECT_EQ(chosen(ask("8192B"))["algorithm"], "rabenseifner");
  EXPECT_EQ(chosen(ask("1KiB", {"--ranks", "2"}))["algorithm"], "recursive_doubling");
  // Small messages go at once: 4 KiB within the eager limit.
  io::Json small = chosen(ask("4KiB"));
  EXPECT_EQ(small["steps"], 3);
  expect_parts(small, 3 * f.latency, 3 * 4096, 3 * 4096);
  // 4.0 has other rules.
  io::Json old = ask("4MiB", {"--set", "open_mpi=4.0"});
  EXPECT_EQ(old["library"], "Open MPI 4.0");
  EXPECT_EQ(chosen(old)["algorithm"], "ring");
  EXPECT_EQ(chosen(ask("16MiB", {"--set", "open_mpi=4.0"}))["algorithm"], "segmented_ring");
  // A forced one, by the flag and by Open MPI's own variables.
  io::Json ring = ask("4MiB", {"--algorithm", "ring"});
  EXPECT_EQ(ring["chosen_by"]["who"], "environment");
  EXPECT_EQ(chosen(ring)["algorithm"], "ring");
  EXPECT_EQ(chosen(ring),
            chosen(ask("4MiB", {"--set", "OMPI_MCA_coll_tuned_use_dynamic_rules=1", "--set",
                                "OMPI_MCA_coll_tuned_allreduce_algorithm=4"})));
  // Fewer elements than ranks: what runs is not what the table says.
  io::Json few = ask("8B", {"--algorithm", "rabenseifner"});
  EXPECT_EQ(chosen(few)["algorithm"], "basic_linear");
  EXPECT_TRUE(has(few["chosen_by"]["why"].get<std::string>(), "2 elements")) << few["chosen_by"];
  io::Json broadcast = ask("4MiB", {"--op", "broadcast"});
  EXPECT_EQ(broadcast["chosen_by"]["table"]["rows"].size(), 6u);
  EXPECT_EQ(chosen(broadcast)["algorithm"], "basic_linear");
  EXPECT_EQ(chosen(broadcast)["steps"], 1);
  EXPECT_EQ(chosen(broadcast)["sent_bytes"], 7 * 4194304.0);
}

// The same figures in each.
TEST(ExplainBackend, HasThreeFormats) {
  for (const Args& question :
       {Args{"--backend", "tcp"}, Args{"--backend", "gloo", "--op", "broadcast"},
        Args{"--backend", "mpi"}, Args{"--backend", "mpi", "--op", "send_recv"}}) {
    const io::Json j = explained(question);
    Args args = question;
    args.insert(args.begin(), {"explain", "--cluster", "ethernet-10g"});
    const Outcome table = ddpsim(args);
    ASSERT_EQ(table.code, 0) << table.err;
    args.insert(args.end(), {"--format", "csv"});
    const Outcome csv = ddpsim(args);
    ASSERT_EQ(csv.code, 0) << csv.err;
    std::istringstream lines(csv.out);
    std::string line;
    std::getline(lines, line);
    const auto columns = std::count(line.begin(), line.end(), ',');
    for (const io::Json& c : j["candidates"]) {
      ASSERT_TRUE(std::getline(lines, line));
      EXPECT_EQ(std::count(line.begin(), line.end(), ','), columns);
      EXPECT_TRUE(has(line, "," + c["algorithm"].get<std::string>() + "," +
                                (c["chosen"].get<bool>() ? "yes" : "no") + ","))
          << line;
      EXPECT_TRUE(has(line, "," + std::to_string(whole(c, "price_ps")) + ",")) << line;
      const std::string mark = c["chosen"].get<bool>() ? "* " : "  ";
      EXPECT_TRUE(has(table.out, mark + c["algorithm"].get<std::string>())) << table.out;
      EXPECT_TRUE(has(table.out, to_string(Duration{whole(c, "price_ps")}))) << table.out;
    }
    EXPECT_FALSE(std::getline(lines, line));
  }
}

// NCCL's answer has the same formats.
TEST(ExplainBackend, NcclHasCsvToo) {
  for (const char* op : {"all_reduce", "send_recv"}) {
    const Outcome o = ddpsim({"explain", "--cluster", "hgx-h100", "--op", op, "--format", "csv"});
    ASSERT_EQ(o.code, 0) << o.err;
    std::istringstream lines(o.out);
    std::string head, line;
    std::getline(lines, head);
    std::size_t rows = 0;
    for (; std::getline(lines, line); ++rows)
      EXPECT_EQ(std::count(line.begin(), line.end(), ','),
                std::count(head.begin(), head.end(), ','))
          << line;
    const Outcome json =
        ddpsim({"explain", "--cluster", "hgx-h100", "--op", op, "--format", "json"});
    EXPECT_EQ(rows, io::parse_json(json.out, "stdout")["candidates"].size());
  }
}

TEST(ExplainBackend, RefusesWhatThereIsNot) {
  const Args on{"explain", "--cluster", "ethernet-10g"};
  struct Bad {
    Args args;
    const char* part;
  };
  for (const Bad& b :
       {Bad{{"--backend", "glo"}, "nccl, gloo, tcp or mpi"},
        Bad{{"--backend", "gloo", "--algorithm", "torus2d"},
            "Gloo has ring, bcube, halving_doubling"},
        Bad{{"--backend", "gloo", "--algorithm", "bcub"}, "did you mean bcube?"},
        Bad{{"--backend", "tcp", "--algorithm", "rabenseifner"},
            "backend tcp has ring, double_binary_tree"},
        Bad{{"--backend", "mpi", "--algorithm", "bcube"}, "basic_linear, nonoverlapping"},
        Bad{{"--backend", "mpi", "--op", "broadcast", "--algorithm", "chain"}, "fixed rules"},
        Bad{{"--backend", "tcp", "--op", "broadcast", "--algorithm", "ring"},
            "one way to do broadcast: binomial_tree"},
        Bad{{"--backend", "gloo", "--op", "all_gather"}, "it has all_reduce, broadcast, send_recv"},
        Bad{{"--backend", "mpi", "--op", "all_to_all"}, "it has all_reduce, broadcast, send_recv"},
        Bad{{"--op", "all_to_all"}, "On GPUs NCCL has all of them"},
        Bad{{"--backend", "tcp", "--set", "gloo_algorithm=bcube"}, "is a knob of backend gloo"},
        Bad{{"--backend", "gloo", "--set", "NCCL_ALGO=ring"}, "and the backend is gloo"},
        Bad{{"--backend", "gloo", "--set", "open_mpi=4.1"}, "is of backend mpi"},
        Bad{{"--backend", "mpi", "--set", "open_mpi=3.1"}, "4.0, 4.1 and 5.0"},
        Bad{{"--backend", "mpi", "--set", "OMPI_MCA_coll_tuned_allreduce_algorithm=4"},
            "is read only with"},
        Bad{{"--backend", "mpi", "--set", "OMPI_MCA_btl_tcp_eager=4"}, "that ddpsim reads"},
        Bad{{"--backend", "tcp", "--set", "backend=gloo"}, "say different things"},
        Bad{{"--backend", "tcp", "--nccl", "2.26"}, "is of NCCL, and the backend is tcp"},
        Bad{{"--backend", "nccl"}, "NCCL runs on GPUs"},
        Bad{{"--backend", "tcp", "--ranks", "1"}, "at least two ranks"},
        Bad{{"--backend", "tcp", "--set", "cluster.hosts=8", "--ranks", "9"}, "8 devices"},
        Bad{{"--backend", "tcp", "--set", "bucket_cap_mb=3"}, "none of a cluster"},
        Bad{{"--backend", "tcp", "--format", "md"}, "table, csv and json"}}) {
    Args args = on;
    args.insert(args.end(), b.args.begin(), b.args.end());
    const Outcome o = ddpsim(args);
    EXPECT_EQ(o.code, 2) << b.part << o.out;
    EXPECT_TRUE(has(o.err, b.part)) << b.part << "\n" << o.err;
  }
  expect_refusal({"explain", "--cluster", "hgx-h100", "--backend", "gloo"}, "is not modelled");
  expect_refusal({"explain", "--cluster", "hgx-h100", "--algorithm", "ring"}, "NCCL_ALGO=ring");
  expect_refusal({"explain", "--workload", "resnet50", "--cluster", "hgx-h100", "--backend", "tcp"},
                 "give one of the two");
}

// As `topology check` does, where NICs carry nothing: 16 for 8 GPUs.
TEST(ExplainBackend, NicsThatCarryNothingAreSaid) {
  const Args more{"--cluster",       "dgx-h100", "--set",
                  "cluster.hosts=2", "--set",    "cluster.nics_per_host=16"};
  const Args few{"--cluster", "dgx-h100", "--set", "cluster.hosts=2"};
  const char* words = "8 of the 16 NICs of a host carry nothing here";
  auto answer = [](Args args, const Args& place, const char* format) {
    args.insert(args.end(), place.begin(), place.end());
    args.insert(args.end(), {"--format", format});
    const Outcome o = ddpsim(args);
    EXPECT_EQ(o.code, 0) << o.err;
    std::string out;  // as one line
    for (char c : o.out)
      if (c != '\n' && c != ' ')
        out += c;
      else if (out.empty() || out.back() != ' ')
        out += ' ';
    return out;
  };
  for (const Args& command : {Args{"explain"}, Args{"explain", "--op", "send_recv"},
                              Args{"predict", "--workload", "resnet50"}})
    for (const char* format : {"table", "csv", "json"}) {
      EXPECT_TRUE(has(answer(command, more, format), words))
          << command[0] << " " << format << answer(command, more, format);
      EXPECT_FALSE(has(answer(command, few, format), "carry nothing here")) << format;
    }
  // Within a host no NIC matters.
  EXPECT_FALSE(has(
      answer({"explain"}, {"--cluster", "dgx-h100", "--set", "cluster.nics_per_host=16"}, "json"),
      "carry nothing"));
}

// A link's saved burst goes at its peak: what a measurement with pauses sees (calib/mpi-runs: 1 MiB
// on two ranks at 200 Mb/s took 37.3 ms).
TEST(ExplainBackend, SaysWhatAPauseBeforeItSaves) {
  Outcome o = ddpsim({"explain", "--op", "all_reduce", "--backend", "mpi", "--cluster",
                      "testbed-mpi", "--set", "cluster.link.bandwidth=200Mb/s", "--ranks", "2",
                      "--bytes", "1MiB", "--format", "json"});
  ASSERT_EQ(o.code, 0) << o.err;
  const io::Json j = io::parse_json(o.out, "stdout");
  const double burst = 128 * 1024 * 8 / 200e6;  // seconds
  const double saved = static_cast<double>(whole(chosen(j), "price_ps") - whole(j, "rested_ps"));
  EXPECT_GT(saved / 1e12, 0.9 * burst);
  EXPECT_LE(saved / 1e12, burst);
  EXPECT_NEAR(static_cast<double>(whole(j, "rested_ps")) / 1e9, 37.3, 0.4);
  o = ddpsim({"explain", "--op", "all_reduce", "--backend", "mpi", "--cluster", "testbed-mpi",
              "--ranks", "2", "--bytes", "1MiB"});
  EXPECT_NE(o.out.find("After a pause"), std::string::npos) << o.out;
  EXPECT_FALSE(explained({"--op", "all_reduce", "--backend", "tcp", "--bytes", "1MiB"})
                   .contains("rested_ps"));
}

}  // namespace
}  // namespace ddpsim::test
