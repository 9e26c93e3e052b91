// ddpsim rank-plans: every system that can train this workload on this cluster, in one table.
#include "sim/tune/rank_plans.h"

#include <algorithm>
#include <map>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "sim/predict/known_times.h"
#include "sim/predict/memory.h"
#include "sim/report/diagnosis_text.h"
#include "sim/report/text.h"
#include "sim/systems/base/settings.h"
#include "tools/cmd/epoch_text.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/pool.h"
#include "tools/cmd/progress.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

struct RankPlansFlags {
  QuestionFlags question;
  std::string price;
  std::string samples;
  OutputFlags output;
};

constexpr double kGiB = 1024.0 * 1024 * 1024;

// Of a data set of so many samples; 0 = 1.
Sampling sampling_of(const Loaded& l, std::int64_t samples) {
  return {std::max<std::int64_t>(samples, 1), l.scenario.ranks, l.workload.batch,
          l.scenario.plan.accumulation_steps};
}

// What one of the plans comes to.
struct Row {
  const predict::RankedPlan* plan = nullptr;
  std::string name;
  std::string limit;
  double epoch_s = 0;
  double epoch_cost = 0;
};

std::string name_of_plan(const predict::RankedPlan& r) {
  const systems::SystemRecord& s = systems::record_of(r.plan.system);
  return std::string(s.name()) + (r.settings.empty() ? "" : " " + r.settings);
}

std::string memory_of(const predict::Prediction& p) {
  if (!p.memory) return "";
  return fmt::format("{:.1f}", static_cast<double>(p.memory->device) / kGiB);
}

// Where none fits: what would make the first one.
std::string what_fits(const Loaded& l, const std::vector<Row>& rows) {
  const Row& best = rows.front();
  if (!best.plan->prediction || !best.plan->prediction->memory ||
      best.plan->prediction->memory->fits())
    return {};
  Scenario s = l.scenario;
  s.plan = best.plan->plan;
  std::string out;
  for (const predict::Fit& f : predict::what_fits({l.workload, *l.fabric, l.profile, s}, l.options))
    out += fmt::format("  {} ({}): {:.1f} GiB\n", f.change, f.command,
                       static_cast<double>(f.device) / kGiB);
  return out.empty() ? "\nnone fits, nor would with a batch of 1\n"
                     : "\nnone fits; " + best.name + " would with\n" + out;
}

// What the order does not rest on: schedules that were never executed, what a plan's own prediction
// left out, and that other arithmetic may need more steps.
std::string not_judged(const std::vector<Row>& rows) {
  std::string out;
  std::vector<std::string> said;
  auto say = [&](const std::string& name, const std::string& what) {
    const std::string line = "  " + name + ": " + what + "\n";
    if (std::find(said.begin(), said.end(), line) != said.end()) return;
    said.push_back(line);
    out += line;
  };
  std::size_t answered = 0;
  std::map<std::string, std::size_t> of;  // how many plans are told it
  for (const Row& r : rows) {
    if (!r.plan->prediction) continue;
    ++answered;
    for (const std::string& e : r.plan->prediction->extrapolated) ++of[e];
  }
  auto hook = [](const Plan& plan) {
    const std::string set = systems::setting_of(plan, "comm_hook");
    return !set.empty() && set != "none";
  };
  bool another = false;
  for (const Row& r : rows) {
    if (!r.plan->prediction) continue;
    const systems::SystemRecord& s = systems::record_of(r.plan->plan.system);
    if (*s.schedule != 0) say(s.name(), s.schedule);
    for (const std::string& e : r.plan->prediction->extrapolated)
      if (of[e] < answered && !e.starts_with("it does not fit")) say(r.name, e);
    another = another || r.plan->prediction->paces || s.updates || hook(r.plan->plan);
  }
  if (another)
    out +=
        "  local_sgd, parameter_server without synchronous=true, and hooks that compress compute "
        "something else: how many more steps that needs is not judged\n";
  return out;
}

