// One question has one answer: predict (its JSON, its Run and its page), explain, sweep, tune's row
// of the plan as it is, and rank-plans' row of the plan that was asked, to the picosecond. The
// parts of a step sum to it.
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/io/files.h"
#include "sim/io/page_template.h"
#include "sim/io/write_page.h"
#include "sim/systems/base/settings.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using io::Json;

constexpr int kParts = 12;  // tests that share the questions
// Of a part; all of them in the nightly.
int questions() {
  return std::getenv("DDPSIM_NIGHTLY") ? 25 : 10;
}

// A setting of the knob, as --set takes it; "" = none is drawn.
std::string setting(Random& rng, const systems::KnobRecord& knob, Plan plan) {
  const systems::Field field = knob.field(plan);
  if (std::holds_alternative<bool*>(field) || std::holds_alternative<std::optional<bool>*>(field))
    return rng.below(2) ? "true" : "false";
  if (const auto* choice = std::get_if<systems::Choice>(&field)) return rng.pick(choice->names);
  if (!knob.tried.empty()) return fmt::format("{:g}", rng.pick(knob.tried));
  return {};
}

// A small question of any system, on hosts of GPUs or of CPUs.
Args random_question(Random& rng) {
  const auto& systems = systems::all_systems();
  const systems::SystemRecord& s = systems[rng.below(systems.size())];
  const bool gpu = rng.below(4) > 0;
  const std::vector<std::string> workloads =
      gpu ? std::vector<std::string>{"mlp784-50-10", "resnet18", "vgg16", "llama-3.2-1b"}
          : std::vector<std::string>{"mlp-cpu", "cnn-cpu", "mlp784-50-10-cpu"};
  const std::vector<std::string> clusters =
      gpu ? std::vector<std::string>{"dgx-a100",  "gpu-ethernet-10g", "gb200-nvl72",
                                     "lab-2numa", "aws-p3dn",         "gh200x4-slingshot"}
          : std::vector<std::string>{"ethernet-10g", "testbed-star", "testbed-mpi"};
  Args out{"--workload", rng.pick(workloads),
           "--cluster",  rng.pick(clusters),
           "--plan",     s.name(),
           "--ranks",    std::to_string(1 << (1 + rng.below(3)))};
  auto set = [&](const std::string& text) { out.insert(out.end(), {"--set", text}); };
  Plan plan;
  plan.system = s.system;
  for (int k = rng.below(3); k > 0 && !s.knobs.empty(); --k) {
    const systems::KnobRecord& knob = s.knobs[rng.below(s.knobs.size())];
    if (std::string v = setting(rng, knob, plan); !v.empty()) set(knob.name + ("=" + v));
  }
  if (rng.below(4) == 0) set("accumulation_steps=" + std::to_string(2 + rng.below(2)));
  if (rng.below(4) == 0) set("bucket_cap_mb=" + std::to_string(1 + rng.below(5)));
  if (rng.below(4) == 0) set("workload.batch=" + std::to_string(1 + rng.below(8)));
  if (rng.below(6) == 0) set(fmt::format("slow_ranks={{\"0\":{}}}", 1.1 + 0.1 * rng.below(4)));
  if (rng.below(6) == 0) set("input.samples_per_s=" + std::to_string(200 << rng.below(5)));
  return out;
}

struct Told {
  std::int64_t step = 0;
  std::int64_t exposed = -1;  // -1: it does not say
};

class Agreement : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() /
            fmt::format("ddpsim-agreement-{}-{}", ::getpid(), GetParam());
    std::filesystem::create_directories(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  Json page_of(const std::string& file) const {
    const std::string html = io::read_file(file);
    const std::string open = "id=\"ddpsim-data\">";
    const auto from = html.find(open) + open.size();
    return io::parse_json(html.substr(from, html.find("</script>", from) - from), "page");
  }
  std::filesystem::path path_;
};

std::int64_t ps(const Json& j, const char* key) {
  return j.contains(key) ? j.at(key).get<std::int64_t>() : 0;
}

Told told(const Json& j, const char* exposed = "exposed_communication_ps") {
  return {ps(j, "step_ps"), j.contains(exposed) ? ps(j, exposed) : -1};
}

// The mean of a Run's steady steps but the first, as far as there are others: what it stands for.
std::int64_t stands_for(const Json& steps) {
  std::vector<std::int64_t> steady;
  for (const Json& s : steps)
    if (s.at("kind") == "steady") steady.push_back(ps(s, "duration_ps"));
  if (steady.size() > 1) steady.erase(steady.begin());
  std::int64_t sum = 0;
  for (std::int64_t d : steady) sum += d;
  return sum / static_cast<std::int64_t>(steady.size());
}

