// ddpsim tune: the setting of a knob that makes the step shortest, how sure that is, and the lines
// to paste.
#include <fmt/format.h>

#include "sim/io/write_sharded_tuning.h"
#include "sim/io/write_tuning.h"
#include "sim/model/version.h"
#include "sim/predict/known_times.h"
#include "sim/predict/left_out.h"
#include "sim/report/sharded_text.h"
#include "sim/report/text.h"
#include "sim/report/tuning_text.h"
#include "sim/systems/base/settings.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/progress.h"
#include "tools/cmd/question.h"
#include "tools/cmd/tune_horovod.h"

namespace ddpsim::cli {
namespace {

struct TuneFlags {
  QuestionFlags question;
  OutputFlags output;
  std::string knob;
  std::string values;
  std::string price;
  std::string samples;
  std::string deadline;
  std::string memory_limit;
  bool no_levers = false;
  bool autotune = false;
  int seed = 1;
};

[[noreturn]] void refuse_knob(const std::string& name, const std::vector<std::string>& names,
                              const Plan& plan) {
  std::string list;
  for (const std::string& n : names) list += (list.empty() ? "" : ", ") + n;
  const std::string hint = io::nearest(name, names);
  throw InputError{
      "--knob " + name,
      fmt::format("is not a knob of {} to tune{}", ddpsim::name_of(plan.system),
                  hint.empty() ? "; known are " + list : " (did you mean \"" + hint + "\"?)")};
}

systems::Knob knob_of(const std::string& name, const Plan& plan) {
  std::vector<systems::Knob> known = systems::knobs(plan);
  if (known.empty())
    throw InputError{"tune", fmt::format("{} has no knob to tune (ddpsim rank-plans compares it "
                                         "with other systems)",
                                         ddpsim::name_of(plan.system))};
  if (name.empty()) return known.front();
  std::vector<std::string> names;
  for (const systems::Knob& k : known) {
    if (k.name == name) return k;
    names.push_back(k.name);
  }
  refuse_knob(name, names, plan);
}

// Of --values: what stands between commas.
std::vector<std::string> items_of(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t from = 0; !text.empty() && from <= text.size();) {
    std::size_t comma = std::min(text.find(',', from), text.size());
    out.push_back(text.substr(from, comma - from));
    from = comma + 1;
  }
  constexpr std::size_t kMost = 1000;
  if (out.size() > kMost) throw InputError{"--values", "at most 1,000 settings"};
  return out;
}

std::vector<systems::KnobValue> values_of(const std::string& text, const systems::Knob& knob) {
  std::vector<systems::KnobValue> out;
  for (const std::string& item : items_of(text)) {
    auto v = systems::parse_value(knob, item);
    if (!v)
      throw InputError{
          "--values " + text,
          fmt::format("\"{}\" is not a setting of {}{}", item, knob.name,
                      knob.unit.empty() ? "" : " (a positive number of " + knob.unit + ")")};
    out.push_back(*v);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.number < b.number; });
  return out;
}

// "2h", "90min", "7200s".
double seconds(const std::string& text) {
  if (!text.empty() && text.back() == 'h')
    return 3600 * parse_positive("--deadline", text.substr(0, text.size() - 1), 1e6);
  Parsed<Duration> d = parse_duration(text);
  if (!d.value || d.value->ps <= 0)
    throw InputError{"--deadline " + text, "expected a time such as 2h, 90min or 7200s"};
  return static_cast<double>(d.value->ps) / 1e12;
}

std::optional<predict::Scaling> scaling_of(const TuneFlags& f, const Loaded& l, const Plan& plan,
                                           const predict::Options& options) {
  if (f.price.empty() && f.samples.empty() && f.deadline.empty()) return {};
  if (f.samples.empty())
    throw InputError{"--epoch-samples",
                     "is needed for the time and cost of an epoch: the number of samples of the "
                     "data set, --epoch-samples 1281167"};
  double price = f.price.empty() ? 0 : parse_positive("--price-per-gpu-hour", f.price, 1e6);
  auto samples = static_cast<std::int64_t>(parse_positive("--epoch-samples", f.samples, 1e15));
  double deadline = f.deadline.empty() ? 0 : seconds(f.deadline);
  return predict::scaling(l.question(), plan, price, samples, deadline, options);
}

