// What NCCL's collectives between several ranks on one GPU say of their transport: the fit finds
// the numbers that made them, from the forced rings of two ranks alone.
#include <deque>

#include <gtest/gtest.h>

#include "calib/fit/transport.h"
#include "sim/io/files.h"
#include "sim/model/error.h"
#include "tests/support/nccl.h"
#include "tests/support/support.h"

namespace ddpsim::calib {
namespace {

constexpr std::int64_t kUs = 1'000'000;

Profile base() {
  Profile p = test::profile("h100-sxm.datasheet");
  p.transports["loopback"] = p.transports.at("tcp");
  return p;
}

Profile planted() {
  Profile p = base();
  TransportSection& t = p.transports.at("loopback");
  t.latency = Duration{41 * kUs};
  t.ll_latency = Duration{9 * kUs};
  t.efficiency = {0.53, 0.53, 0.53};
  t.thread_bytes_per_s.reset();
  return p;
}

// Tables of what a profile predicts.
class Made {
 public:
  explicit Made(const Profile& p) : p_(p), fabric_(test::cluster("one-gpu")) {}

  void add(Operation op, int ranks, const char* algorithm, const char* protocol,
           double longer = 1) {
    std::map<std::string, std::string> words{{"NCCL_MIN_CTAS", "2"}, {"NCCL_MAX_CTAS", "2"}};
    if (*algorithm) words["NCCL_ALGO"] = algorithm;
    if (*protocol) words["NCCL_PROTO"] = protocol;
    nccl::ParsedSettings parsed = nccl::parse_settings(words, {});
    ASSERT_FALSE(parsed.problem) << parsed.problem.message;
    const std::vector<DeviceId> devices = first_devices(ranks);
    Run& run = runs_.emplace_back();
    run.evidence = EvidenceClass::Collective;
    run.key = std::string(name_of(op)) + std::to_string(ranks) + algorithm + protocol;
    run.collectives.emplace();
    CollectiveSetting& c = *run.collectives;
    c.op = name_of(op);
    c.ranks = c.hosts = ranks;
    c.algorithm = algorithm;
    c.protocol = protocol;
    CollectiveTable t;
    t.name = run.key;
    t.run = &run;
    t.profile = p_;
    t.op = op;
    t.group = nccl::build(fabric_, devices, parsed.settings, 90);
    for (std::int64_t bytes = 8; bytes <= 64 << 20; bytes *= 4) {
      CollectiveRow row;
      auto choice = nccl::choose(*t.group, op, bytes);
      row.bytes = bytes;
      row.available = choice.has_value();
      if (choice) row.choice = *choice;
      t.rows.push_back(row);
    }
    std::vector<CollectiveRow> rows = predict_table(t, p_);
    for (CollectiveRow& row : rows)
      row.measured = {static_cast<std::int64_t>(static_cast<double>(row.predicted.ps) * longer)};
    t.rows = rows;
    tables_.push_back(std::move(t));
  }
  const std::vector<CollectiveTable>& tables() const { return tables_; }

