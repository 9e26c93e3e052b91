// Every shipped workload on every shipped cluster by every plan: a question ends in an answer or in
// a sentence.
//
//   DDPSIM_GRID_N=0         all questions; default: 500 of them, and of ZeRO-3 all
//   DDPSIM_GRID_SEED=7      which ones; default: the commit says it
//   DDPSIM_GRID_PART=2/9    the second of nine parts of them
//   DDPSIM_GRID_ONLY=1234   one question alone
//
// The process asks them in order of clusters, so that NCCL's search for channels is made once.
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include <gtest/gtest.h>
#include <time.h>

#include "sim/door/loader.h"
#include "sim/model/error.h"
#include "sim/systems/base/settings.h"
#include "sim/units/number.h"
#include "tests/support/files.h"
#include "tests/support/support.h"
#include "tools/cmd/crash.h"
#include "tools/cmd/pool.h"
#include "tools/cmd/question.h"

namespace ddpsim::test {
namespace {

using Choices = std::vector<door::Choice>;

std::string text_of(const door::Choice& c) {
  std::string out = "--workload " + c.workload + " --cluster " + c.cluster + " --plan " + c.plan;
  if (!c.ranks.empty()) out += " --ranks " + c.ranks;
  for (const io::Setting& s : c.settings) out += " --set " + s.text;
  return out;
}

std::int64_t from_environment(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? parse_integer(text).value_or(otherwise) : otherwise;
}

// How many questions; 0: all.
std::size_t asked() {
  return static_cast<std::size_t>(from_environment("DDPSIM_GRID_N", 500));
}

// Of the commit that the tree is at; where no git tells one, always the same.
std::uint64_t seed() {
  constexpr std::int64_t kWithoutGit = 20261128;
  if (std::getenv("DDPSIM_GRID_SEED"))
    return static_cast<std::uint64_t>(from_environment("DDPSIM_GRID_SEED", kWithoutGit));
  const std::string command = "git -C '" + source_path("") + "' rev-parse HEAD 2>/dev/null";
  std::array<char, 16> hash{};
  std::FILE* git = ::popen(command.c_str(), "r");
  const std::size_t read = git ? std::fread(hash.data(), 1, hash.size() - 1, git) : 0;
  if (git) ::pclose(git);
  if (read != hash.size() - 1) return kWithoutGit;
  return std::strtoull(hash.data(), nullptr, 16);
}

struct NamedPlan {
  std::string name;
  const systems::SystemRecord* system;
};
std::vector<NamedPlan> plans() {
  std::vector<NamedPlan> out;
  for (const systems::SystemRecord& s : systems::all_systems()) {
    out.push_back({s.name(), &s});
    if (out.back().name == "zero") out.push_back({"zero3", &s});  // `zero` is stage 2
  }
  return out;
}

Choices all_questions() {
  const io::Home home(DDPSIM_SOURCE_DIR, "", "");
  Choices out;
  for (const std::string& cluster : home.list("topologies"))
    for (const std::string& workload : home.list("workloads"))
      for (const NamedPlan& plan : plans())
        out.push_back({workload, cluster, plan.name, "", "", {}});
  return out;
}

// So many of them, in their order.
Choices some_of(Choices all, std::size_t n, std::uint64_t seed) {
  Random random(seed);
  Choices out;
  for (std::size_t k = 0; k < all.size(); ++k)
    if (random.below(all.size() - k) < n - out.size()) out.push_back(std::move(all[k]));
  return out;
}

Choices part_of(Choices all) {
  const char* text = std::getenv("DDPSIM_GRID_PART");
  std::size_t k = 0;
  std::size_t n = 0;
  if (!text || std::sscanf(text, "%zu/%zu", &k, &n) != 2 || k < 1 || k > n) return all;
  const auto at = [&](std::size_t i) {
    return all.begin() + static_cast<std::ptrdiff_t>(all.size() * i / n);
  };
  return {at(k - 1), at(k)};
}

double thread_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

struct Ended {
  std::string problem;  // "" = it ended as it should
  bool answered = false;
  double seconds = 0;
};

std::string problem_of(const predict::Prediction& p) {
  const Duration step = p.summary.step;
  if (step.ps <= 0) return "the step takes " + std::to_string(step.ps) + " ps";
  if (p.step_low.ps <= 0) return "the interval begins at " + std::to_string(p.step_low.ps) + " ps";
  if (p.step_low > step || step > p.step_high)
    return "the interval, " + std::to_string(p.step_low.ps) + " to " +
           std::to_string(p.step_high.ps) + " ps, does not hold the step of " +
           std::to_string(step.ps) + " ps";
  for (double v : {p.samples_per_s, p.scaling_efficiency, p.efficiency_low, p.efficiency_high})
    if (!std::isfinite(v) || v < 0) return "a rate or an efficiency is " + std::to_string(v);
  return {};
}

Ended ask(door::Loader& loader, const door::Choice& c) {
  const double before = thread_seconds();
  Ended out;
  try {
    const door::Asked asked = loader.ask(c);
    out.problem = problem_of(predict::predict(asked.question(), asked.options));
    out.answered = true;
  } catch (const InputError& e) {
    const std::string sentence = e.where + ": " + e.what;
    if (e.what.empty() || sentence.find('\n') != std::string::npos)
      out.problem = "refused in no sentence: " + sentence;
  } catch (const std::exception& e) {
    out.problem = e.what();
  }
  out.seconds = thread_seconds() - before;
  return out;
}

void ask_all(const Choices& questions, const std::string& which) {
  std::ostringstream out;
  std::ostringstream err;
  const cli::Terminal terminal{out, err, false, DDPSIM_SOURCE_DIR, ""};
  door::Loader loader(cli::context_of(terminal), {});
  const cli::CrashReport report;  // "point" and the question's number
  const auto n = static_cast<std::int64_t>(questions.size());
  const auto only = from_environment("DDPSIM_GRID_ONLY", -1);
  std::size_t answered = 0;
  std::size_t failed = 0;
  double seconds = 0;
  Ended slowest;
  std::string at;
  cli::in_order<Ended>(
      only >= 0 ? only : 0, only >= 0 ? std::min(only + 1, n) : n, 2, 64,
      [&](std::int64_t k) {
        cli::at_point(k);
        Ended ended = ask(loader, questions[static_cast<std::size_t>(k)]);
        cli::at_point(-1);
        return ended;
      },
      [&](std::int64_t k, Ended ended) {
        const std::string asked = text_of(questions[static_cast<std::size_t>(k)]);
        answered += ended.answered;
        seconds += ended.seconds;
        if (ended.seconds > slowest.seconds) slowest = ended, at = asked;
        if (ended.problem.empty()) return;
        ++failed;
        ADD_FAILURE() << "DDPSIM_GRID_ONLY=" << k << " (predict " << asked
                      << "): " << ended.problem;
      },
      [] {});
  std::cerr << (only >= 0 ? 1 : n) << " questions " << which << ": " << answered << " answered, "
            << failed << " failed, the others refused; " << seconds << " s of CPU, slowest "
            << slowest.seconds << " s (" << at << ")" << std::endl;
  if (only >= 0) return;
  EXPECT_GT(answered, questions.size() / 10) << "nearly all are refused";
}

TEST(Grid, EveryQuestionEndsInAnAnswerOrASentence) {
  const Choices all = all_questions();
  ASSERT_GT(all.size(), 20'000u);
  const std::uint64_t s = seed();
  const bool some = asked() > 0 && asked() < all.size();
  ask_all(part_of(some ? some_of(all, asked(), s) : all),
          some ? "of seed " + std::to_string(s) : "of all");
}

// What once came to a standstill, and only on some GPUs.
TEST(Grid, ZeroThreeEndsOnEveryHost) {
  Choices all = all_questions();
  std::map<std::string, bool> one_host;
  for (const std::string& name : io::Home(DDPSIM_SOURCE_DIR, "", "").list("topologies"))
    one_host[name] = cluster(name).hosts == 1;
  std::erase_if(all,
                [&](const door::Choice& c) { return c.plan != "zero3" || !one_host[c.cluster]; });
  ask_all(part_of(all), "of ZeRO-3 on one host");
}

// Settings of a knob: the least and the most that it has a name or a number for.
std::vector<std::string> bounds_of(const systems::KnobRecord& knob) {
  Plan plan;
  const systems::Field field = knob.field(plan);
  if (const auto* choice = std::get_if<systems::Choice>(&field))
    return {choice->names.begin(), choice->names.end()};
  if (std::holds_alternative<bool*>(field) || std::holds_alternative<std::optional<bool>*>(field))
    return {"false", "true"};
  std::vector<std::string> out{"0", "1", "2", "1048576", "1000000000000", "9223372036854775807"};
  for (double v : knob.tried) out.push_back(std::to_string(static_cast<std::int64_t>(v)));
  return out;
}

// One by one, on one host and on two.
TEST(Grid, EveryKnobAtItsBoundsEndsInAnAnswerOrASentence) {
  const std::string workload = asked() > 0 ? "mlp784-50-10" : "gpt2-small";
  Choices all;
  for (const NamedPlan& plan : plans())
    for (const systems::KnobRecord& knob : plan.system->knobs)
      for (const std::string& value : bounds_of(knob))
        for (const char* hosts : {"1", "2"})
          all.push_back({workload,
                         "dgx-h100",
                         plan.name,
                         "",
                         "",
                         {io::parse_setting("cluster.hosts=" + std::string(hosts)),
                          io::parse_setting(std::string(knob.name) + "=" + value)}});
  ask_all(part_of(all), "of knobs at their bounds");
}

}  // namespace
}  // namespace ddpsim::test