std::string jitter_of(const Scenario& s) {
  return s.jitter ? fmt::format("every step is the mean of {} with the scenario's jitter (cv {:g})",
                                s.jitter->samples, s.jitter->cv)
                  : "";
}

std::vector<std::string> notes_of(const Loaded& l) {
  std::vector<std::string> out = predict::what_is_left_out(l.workload, l.scenario.plan);
  if (std::string note = jitter_of(l.scenario); !note.empty()) out.push_back(note);
  return out;
}

report::TuningHeading heading(const Loaded& l) {
  report::TuningHeading h;
  const Plan& plan = l.scenario.plan;
  h.question =
      fmt::format("{}, {}, {}{} on {}: {} rank{}; {} over {}", l.workload.name,
                  batch_text(l.workload), precision_text(l.workload, plan), loop_text(l.workload),
                  l.cluster.name, l.scenario.ranks, l.scenario.ranks == 1 ? "" : "s",
                  systems::title_of(plan), ddpsim::name_of(backend_of(plan, l.profile.kind)));
  h.profile =
      fmt::format("profile {}: {}", l.profile.name, report::basis_sentence(l.profile, l.workload));
  h.interval = report::interval_sentence(l.question());
  if (std::string nccl = nccl_text(plan); !nccl.empty()) h.question += ", " + nccl;
  for (const std::string& note : notes_of(l)) h.profile += "\n" + note;
  return h;
}

// The decisions to search, with --knob and --values.
std::vector<systems::Decision> decisions_of(const TuneFlags& f, const Loaded& l) {
  const systems::DecidedFor of{l.workload, l.scenario.ranks, l.cluster.devices_per_host};
  std::vector<systems::Decision> all = systems::decisions(l.scenario.plan, of);
  if (f.knob.empty()) {
    if (!f.values.empty())
      throw InputError{"--values", "are of one knob: name it (--knob " + all.front().name + ")"};
    std::erase_if(all, [](const systems::Decision& d) { return !d.joint; });
    return all;
  }
  std::vector<std::string> names;
  for (systems::Decision& d : all) {
    names.push_back(d.name);
    if (d.name != f.knob) continue;
    std::vector<systems::Setting> settings;
    for (const std::string& item : items_of(f.values)) {
      auto s = systems::parse_setting(d, item, of);
      if (!s)
        throw InputError{"--values " + f.values,
                         fmt::format("\"{}\" is not a setting of {} ({})", item, d.name,
                                     systems::settings_help(d))};
      settings.push_back(std::move(*s));
    }
    if (!settings.empty()) d.settings = std::move(settings);
    return {std::move(d)};
  }
  refuse_knob(f.knob, names, l.scenario.plan);
}

// --memory-limit: in place of what the device has, and never more.
void limit_memory(const std::string& text, Profile& profile) {
  if (text.empty()) return;
  Parsed<Bytes> limit = parse_bytes(text);
  if (!limit.value || limit.value->count <= 0)
    throw InputError{"--memory-limit " + text, "expected a size such as 60GiB"};
  Bytes& capacity = profile.memory.capacity;
  if (capacity.count > 0 && limit.value->count > capacity.count)
    throw InputError{"--memory-limit " + text,
                     "is more than the device has, " + to_string(capacity)};
  capacity = *limit.value;
}

// Of searches that find settings themselves.
void check_size(const Workload& w) {
  if (w.arrival.size() > predict::kMostTuned)
    throw InputError{
        "tune",
        fmt::format("searches the settings of models of at most {} gradients, and this one has {}; "
                    "name those to choose from (--values 1,5,25,100)",
                    predict::kMostTuned, w.arrival.size())};
}