// `epoch`: null = no data set was named.
std::string table(const Loaded& l, const std::vector<Row>& rows, const Sampling* epoch) {
  const bool priced = epoch != nullptr;
  std::vector<std::vector<std::string>> cells;
  std::vector<std::string> head{"plan", "step", "samples/s", "exposed", "GiB a GPU"};
  if (priced) head.insert(head.end(), {"epoch", "cost"});
  head.push_back("limited by");
  cells.push_back(head);
  std::string refused;
  for (const Row& r : rows) {
    if (!r.plan->prediction) {
      refused += fmt::format("  {}: {}\n", r.name, r.plan->refused);
      continue;
    }
    const predict::Prediction& p = *r.plan->prediction;
    const bool fits = !p.memory || p.memory->fits();
    std::vector<std::string> row{
        (r.plan->asked ? "* " : "  ") + r.name, to_string(p.summary.step),
        report::count_text(p.samples_per_s),
        fmt::format("{:.1f} %", 100 * static_cast<double>(p.summary.exposed_communication.ps) /
                                    static_cast<double>(p.summary.step.ps)),
        memory_of(p) + (fits ? "" : " does not fit")};
    if (priced) {
      row.push_back(fmt::format("{:.2f} h", r.epoch_s / 3600));
      row.push_back(r.epoch_cost > 0 ? fmt::format("{:.2f}", r.epoch_cost) : "");
    }
    row.push_back(r.limit);
    cells.push_back(std::move(row));
  }
  std::vector<std::size_t> width(head.size());
  for (const auto& row : cells)
    for (std::size_t k = 0; k < row.size(); ++k) width[k] = std::max(width[k], row[k].size());
  std::string out =
      fmt::format("{}, {}, {} on {}: {} ranks; every plan by itself, those that fit first\n\n",
                  l.workload.name, batch_text(l.workload),
                  precision_text(l.workload, l.scenario.plan), l.cluster.name, l.scenario.ranks);
  for (const auto& row : cells) {
    std::string line;
    for (std::size_t k = 0; k < row.size(); ++k)
      line += k + 1 < row.size() ? fmt::format("{:<{}}  ", row[k], width[k]) : row[k];
    out += line + "\n";
  }
  for (const Row& r : rows)
    if (r.plan->asked) out += "\n* the plan that was asked for\n";
  if (epoch) out += "\nan epoch: " + epoch_sentence(*epoch, epoch_of(*epoch)) + "\n";
  out += what_fits(l, rows);
  bool known = false;
  for (const Row& r : rows)
    if (r.plan->prediction && r.plan->prediction->memory)
      known = known || r.plan->prediction->memory->activations;
  if (!known) out += "\nmemory is without activations, which this workload does not say\n";
  if (!refused.empty()) out += "\nnot on this cluster:\n" + refused;
  if (const std::string open = not_judged(rows); !open.empty())
    out += "\nwhat no run stands behind:\n" + open;
  return out;
}

std::string csv(const std::vector<Row>& rows) {
  std::string out =
      "system,settings,step_ps,samples_per_s,exposed_ps,memory_bytes,fits,epoch_s,epoch_cost,"
      "limited_by,asked,refused\n";
  for (const Row& r : rows) {
    const auto& p = r.plan->prediction;
    out += fmt::format("{},{},", ddpsim::name_of(r.plan->plan.system),
                       report::csv_field(r.plan->settings));
    if (p)
      out += fmt::format("{},{:.3f},{},{},{},{},{},{},{},\n", p->summary.step.ps, p->samples_per_s,
                         p->summary.exposed_communication.ps, p->memory ? p->memory->device : 0,
                         !p->memory || p->memory->capacity == 0 ? ""
                         : p->memory->fits()                    ? "yes"
                                                                : "no",
                         r.epoch_s > 0 ? fmt::format("{:.1f}", r.epoch_s) : "",
                         r.epoch_cost > 0 ? fmt::format("{:.2f}", r.epoch_cost) : "",
                         report::csv_field(r.limit), r.plan->asked ? "yes" : "no");
    else
      out += fmt::format(",,,,,,,,{},{}\n", r.plan->asked ? "yes" : "no",
                         report::csv_field(r.plan->refused));
  }
  return out;
}

