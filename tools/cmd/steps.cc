#include "tools/cmd/steps.h"

#include <algorithm>
#include <array>
#include <map>
#include <thread>

#include "sim/cost/roofline.h"
#include "sim/door/loader.h"
#include "sim/io/read_steps.h"
#include "sim/predict/joint_spread.h"
#include "sim/predict/measured_step.h"
#include "sim/predict/mechanisms.h"
#include "sim/predict/step_error.h"
#include "tools/cmd/executed.h"
#include "tools/cmd/pool.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

using namespace validation;

bool is_path(const std::string& name) {
  return name.find('/') != std::string::npos;
}

// A row's question, with a mechanism taken out of it.
struct Parts {
  Asked asked;  // what the fabric is of, where nothing was taken out
  Workload workload;
  Profile profile;
  Scenario scenario;
  std::optional<topology::Fabric> fabric;
  predict::Options options;
  predict::Question question() const {
    return {workload, fabric ? *fabric : *asked.hardware->fabric, profile, scenario};
  }
};

Parts parts_of(Loader& loader, const std::string& folder, const PublishedStep& row,
               std::optional<predict::Mechanism> without, const std::string& constant = "") {
  Choice c;
  c.workload = is_path(row.workload) ? folder + "/" + row.workload : row.workload;
  c.cluster = is_path(row.cluster) ? folder + "/" + row.cluster : row.cluster;
  c.profile = row.profile;
  c.ranks = std::to_string(row.ranks);
  for (const std::string& set : row.sets) c.settings.push_back(io::parse_setting(set));
  if (!constant.empty()) c.settings.push_back(io::parse_setting(constant));
  Parts out{loader.ask(c), {}, {}, {}, {}, {}};
  out.workload = out.asked.workload->workload;
  out.profile = out.asked.hardware->device->profile;
  out.scenario = out.asked.scenario;
  out.options = out.asked.options;
  out.options.names = false;
  out.options.warmup = false;
  if (without) {
    Cluster cluster = out.asked.hardware->cluster;
    predict::remove(*without, out.workload, cluster, out.profile, out.scenario);
    out.fabric.emplace(cluster);
    out.options.without = without;
    out.options.known = nullptr;
  }
  return out;
}

// Of one GPU by itself.
Duration forward_and_backward(const Parts& q, const Profile& p, Level level) {
  StepTimes t = predict::step_times(q.workload, p, level);
  if (q.options.without == predict::Mechanism::HostLane) t.host.reset();
  t.optimizer = {};
  if (t.host) t.host->optimizer = {};
  return predict::one_rank_step(t, 1);
}

void predict_row(const Parts& p, bool interval, StepResult& out) {
  if (out.row.unit == StepUnit::MsForwardBackward) {
    out.predicted = out.low = out.high = forward_and_backward(p, p.profile, Level::Mid);
    if (interval) {
      Profile ends = predict::with_joint_spread(p.workload, p.profile, 1);
      if (const predict::StepError* family = predict::step_error(p.question())) {
        out.low = scale(out.predicted, family->low);
        out.high = scale(out.predicted, family->high);
        ends = predict::without_spreads(p.profile);
      }
      out.low = std::min(out.low, forward_and_backward(p, ends, Level::High));
      out.high = std::max(out.high, forward_and_backward(p, ends, Level::Low));
    }
  } else {
    predict::Options options = p.options;
    options.interval = interval;
    predict::Prediction x = predict::predict(p.question(), options);
    out.predicted = x.summary.step;
    out.low = x.step_low;
    out.high = x.step_high;
  }
  out.error = out.predicted / out.measured - 1;
}

}  // namespace

std::vector<PublishedStep> load_steps(const std::string& folder) {
  std::vector<PublishedStep> out;
  for (const std::string& file : run_files(folder)) {
    std::vector<PublishedStep> rows =
        io::read_steps(io::parse_json(io::read_file(file), file), file);
    for (const PublishedStep& row : rows)
      if (auto other = std::find_if(
              out.begin(), out.end(),
              [&](const PublishedStep& o) { return o.id == row.id || o.source == row.source; });
          other != out.end())
        throw InputError{
            file, "source \"" + row.source + "\" or row \"" + row.id + "\" is also another file's"};
    out.insert(out.end(), rows.begin(), rows.end());
  }
  if (out.empty())
    throw InputError{folder, "holds no published steps (docs/formats.md, ddpsim.steps/1)"};
  return out;
}