void tune_sharded_command(Terminal& t, const TuneFlags& f, Loaded& l) {
  limit_memory(f.memory_limit, l.profile);
  if (f.values.empty()) check_size(l.workload);
  predict::KnownTimes known(l.workload, l.profile);
  predict::ShardedOptions options{l.options, decisions_of(f, l), f.values.empty()};
  options.options.times = &known;
  if (f.samples.empty() && (!f.price.empty() || !f.deadline.empty()))
    scaling_of(f, l, l.scenario.plan, options.options);
  const predict::ShardedTuning tuning =
      timed(t, [&] { return predict::tune_sharded(l.question(), options); });
  const std::size_t chosen = tuning.recommended.value_or(tuning.current);
  const std::optional<predict::Scaling> scaling =
      scaling_of(f, l, tuning.tried[chosen].plan, options.options);
  auto answer = [&] {
    io::OrderedJson j = io::write_sharded_tuning(tuning);
    if (scaling) j["scaling"] = io::write_scaling(*scaling);
    j["system"] = ddpsim::name_of(l.scenario.plan.system);
    j["question"] = heading(l).question;
    j["profile"] = l.profile.name;
    j["basis"] = report::basis_sentence(l.profile, l.workload);
    j["interval"] = heading(l).interval;
    j["notes"] = notes_of(l);
    return j;
  };
  write_html(t, f.output, [&] {
    io::OrderedJson page = answer();
    page["title"] = fmt::format("{} on {}: {}", l.workload.name, l.cluster.name,
                                ddpsim::name_of(l.scenario.plan.system));
    page["version"] = kVersion;
    page["documents"] = page_documents(l, f.question.sets);
    return page;
  });
  const std::string& format = f.output.format;
  write_answer(t, f.output,
               format == "json"  ? answer().dump(1) + "\n"
               : format == "csv" ? report::sharded_csv(tuning, l.profile, l.workload)
               : format == "md"
                   ? report::sharded_markdown(heading(l), tuning)
                   : report::sharded_page(heading(l), tuning, scaling ? &*scaling : nullptr));
}