io::OrderedJson json(const Loaded& l, const std::vector<Row>& rows, const Sampling* epoch) {
  io::OrderedJson j;
  j["schema"] = "ddpsim.ranked_plans/1";
  j["question"] = l.key;
  j["ranks"] = l.scenario.ranks;
  if (epoch) j["epoch"] = epoch_json(*epoch, epoch_of(*epoch));
  j["plans"] = io::OrderedJson::array();
  for (const Row& r : rows) {
    io::OrderedJson one;
    one["system"] = ddpsim::name_of(r.plan->plan.system);
    one["settings"] = r.plan->settings;
    one["asked"] = r.plan->asked;
    one["evidence"] = systems::record_of(r.plan->plan.system).evidence;
    if (const auto& p = r.plan->prediction) {
      one["step_ps"] = p->summary.step.ps;
      one["samples_per_s"] = p->samples_per_s;
      one["exposed_communication_ps"] = p->summary.exposed_communication.ps;
      one["memory_bytes"] = p->memory ? io::OrderedJson(p->memory->device) : io::OrderedJson();
      one["fits"] = p->memory && p->memory->capacity > 0 ? io::OrderedJson(p->memory->fits())
                                                         : io::OrderedJson();
      one["limited_by"] = r.limit;
      one["extrapolated"] = p->extrapolated;
      if (r.epoch_s > 0) one["epoch_s"] = r.epoch_s;
      if (r.epoch_cost > 0) one["epoch_cost"] = r.epoch_cost;
    } else {
      one["refused"] = r.plan->refused;
    }
    j["plans"].push_back(std::move(one));
  }
  return j;
}

// On all cores.
std::vector<predict::RankedPlan> ranked(Terminal& t, const Loaded& l) {
  const predict::Question q = l.question();
  predict::KnownTimes known(l.workload, l.profile);
  predict::Options options = l.options;
  options.times = &known;
  const std::vector<predict::RankedPlan> plans = predict::plans_to_rank(q);
  const auto n = static_cast<std::int64_t>(plans.size());
  const int jobs = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  Progress progress(t, "plans", 0, n, false);
  std::vector<predict::RankedPlan> out;
  in_order<predict::RankedPlan>(
      0, n, jobs, n, [&](std::int64_t k) { return predict::ask_plan(plans[k], q, options); },
      [&](std::int64_t, predict::RankedPlan plan) { out.push_back(std::move(plan)); },
      [&] { progress.show(static_cast<std::int64_t>(out.size())); });
  progress.show(n, true);
  predict::put_in_order(out);
  return out;
}

void rank_plans_command(Terminal& t, const RankPlansFlags& flags) {
  double price = flags.price.empty() ? 0 : parse_positive("--price-per-gpu-hour", flags.price, 1e6);
  if (price > 0 && flags.samples.empty())
    throw InputError{"--epoch-samples",
                     "is needed for the cost of an epoch: the number of samples of the data set, "
                     "--epoch-samples 1281167"};
  const auto samples =
      flags.samples.empty()
          ? std::int64_t{0}
          : static_cast<std::int64_t>(parse_positive("--epoch-samples", flags.samples, 1e15));
  Loaded l = load(t, flags.question);
  std::vector<predict::RankedPlan> plans = ranked(t, l);
  const Sampling sampling = sampling_of(l, samples);
  const Epoch epoch = epoch_of(sampling);
  const std::int64_t a_step = sampling.batch * sampling.accumulation * sampling.ranks;
  std::vector<Row> rows;
  for (const predict::RankedPlan& p : plans) {
    Row r{&p, name_of_plan(p),
          p.diagnosis    ? report::decider(*p.diagnosis)
          : p.prediction ? "memory"
                         : "",
          0, 0};
    if (p.prediction && samples > 0)
      r.epoch_s = static_cast<double>(epoch.steps * a_step) / p.prediction->samples_per_s;
    r.epoch_cost = r.epoch_s / 3600 * l.scenario.ranks * price;
    rows.push_back(std::move(r));
  }
  const std::string& format = flags.output.format;
  write_answer(t, flags.output,
               format == "json"  ? json(l, rows, samples > 0 ? &sampling : nullptr).dump(1) + "\n"
               : format == "csv" ? csv(rows)
                                 : table(l, rows, samples > 0 ? &sampling : nullptr));
}

}  // namespace

void add_rank_plans(Command& app, Terminal& t) {
  auto flags = std::make_shared<RankPlansFlags>();
  Command* c = app.add_subcommand(
      "rank-plans",
      "Every system that can train this workload on this cluster: step, memory, what it costs");
  add_question_flags(*c, flags->question);
  add_measured_flags(*c, flags->question);
  c->add_option("--price-per-gpu-hour", flags->price,
                "of one device: adds the cost of an epoch; needs --epoch-samples");
  c->add_option("--epoch-samples", flags->samples,
                "samples of the data set: adds the time of an epoch");
  add_output_flags(*c, flags->output, {"table", "json", "csv"});
  c->callback([&t, flags] { rank_plans_command(t, *flags); });
}

}  // namespace ddpsim::cli
