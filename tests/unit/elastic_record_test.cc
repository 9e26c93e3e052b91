// What the model of torchrun's recovery takes as measured, and what it predicts of records that
// were held out (calib/elastic/README.md).
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "sim/goodput/recovery.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using goodput::Part;
using goodput::Spent;

const std::vector<std::string> kFit{"monitor0.1_n2", "monitor0.1_n4", "monitor1_n2",
                                    "monitor1_n3",   "monitor5_n3",   "monitor5_n4"};
const std::vector<std::string> kHeldOut{"monitor0.1_n3", "monitor1_n4", "monitor5_n2"};

double median(std::vector<double> v) {
  EXPECT_FALSE(v.empty());
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : (v[(v.size() - 1) / 2] + v[v.size() / 2]) / 2;
}

// Seconds, of one repetition.
struct Seen {
  std::map<std::string, double> took;
  double started = 0;  // since the agent had started the workers, at the kill
  double import_cpu = 0;
  double first_step = 0;  // from the kill
};
struct Cell {
  double interval = 0;
  int workers = 0;
  int cores = 0;
  std::vector<Seen> seen;
  std::vector<double> all(const std::string& what) const {
    std::vector<double> out;
    for (const Seen& s : seen) out.push_back(s.took.at(what));
    return out;
  }
};

Cell cell(const std::string& name) {
  const io::Json j = read_json("calib/elastic/" + name + ".json");
  Cell c{j["monitor_interval_s"], j["workers"], j["cores"], {}};
  EXPECT_EQ(j["not_back_in_time"], 0);
  for (const io::Json& r : j["repetitions"]) {
    const io::Json& at = r["from_kill_s"];
    const auto t = [&](const char* key) { return at[key].get<double>(); };
    Seen s;
    // Workers whose peer is gone end by themselves after about a tenth of a second: then the agent
    // stops nobody.
    double noticed = t("rendezvous_begin");
    for (const char* key : {"failed_seen", "sigterm_sent"})
      if (!at[key].is_null()) noticed = std::min(noticed, t(key));
    s.took["detection"] = noticed;
    s.took["teardown"] = t("rendezvous_begin") - noticed;
    s.took["rendezvous"] = t("rendezvous_done") - t("rendezvous_begin");
    s.took["process_start"] = t("python_main") - t("rendezvous_done");
    s.took["import_torch"] = t("import_done") - t("python_main");
    s.took["process_group"] = t("process_group_done") - t("import_done");
    s.took["construct"] = t("built") - t("process_group_done");
    s.took["restore"] = t("restored") - t("built");
    s.took["first_step"] = t("first_step") - t("restored") - r["step_before_s"].get<double>();
    s.first_step = t("first_step");
    s.started = r["started_before_kill_s"];
    for (const io::Json& cpu : r["import_cpu_s"])
      s.import_cpu = std::max(s.import_cpu, cpu.get<double>());
    c.seen.push_back(s);
  }
  return c;
}

double shipped(Part p) {
  return static_cast<double>(goodput::Times()[p].ps) * 1e-12;
}

// Until the agent's next look. It sleeps for the interval, looks (1 ms), and so on, from when it
// has started the processes.
double predicted_detection(const Cell& c, const Seen& s) {
  const double period = c.interval + 0.001;
  return period - std::fmod(s.started - shipped(Part::ProcessStart), period);
}
double predicted_import(const Cell& c) {
  return shipped(Part::ImportTorch) * std::max(1.0, static_cast<double>(c.workers) / c.cores);
}

void expect_near(double predicted, double measured, const std::string& what) {
  EXPECT_LE(std::abs(predicted - measured), std::max(0.15 * measured, 0.04))
      << what << ": predicted " << predicted << " s, measured " << measured << " s";
}

TEST(ElasticRecord, WhatIsCalledMeasuredIsTheMedianOfTheRecordsThatAreNotHeldOut) {
  std::map<std::string, std::vector<double>> seen;
  for (const std::string& name : kFit) {
    const Cell c = cell(name);
    EXPECT_EQ(c.seen.size(), 5u) << name;
    for (const Seen& s : c.seen) {
      seen["import_torch"].push_back(s.import_cpu);
      for (const auto& [what, took] : s.took)
        if (what != "import_torch" && (what != "teardown" || took > 0.01))
          seen[what].push_back(took);
    }
  }
  int compared = 0;
  for (const goodput::PartRecord& p : goodput::parts()) {
    if (std::string(p.evidence) != "measured" || p.part == Part::ConnectionError) continue;
    const double at_median = median(seen[p.name]);
    EXPECT_NEAR(shipped(p.part), at_median, std::max(0.06 * at_median, 0.005)) << p.name;
    ++compared;
  }
  EXPECT_EQ(compared, 7);
}

TEST(ElasticRecord, HeldOutDetectionIsTheRestOfTheMonitorInterval) {
  for (const std::string& name : kHeldOut) {
    const Cell c = cell(name);
    std::vector<double> predicted;
    for (const Seen& s : c.seen) predicted.push_back(predicted_detection(c, s));
    expect_near(median(predicted), median(c.all("detection")), name);
  }
}

TEST(ElasticRecord, HeldOutImportsShareTheCores) {
  for (const std::string& name : kHeldOut) {
    const Cell c = cell(name);
    expect_near(predicted_import(c), median(c.all("import_torch")), name);
  }
}

// A rank that comes before rank 0 has made the store tries again after a second.
TEST(ElasticRecord, HeldOutProcessGroupsTakeASecondMoreOrDoNot) {
  for (const std::string& name : kHeldOut) {
    const Cell c = cell(name);
    for (const double took : c.all("process_group"))
      EXPECT_TRUE(took < 0.15 || (took > 0.75 && took < 1.15)) << name << ": " << took;
    if (c.workers > 2)
      expect_near(shipped(Part::ProcessGroup), median(c.all("process_group")), name);
  }
}

TEST(ElasticRecord, HeldOutLostTimeIsWithin15PercentOfTheSumOfItsParts) {
  for (const std::string& name : kHeldOut) {
    const Cell c = cell(name);
    goodput::Times times;
    times[Part::ImportTorch] = {static_cast<std::int64_t>(predicted_import(c) * 1e12)};
    times[Part::Restore] = {20'000'000'000};  // 21 MB from the page cache
    double rest = 0;
    for (const goodput::Delay& d : after_failure(times, {}))
      if (d.spent != Spent::Detection && d.spent != Spent::ProcessGroup)
        rest += static_cast<double>(d.fixed.ps) * 1e-12;
    // The step itself is no lost time; nor is what two workers' second is drawn by.
    std::vector<double> predicted;
    std::vector<double> measured;
    for (const Seen& s : c.seen) {
      const double group = c.workers > 2 ? shipped(Part::ProcessGroup) : 0;
      predicted.push_back(predicted_detection(c, s) + group + rest);
      double sum = 0;
      for (const auto& [what, took] : s.took)
        if (c.workers > 2 || what != "process_group") sum += took;
      measured.push_back(sum);
    }
    EXPECT_NEAR(median(predicted) / median(measured), 1, 0.15) << name;
  }
}

}  // namespace
}  // namespace ddpsim::test