void tune_command(Terminal& t, const TuneFlags& flags) {
  // What can be refused without work is.
  check_html(flags.output);
  if (!flags.price.empty()) parse_positive("--price-per-gpu-hour", flags.price, 1e6);
  if (!flags.samples.empty()) parse_positive("--epoch-samples", flags.samples, 1e15);
  if (!flags.deadline.empty()) seconds(flags.deadline);
  Loaded l = load(t, flags.question);
  if (flags.autotune) {
    for (auto [flag, value] : {std::pair{"--knob ", &flags.knob},
                               {"--values ", &flags.values},
                               {"--memory-limit ", &flags.memory_limit},
                               {"--price-per-gpu-hour ", &flags.price},
                               {"--epoch-samples ", &flags.samples},
                               {"--deadline ", &flags.deadline}})
      if (!value->empty())
        throw InputError{flag + *value,
                         "is no matter of HOROVOD_AUTOTUNE, which tries what it tries; leave one "
                         "of the two out"};
    return autotune_command(t, l, static_cast<std::uint64_t>(flags.seed), flags.output);
  }
  const systems::DecidedFor of{l.workload, l.scenario.ranks, l.cluster.devices_per_host};
  if (!systems::decisions(l.scenario.plan, of).empty()) return tune_sharded_command(t, flags, l);
  if (!flags.memory_limit.empty())
    throw InputError{"--memory-limit",
                     "is of plans that shard (fsdp, fsdp2, zero1 to zero3): the "
                     "knobs of " +
                         std::string(ddpsim::name_of(l.scenario.plan.system)) +
                         " leave memory as it is"};
  predict::KnownTimes known(l.workload, l.profile);
  predict::TuneOptions options;
  options.options = l.options;
  options.options.times = &known;
  options.knob = knob_of(flags.knob, l.scenario.plan);
  if (options.knob.name == "first_bucket_bytes" &&
      !systems::setting_of(l.scenario.plan, "bucket_cap_mb").empty() &&
      l.scenario.plan.pytorch.has(pytorch::Change::CapHoldsForTheFirstBucket))
    throw InputError{"--knob first_bucket_bytes",
                     fmt::format("changes nothing in PyTorch {} where bucket_cap_mb is set: the "
                                 "cap holds for the first bucket, too; leave bucket_cap_mb out",
                                 name_of(l.scenario.plan.pytorch))};
  options.only = values_of(flags.values, options.knob);
  if (options.only.empty()) check_size(l.workload);
  options.levers = !flags.no_levers;
  options.partition = flags.values.empty();
  if (flags.samples.empty() && (!flags.price.empty() || !flags.deadline.empty()))
    scaling_of(flags, l, l.scenario.plan, options.options);
  predict::Tuning tuning = timed(t, [&] { return predict::tune(l.question(), options); });
  std::optional<predict::Scaling> scaling =
      scaling_of(flags, l, tuning.recommended, options.options);
  const predict::Scaling* s = scaling ? &*scaling : nullptr;
  auto answer = [&] {
    io::OrderedJson j = io::write_tuning(tuning, s);
    j["question"] = heading(l).question;
    j["profile"] = l.profile.name;
    j["basis"] = report::basis_sentence(l.profile, l.workload);
    j["interval"] = heading(l).interval;
    j["notes"] = notes_of(l);
    return j;
  };
  write_html(t, flags.output, [&] {
    io::OrderedJson page = answer();
    page["kind"] = "tune";
    page["title"] = fmt::format("{} on {}: {}", l.workload.name, l.cluster.name, options.knob.name);
    page["version"] = kVersion;
    page["documents"] = page_documents(l, flags.question.sets);
    return page;
  });
  const std::string& format = flags.output.format;
  write_answer(t, flags.output,
               format == "json"  ? answer().dump(1) + "\n"
               : format == "csv" ? report::tuning_csv(tuning, l.profile, l.workload)
               : format == "md"  ? report::tuning_markdown(heading(l), tuning, s)
                                 : report::tuning_page(heading(l), tuning, s));
}

}  // namespace

void add_tune(Command& app, Terminal& t) {
  auto flags = std::make_shared<TuneFlags>();
  Command* c = app.add_subcommand("tune",
                                  "Find the bucket size (or another knob's setting) that makes the "
                                  "step shortest, and what would gain more");
  add_question_flags(*c, flags->question);
  add_measured_flags(*c, flags->question);
  c->add_option("--knob", flags->knob,
                "what to tune: bucket_cap_mb (default) or first_bucket_bytes of pytorch_ddp; "
                "granularity (default) or async_op of averaging; of fsdp, fsdp2 and zero one "
                "decision (units, shard_degree, reduce_bucket_size, ...) instead of all together");
  c->add_option("--values", flags->values, "choose among these settings only: 1,5,25");
  c->add_option("--memory-limit", flags->memory_limit,
                "fsdp, fsdp2, zero: what a device may hold (60GiB), in place of what it has; "
                "nothing that does not fit is recommended");
  c->add_option("--price-per-gpu-hour", flags->price,
                "of one device: adds cost per epoch by number of ranks; needs --epoch-samples");
  c->add_option(
      "--epoch-samples", flags->samples,
      "samples of the data set: adds time per epoch and scaling efficiency by number of ranks");
  c->add_option("--deadline", flags->deadline,
                "of an epoch (2h, 90min): the cheapest number of ranks that keeps it");
  c->add_flag("--no-levers", flags->no_levers, "leave out what else would gain");
  c->add_flag("--autotune", flags->autotune,
              "horovod: what HOROVOD_AUTOTUNE would try, how long that takes and what it settles "
              "on, by predicted steps");
  c->add_option("--seed", flags->seed, "of --autotune: which course of its random search")
      ->range(0, 1'000'000'000);
  add_output_flags(*c, flags->output, {"table", "json", "csv", "md"});
  add_html_flag(*c, flags->output);
  c->callback([&t, flags] { tune_command(t, *flags); });
}

}  // namespace ddpsim::cli