 private:
  Profile p_;
  topology::Fabric fabric_;
  std::deque<Run> runs_;
  std::vector<CollectiveTable> tables_;
};

TEST(TransportFit, FindsWhatMadeTheTables) {
  Made made(planted());
  made.add(Operation::AllReduce, 2, "ring", "simple");
  made.add(Operation::AllReduce, 2, "ring", "ll");
  made.add(Operation::AllReduce, 4, "", "");
  made.add(Operation::AllGather, 2, "", "");
  TransportFit f = fit_transport(base(), "made", made.tables(), {});
  const TransportSection& t = f.profile.transports.at("loopback");
  EXPECT_EQ(f.transport, "loopback");
  EXPECT_NEAR(static_cast<double>(t.latency.ps) / kUs, 41, 0.05);
  ASSERT_TRUE(t.ll_latency);
  EXPECT_NEAR(static_cast<double>(t.ll_latency->ps) / kUs, 9, 0.05);
  EXPECT_NEAR(t.efficiency.mid, 0.53, 1e-3);
  EXPECT_EQ(t.basis, Evidence::Measured);
  EXPECT_EQ(f.profile.fitted_from.size(), 2u);
  for (const TransportResidual& r : f.residuals) {
    EXPECT_NEAR(r.error, 0, 2e-3) << r.table << " " << r.bytes;
    EXPECT_EQ(r.fitted, r.table.find("ring") != std::string::npos) << r.table;
  }
}

TEST(TransportFit, WhatIsHeldOutHasNoSay) {
  Made made(planted());
  made.add(Operation::AllReduce, 2, "ring", "simple");
  made.add(Operation::AllReduce, 2, "ring", "ll");
  TransportFit alone = fit_transport(base(), "made", made.tables(), {});
  made.add(Operation::AllReduce, 2, "", "", 2);
  made.add(Operation::AllReduce, 4, "ring", "simple", 3);  // of more ranks than the fewest
  made.add(Operation::AllGather, 2, "ring", "simple", 2);
  TransportFit f = fit_transport(base(), "made", made.tables(), {});
  const TransportSection& a = alone.profile.transports.at("loopback");
  const TransportSection& b = f.profile.transports.at("loopback");
  EXPECT_EQ(a.latency, b.latency);
  EXPECT_EQ(a.ll_latency, b.ll_latency);
  EXPECT_EQ(a.efficiency.mid, b.efficiency.mid);
  for (const TransportResidual& r : f.residuals)
    if (!r.fitted) {
      EXPECT_LT(r.error, -0.4) << r.table << " " << r.bytes;
    }
}

// Nine readings at 0.60 to 0.68 of the link beside the two long rows at 0.53.
TEST(TransportFit, TakesTheRateOverMinutes) {
  Made made(planted());
  made.add(Operation::AllReduce, 2, "ring", "simple");
  made.add(Operation::AllReduce, 2, "ring", "ll");
  ddpsim::Run repeated;
  repeated.key = "loopback/n2";
  EXPECT_FALSE(repeats_transport(repeated));
  for (std::int64_t cycle = 0; cycle < 9; ++cycle) {
    Profile p = planted();
    const double share = 0.6 + 0.01 * static_cast<double>(cycle);
    p.transports.at("loopback").efficiency = {share, share, share};
    Made then(p);
    then.add(Operation::AllReduce, 2, "ring", "simple");
    const CollectiveRow& row = then.tables().front().rows.back();
    auto sample = [&](const char* op, std::int64_t rank, std::int64_t ranks, std::int64_t longer) {
      repeated.samples.push_back(
          {op,
           {{"rank", rank}, {"ranks", ranks}, {"bytes", row.bytes}, {"cycle", cycle}},
           {Duration{row.measured.ps * longer}}});
    };
    sample("loopback/anywhere/all_reduce", 0, 2, 1);
    sample("loopback/anywhere/all_reduce", 1, 2, 1);
    // Half of the bytes each way: 1.6 times as fast.
    repeated.samples.push_back({"loopback/anywhere/reduce",
                                {{"rank", 0}, {"ranks", 2}, {"bytes", row.bytes}, {"cycle", cycle}},
                                {Duration{row.measured.ps * 10 / 16}}});
    sample("loopback/anywhere/reduce", 0, 4, 3);
    sample("loopback/anywhere/all_reduce", 0, 4, 3);
  }
  EXPECT_TRUE(repeats_transport(repeated));
  TransportFit f = fit_transport(base(), "made", made.tables(), {}, {&repeated});
  const TransportSection& t = f.profile.transports.at("loopback");
  EXPECT_NEAR(t.efficiency.mid, 0.63, 2e-3);
  EXPECT_NEAR(t.efficiency.low, 0.53, 2e-3);
  EXPECT_NEAR(t.efficiency.high, 0.67, 2e-3);
  EXPECT_DOUBLE_EQ(t.one_way, 1.6);
  EXPECT_NE(t.source.find("9 all-reduces read over minutes (loopback/n2)"), std::string::npos)
      << t.source;
}

// Of two ranks that broadcast one only sends and one only receives; of four two do both, and in an
// all-reduce all do.
TEST(TransportFit, AThreadThatCopiesOneWayIsFaster) {
  Profile fast = planted();
  fast.transports.at("loopback").one_way = 1.6;
  auto transfer = [](const Profile& p, Operation op, int ranks) {
    Made made(p);
    made.add(op, ranks, "ring", "simple");
    return static_cast<double>(predict_table(made.tables().front(), p).back().price.transfer.ps);
  };
  auto ratio = [&](Operation op, int ranks) {
    return transfer(planted(), op, ranks) / transfer(fast, op, ranks);
  };
  EXPECT_NEAR(ratio(Operation::Broadcast, 2), 1.6, 1e-6);
  EXPECT_NEAR(ratio(Operation::Reduce, 2), 1.6, 1e-6);
  EXPECT_EQ(ratio(Operation::Broadcast, 4), 1);
  EXPECT_EQ(ratio(Operation::AllReduce, 2), 1);
  EXPECT_EQ(ratio(Operation::AllGather, 2), 1);
}

TEST(TransportFit, TakesTheInterferenceOfAsManyBlocksAsChannels) {
  Made made(planted());
  made.add(Operation::AllReduce, 2, "ring", "simple");
  made.add(Operation::AllReduce, 2, "ring", "ll");
  ddpsim::Run kernels;
  auto sample = [&](std::int64_t victim, std::int64_t blocks, std::int64_t us) {
    kernels.samples.push_back(
        {"interference", {{"victim", victim}, {"blocks", blocks}}, {Duration{us * kUs}}});
  };
  sample(0, 0, 97);
  sample(0, 2, 100);
  sample(0, 16, 200);
  TransportFit f = fit_transport(base(), "made", made.tables(), {&kernels});
  EXPECT_NEAR(f.profile.sm_hold.mid, 0.03, 1e-9);
  TransportFit none = fit_transport(base(), "made", made.tables(), {});
  EXPECT_EQ(none.profile.sm_hold.mid, base().sm_hold.mid);
}

TEST(TransportFit, SaysWhatIsMissing) {
  auto refused = [](const Made& made, const std::string& words) {
    try {
      fit_transport(base(), "made", made.tables(), {});
      FAIL() << "no error, expected: " << words;
    } catch (const InputError& e) {
      EXPECT_NE(e.what.find(words), std::string::npos) << e.what;
    }
  };
  Made free(planted());
  free.add(Operation::AllReduce, 2, "", "");
  refused(free, "no Run holds all-reduces whose ring was forced");
  Made simple(planted());
  simple.add(Operation::AllReduce, 2, "ring", "simple");
  refused(simple, "LL, below 64 KiB");
}

// What NCCL 2.28.3 found and chose between ranks on an H100 (calib/gpu-runs/h100-sxm): the loopback
// counts as 10 Gb/s, whatever it carries.
TEST(OneGpu, NcclSearchesAndChoosesAsItDid) {
  topology::Fabric fabric(test::cluster("one-gpu"));
  std::map<std::string, std::string> two{{"NCCL_MIN_CTAS", "2"}, {"NCCL_MAX_CTAS", "2"}};
  auto group = [&](int ranks, std::map<std::string, std::string> words) {
    words.insert(two.begin(), two.end());
    const std::vector<DeviceId> devices = first_devices(ranks);
    return nccl::make_group(fabric, devices, nccl::parse_settings(words, {}).settings, 90);
  };
  const nccl::ChannelGraph ring = group(2, {}).system.graphs[nccl::GraphId::Ring];
  EXPECT_EQ(ring.channels, 1);  // nccl-graph.xml
  EXPECT_NEAR(ring.bw_inter.bytes_per_s, 1.2e9, 1);
  std::string folder = test::source_path("calib/gpu-runs/h100-sxm");
  int chosen = 0;
  int same = 0;
  for (const std::string& file : io::list_files(folder, {".json.gz"})) {
    if (file.find("-one-gpu-") == std::string::npos) continue;
    ddpsim::Run run = io::read_run(io::parse_json(io::read_file(file), file), file);
    ASSERT_TRUE(run.collectives) << file;
    const CollectiveSetting& c = *run.collectives;
    auto op = parse_operation(c.op);
    if (!op || !nccl::is_chosen_for(*op)) continue;
    std::map<std::string, std::string> words;
    if (!c.algorithm.empty()) words = {{"NCCL_ALGO", c.algorithm}, {"NCCL_PROTO", c.protocol}};
    nccl::Group g = group(c.ranks, words);
    for (const CollectiveChoice& said : c.chosen) {
      auto ours = nccl::choose(g.system, g.settings, *op, said.bytes);
      ASSERT_TRUE(ours) << file << " " << said.bytes;
      ++chosen;
      same += said.algorithm == nccl::name_of(ours->algorithm) &&
              said.protocol == nccl::name_of(ours->protocol);
    }
  }
  EXPECT_EQ(chosen, 166);
  EXPECT_EQ(same, 164);  // of two sizes NCCL took PAT
}

}  // namespace
}  // namespace ddpsim::calib