std::vector<StepResult> predict_steps(const Terminal& t, const std::string& folder,
                                      const std::vector<PublishedStep>& rows,
                                      const std::string& without, bool intervals) {
  std::optional<predict::Mechanism> removed;
  if (!without.empty()) removed = predict::parse_mechanism(without);
  std::map<std::string, const PublishedStep*> by_id;
  std::vector<StepResult> asked;
  for (const PublishedStep& row : rows) {
    by_id[row.id] = &row;
    StepResult r;
    r.row = row;
    r.measured = measured_step(row);
    r.question = row.ranks == 1 ? StepQuestion::OneGpu : StepQuestion::SeveralGpus;
    asked.push_back(r);
    if (row.one_gpu.empty()) continue;
    r.question = row.hosts == 1 ? StepQuestion::OneHost : StepQuestion::SeveralHosts;
    asked.push_back(r);
  }
  const io::Home home = home_of(t);
  const std::vector<std::string> profiles = home.list("calib/profiles");
  const std::vector<std::string> clusters = home.list("topologies");
  auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  Loader loader(context_of(t), {});
  auto predicted = [&](StepResult r, bool interval) {
    if (!has(profiles, r.row.profile))
      r.why_not = "no profile " + r.row.profile + " is shipped";
    else if (!is_path(r.row.cluster) && !has(clusters, r.row.cluster))
      r.why_not = "no cluster " + r.row.cluster + " is shipped";
    if (!r.why_not.empty()) return r;
    try {
      Parts p = parts_of(loader, folder, r.row, removed, r.constant);
      r.generation = generation_of(p.profile.compute.capability);
      if (is_relative(r.question)) {
        const PublishedStep& one = *by_id.at(r.row.one_gpu);
        const Parts alone = parts_of(loader, folder, one, removed);
        p.workload =
            predict::scaled_to(measured_step(one), {alone.workload, one.accumulation_steps},
                               {p.workload, r.row.accumulation_steps}, p.profile);
        p.scenario.input.reset();  // it is in what one GPU measured
      }
      predict_row(p, interval, r);
    } catch (const InputError& e) {
      r.why_not = e.where + ": " + e.what;
    }
    return r;
  };
  // Rows once more with other values of the constant that was fitted to them.
  struct Constant {
    std::string setting;
    std::vector<const char*> values;
    bool (*of)(StepQuestion);
    std::vector<const char*> left_out;
  };
  const Constant constants[] = {
      {"profile.kernels.fed=",
       {"200", "250", "300", "350", "400", "450", "500", "600", "800", "1600"},
       [](StepQuestion q) { return q == StepQuestion::OneGpu; },
       {"source", "generation"}},
      {"profile.stragglers.cv.mid=",
       {"0", "0.005", "0.01", "0.015", "0.02", "0.025", "0.03"},
       is_relative,
       {"source"}}};
  auto all = [&](const std::vector<StepResult>& questions, bool interval) {
    auto make = [&](std::int64_t i) { return predicted(questions[i], interval); };
    std::vector<StepResult> out;
    auto jobs = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    auto count = static_cast<std::int64_t>(questions.size());
    in_order<StepResult>(
        0, count, jobs, count, make,
        [&](std::int64_t, StepResult r) { out.push_back(std::move(r)); }, [] {});
    return out;
  };
  std::vector<StepResult> out = all(asked, intervals);
  if (removed || !intervals) return out;
  // The constant is chosen by errors alone; what is chosen has an interval, too.
  std::vector<StepResult> chosen;
  for (const Constant& c : constants) {
    std::vector<std::vector<StepResult>> by_constant;
    for (const char* value : c.values) {
      std::vector<StepResult> with;
      for (const StepResult& r : asked)
        if (c.of(r.question)) with.push_back(r), with.back().constant = c.setting + value;
      by_constant.push_back(all(with, false));
    }
    if (by_constant.front().empty()) continue;
    for (const char* by : c.left_out)
      for (StepResult& r : left_out(by_constant, by)) chosen.push_back(std::move(r));
  }
  for (StepResult& r : all(chosen, true)) out.push_back(std::move(r));
  return out;
}

}  // namespace ddpsim::cli