// What decides, of explain's numbers: a rank, or the resource that gains most, if it gains 0.2 %.
std::string decides(const Json& explained) {
  if (!explained.at("straggler").is_null())
    return fmt::format("rank {}", explained["straggler"].at("rank").get<int>());
  const Json& first = explained.at("sensitivity").at(0);
  const double step = explained.at("step_ps").get<double>();
  return step - first.at("step_ps").get<double>() < 0.002 * step
             ? "no single resource"
             : first.at("resource").get<std::string>();
}

// What a step is made of, and who has its exposed communication.
void expect_parts(const Json& s) {
  EXPECT_EQ(ps(s, "compute_ps") + ps(s, "exposed_communication_ps") + ps(s, "input_ps") +
                ps(s, "idle_ps"),
            ps(s, "step_ps"));
  EXPECT_EQ(ps(s, "forward_ps") + ps(s, "backward_ps") + ps(s, "ddp_ps") + ps(s, "optimizer_ps"),
            ps(s, "compute_ps"));
  EXPECT_LE(ps(s, "exposed_copies_ps"), ps(s, "exposed_communication_ps"));
  std::int64_t exposed = 0;
  for (const char* list : {"buckets", "other_communication"})
    for (const Json& b : s.at(list)) exposed += ps(b, "exposed_ps");
  EXPECT_EQ(exposed, ps(s, "exposed_communication_ps"));
}

TEST_P(Agreement, OneAnswerToOneQuestion) {
  const std::string page = (path_ / "page.html").string();
  const bool pages = io::page_template().gzip != nullptr;
  int tuned = 0;
  int answered = 0;
  for (std::uint64_t seed = static_cast<std::uint64_t>(GetParam()) * 1'000'000;
       answered < questions(); ++seed) {
    Random rng(seed);
    const Args question = random_question(rng);
    auto ask = [&](const char* command, Args more) {
      more.insert(more.begin(), command);
      Outcome o = ddpsim(more + question + Args{"--format", "json"});
      return o.code == 0 ? io::parse_json(o.out, command) : Json();
    };
    const Json predicted = ask("predict", pages ? Args{"--html", page} : Args{});
    if (predicted.is_null()) continue;  // refused: no such job
    ++answered;
    SCOPED_TRACE(fmt::format("seed {}: ddpsim predict {}", seed, fmt::join(question, " ")));
    const Json& summary = predicted.at("summary");
    expect_parts(summary);
    const Told answer = told(summary);
    auto same = [&](const char* who, const Told& other) {
      EXPECT_EQ(other.step, answer.step) << who;
      if (other.exposed >= 0) {
        EXPECT_EQ(other.exposed, answer.exposed) << who;
      }
    };
    same("the Run of predict --format json", {stands_for(predicted.at("run").at("steps")), -1});
    const Json explained = ask("explain", {});
    ASSERT_FALSE(explained.is_null());
    same("explain", told(explained));
    const std::string decided = decides(explained);
    if (pages) {
      const Json data = page_of(page);
      const std::string limit = data.at("heading").at("limit").get<std::string>();
      EXPECT_TRUE(limit.starts_with(decided + " decides")) << limit << "\nexplain: " << decided;
      same("the page", told(data.at("summary")));
      same("the page's Run", {stands_for(data.at("run").at("steps")), -1});
    }
    const std::string& ranks = question[7];
    const Json sweep = ask("sweep", {"--axis", "ranks=" + ranks});
    ASSERT_FALSE(sweep.is_null());
    Told row;
    for (std::size_t k = 0; k < sweep.at("columns").size(); ++k) {
      const Json& name = sweep["columns"][k].at("name");
      const Json& value = sweep.at("data")[k][0];
      if (name == "step_ps") row.step = value.get<std::int64_t>();
      if (name == "exposed_ps") row.exposed = value.get<std::int64_t>();
    }
    same("sweep", row);
    if (Json t = ask("tune", {"--no-levers"}); !t.is_null()) {
      ++tuned;
      same("tune", told(t.at("current")));
    }
    const Json ranked = ask("rank-plans", {});
    ASSERT_FALSE(ranked.is_null());
    for (const Json& r : ranked.at("plans")) {
      if (!r.at("asked").get<bool>()) continue;
      same("rank-plans", told(r));
      const std::string limit = r.at("limited_by").get<std::string>();
      if (r.at("fits") == false)
        EXPECT_EQ(limit, "memory");
      else
        EXPECT_TRUE(limit.starts_with(decided)) << limit << "\nexplain: " << decided;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(tuned, answered / 4);
}

INSTANTIATE_TEST_SUITE_P(Random, Agreement, testing::Range(0, kParts));

}  // namespace
}  // namespace ddpsim::test
