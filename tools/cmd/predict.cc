// ddpsim predict: how long one iteration takes, how sure that is, where the time goes, what limits
// it, what to try.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "sim/cost/roofline.h"
#include "sim/door/documents.h"
#include "sim/door/given_program.h"
#include "sim/io/known_errors.h"
#include "sim/io/write_page.h"
#include "sim/io/write_prediction.h"
#include "sim/model/gpu_name.h"
#include "sim/predict/known_times.h"
#include "sim/report/text.h"
#include "sim/systems/base/settings.h"
#include "sim/units/text.h"
#include "tools/cmd/describe.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/progress.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

// That executed steps on this project's hosts.
constexpr PytorchVersion kExecutedPytorch{1, 13};

struct PredictFlags {
  QuestionFlags question;
  DescribeFlags described;
  OutputFlags output;
  std::string step;
};

// Of a program: it has no plan, and its workload is a stand-in.
report::Heading heading_of_program(const Loaded& l) {
  const GivenProgram& given = *l.program;
  report::Heading h;
  h.workload = l.workload.name;
  if (l.workload.batch > 0) h.workload += fmt::format(", batch {} per rank", l.workload.batch);
  h.system = "communication";
  h.plan = plan_text(given);
  if (std::string nccl = nccl_text(l.scenario.plan); !nccl.empty()) h.plan += ", " + nccl;
  h.times = times_text(given);
  h.schedule = given.recorded_from.empty()
                   ? "the schedule is the program's"
                   : "the schedule is as recorded from " + given.recorded_from +
                         "; what its host launches is not in it";
  for (const RankGroups& g : given.program.groups)
    if (g.name.find(',') != std::string::npos)
      h.schedule += fmt::format(
          "; what ranks {} communicate, all groups of {} ranks, {} apart, are taken to communicate "
          "at the same time",
          g.name, g.size, g.stride);
  h.interval = report::interval_sentence(l.question());
  if (l.profile.step_residual <= 0 && !l.profile.measured())
    h.interval = "the datasheet's range for network and copies; computation as it is in the file";
  return h;
}

// What published steps of this kind say of such a prediction, and captures on one such GPU where
// the job has one. Of computation that was measured, or on a CPU, nothing: it is not described.
std::vector<std::string> known_errors(const Loaded& l, const io::Home& home) {
  constexpr int kLeast = 5;  // rows that a median is told of
  const bool several = l.scenario.ranks > 1;
  std::vector<std::string> out;
  auto off = [](double median) {
    return fmt::format("{:.{}f} % too {}", 100 * std::abs(median), std::abs(median) < 0.1 ? 1 : 0,
                       median < 0 ? "short" : "long");
  };
  const io::KnownErrors known = io::read_known_errors(l.documents.profile, l.profile.name);
  if (l.workload.basis == Basis::Described && !l.workload.measured_step &&
      l.profile.compute.basis == Evidence::Datasheet && l.profile.kind == DeviceKind::Gpu) {
    if (known.described && !several)
      out.push_back(fmt::format(
          "beside {} captures on this GPU, described computation was {:.0f} % too {} at the median "
          "({})",
          known.described->captures, 100 * std::abs(known.described->median),
          known.described->median < 0 ? "short" : "long", known.described->source));
    const Plan& plan = l.scenario.plan;
    const std::string system =
        plan.system.name() + systems::setting_of(plan, systems::record_of(plan.system).title_knob);
    const bool one_host = topology::on_one_host(*l.fabric, devices_of(l.scenario));
    const io::KnownFamily asked{
        several ? system : "any",
        !several   ? "one_gpu"
        : one_host ? "one_host"
                   : "several_hosts",
        l.profile.name,
        name_of(predict::computed_in(l.workload, predict::gathered_in(l.scenario.plan))),
        0,
        0,
        0,
        ""};
    const std::string kind = fmt::format("{}{}, {}, {}", several ? system + ", " : "",
                                         !several   ? "one GPU"
                                         : one_host ? "one host"
                                                    : "several hosts",
                                         l.profile.hardware, asked.precision);
    const std::string file = home.path() + "/calib/known_errors.json";
    const io::KnownFamily* found = nullptr;
    std::vector<io::KnownFamily> families;
    if (io::exists(file))
      families = io::read_known_families(io::parse_json(io::read_file(file), file), file);
    for (const io::KnownFamily& f : families)
      if (f.system == asked.system && f.hosts == asked.hosts && f.profile == asked.profile &&
          f.precision == asked.precision)
        found = &f;
    if (!found)
      out.push_back("no published step of this kind (" + kind + ") is known");
    else if (found->rows < kLeast)
      out.push_back(fmt::format("only {} published step{} of this kind ({}), too few to tell",
                                found->rows, found->rows == 1 ? "" : "s", kind));
    else
      out.push_back(fmt::format(
          "{} published steps of this kind ({}) from {} source{}: predicted {} at the median ({})",
          found->rows, kind, found->sources, found->sources == 1 ? "" : "s", off(found->median),
          found->report));
  }
  if (known.table_residual > 0 && several)
    out.push_back(
        fmt::format("of the tables of collectives that the network was fitted to, 80 % of the "
                    "sizes are within {:.0f} %",
                    100 * known.table_residual));
  return out;
}

report::Heading heading_of_plan(const Loaded& l, const io::Home& home) {
  report::Heading h;
  const Plan& plan = l.scenario.plan;
  bool tf32 = l.workload.basis == Basis::Described &&
              predict::computed_in(l.workload, predict::gathered_in(plan)) == Precision::Fp32 &&
              l.profile.compute.peak_flops[Precision::Tf32] > 0;
  h.workload = fmt::format(
      "{}, {}, {}{}{}", l.workload.name, batch_text(l.workload), precision_text(l.workload, plan),
      tf32 ? " (convolutions in TF32, as torch does by default)" : "", loop_text(l.workload));
  const systems::SystemRecord& system = systems::record_of(plan.system);
  h.system = system.brief;
  if (system.heading) {
    h.plan = system.heading(plan, l.profile.kind);
  } else {
    Plan others = plan;  // but what the title says
    for (const systems::KnobRecord& k : system.knobs)
      if (k.name == std::string_view(system.title_knob))
        others = systems::with_setting(plan, k.name, k.initially);
    const std::string set = systems::settings_text(others);
    h.plan = fmt::format("{} over {}", systems::title_of(plan),
                         name_of(backend_of(plan, l.profile.kind)));
    if (system.count)
      h.plan += fmt::format(", {} {}{}", system.count(l.workload, plan), system.units,
                            system.wraps ? " of weights" : "");
    if (!set.empty()) h.plan += ", " + set;
  }
  if (std::string nccl = nccl_text(plan); !nccl.empty()) h.plan += ", " + nccl;
  if (l.scenario.input && l.scenario.input->samples_per_s > 0)
    h.plan += fmt::format(", input at {:g} samples/s per rank", l.scenario.input->samples_per_s);
  if (l.scenario.input && l.scenario.input->bytes_per_sample > 0)
    h.plan += fmt::format(", {} a sample copied to the device{}",
                          to_string(Bytes{l.scenario.input->bytes_per_sample}),
                          l.scenario.input->ahead ? " ahead" : "");
  if (system.updates)
    h.plan += fmt::format(", a step of this answer is a round of {}", plan.accumulation_steps);
  else if (plan.accumulation_steps > 1)
    h.plan += fmt::format(
        ", {} accumulation steps{}", plan.accumulation_steps,
        system.bucketed && !uses_no_sync(plan) ? ", each of which reduces (no_sync=false)" : "");
  h.captured = l.workload.basis == Basis::Captured;
  if (h.captured) h.device = l.workload.device_name;
  h.known_errors = known_errors(l, home);
  h.interval = report::interval_sentence(l.question());
  if (system.schedule_of && *system.schedule_of(plan) != 0) {
    h.schedule = system.schedule_of(plan);
    return h;
  }
  if (*system.schedule != 0) {
    h.schedule = system.schedule;
    return h;
  }
  bool recorded =
      plan.pytorch == kExecutedPytorch && backend_of(plan, l.profile.kind) == Backend::Gloo;
  h.schedule = recorded ? "schedule checked against executed PyTorch 1.13 over Gloo"
                        : fmt::format(
                              "schedule of PyTorch {} over {} from source reading, not executed "
                              "(that of 1.13 over Gloo was)",
                              name_of(plan.pytorch), name_of(backend_of(plan, l.profile.kind)));
  return h;
}

report::Heading heading(const Loaded& l, const io::Home& home) {
  report::Heading h = l.program ? heading_of_program(l) : heading_of_plan(l, home);
  h.cluster = fmt::format("{}: {} rank{}", l.cluster.name, l.scenario.ranks,
                          l.scenario.ranks == 1 ? "" : "s");
  if (l.options.common_start) h.plan += ", all ranks begin the step together";
  h.profile = l.profile.name;
  h.basis = report::basis_text(l.profile);
  return h;
}

io::OrderedJson page_data(const Loaded& l, const std::vector<std::string>& sets,
                          const predict::Prediction& p, const std::vector<predict::Lever>& levers,
                          const report::Heading& h) {
  io::OrderedJson j{{"kind", "predict"},
                    {"title", l.workload.name + " on " + l.cluster.name},
                    {"ranks", l.scenario.ranks}};
  j["heading"] = {{"workload", h.workload},
                  {"cluster", h.cluster},
                  {"plan", h.plan},
                  {"system", h.system},
                  {"schedule", h.schedule},
                  {"limit", report::limit_sentence(h, p)},
                  {"interval", h.interval},
                  {"basis", report::basis_sentence(h, p)},
                  {"beside", report::beside_sentence(p)}};
  for (const std::string& known : h.known_errors)
    j["heading"]["interval"] =
        j["heading"]["interval"].get<std::string>() + "; known error: " + known;
  j["summary"] = io::write_summary(p);
  j["exposed_ps"] = io::OrderedJson::array();
  j["exposed_at_ps"] = io::OrderedJson::array();
  for (const analysis::BucketTimes& b : p.summary.buckets) {
    j["exposed_ps"].push_back(b.exposed.ps);
    j["exposed_at_ps"].push_back(io::OrderedJson::array());
    for (const auto& at : b.exposed_at) j["exposed_at_ps"].back().push_back({at.begin, at.end});
  }
  j["shown_step_ps"] = p.run.steps.back().duration.ps;
  j["actor"] = p.summary.actor;
  j["run"] = io::page_run(p.run);
  if (p.memory) j["memory"] = io::page_memory(*p.memory);
  j["levers"] = io::page_levers(levers);
  j["topology"] =
      io::page_topology(*l.fabric, predict::link_use(l.question(), p.summary.step, l.options));
  j["documents"] = page_documents(l, sets);
  return j;
}

// A profile that was named is taken, also where it is of another GPU than the cluster's.
void tell_other_gpu(Terminal& t, const Loaded& l) {
  io::Home home = home_of(t);
  std::string own = default_profile(home, l.cluster.profile);
  auto shipped = home.list("calib/profiles");
  if (std::find(shipped.begin(), shipped.end(), own) == shipped.end()) return;
  if (std::string hardware = load_profile(home, own).hardware;
      names_differ(hardware, l.profile.hardware))
    t.err << "ddpsim: note: the GPUs of " << l.cluster.name << " are " << hardware
          << ", and profile " << printable(l.profile.name) << " is of "
          << printable(l.profile.hardware) << "\n";
}

void check_script(const PredictFlags& flags) {
  const DescribeFlags& d = flags.described;
  if (d.script.empty()) {
    for (auto [flag, value] : {std::pair{"--optimizer-name ", &d.optimizer_name},
                               {"--python ", &d.python},
                               {"--timeout ", &d.timeout}})
      if (!value->empty()) throw InputError{flag + *value, "is of --script; name one"};
    if (d.allow_writes) throw InputError{"--allow-writes", "is of --script; name one"};
    return;
  }
  const QuestionFlags& q = flags.question;
  for (auto [flag, value] : {std::pair{"", &q.scenario},
                             {"--workload ", &q.workload},
                             {"--program ", &q.program},
                             {"--layers ", &q.layers}})
    if (!value->empty())
      throw InputError{flag + *value,
                       "names a workload, and so does --script; give one of them, and --cluster, "
                       "--ranks and --set beside it"};
}

// The job that the script sees has as many ranks as the one that is predicted.
int ranks_of_script(Terminal& t, const QuestionFlags& q) {
  if (q.cluster.empty())
    throw InputError{"--cluster", "no cluster given; name one (ddpsim list clusters)"};
  if (!q.ranks.empty()) return parse_ranks(q.ranks);
  std::vector<std::string> sets;
  for (const std::string& set : q.sets)
    if (io::parse_setting(set).target == io::Target::Cluster) sets.push_back(set);
  const Cluster cluster = load_cluster(t, q.cluster, sets);
  if (q.gpus_per_host.empty()) return cluster.devices();
  return cluster.hosts * parse_gpus_per_host(q.gpus_per_host, cluster);
}

// The workload is what the script trains; the loader takes what it gave its wrapper.
void describe_script(Terminal& t, PredictFlags& flags) {
  QuestionFlags& q = flags.question;
  flags.described.ranks = std::to_string(ranks_of_script(t, q));
  calib::Description found = describe(t, flags.described);
  q.workload = flags.described.script;
  q.described = io::parse_json(found.workload, q.workload);
  tell(t, q.workload, found.says);
}

void predict_command(Terminal& t, PredictFlags flags) {
  check_html(flags.output);
  check_script(flags);
  if (!flags.described.script.empty()) describe_script(t, flags);
  Loaded l = load(t, flags.question);
  l.options.common_start = from_common_start(flags.step);
  predict::KnownTimes known(l.workload, l.profile);
  l.options.times = &known;
  predict::Prediction p = timed(t, [&] { return predict::predict(l.question(), l.options); });
  p.run.key = l.key;
  if (!flags.question.profiles.empty()) tell_other_gpu(t, l);
  std::vector<predict::Lever> levers;
  report::Heading h = heading(l, home_of(t));
  if (flags.output.format == "table" || flags.output.format == "md" || !flags.output.html.empty())
    timed(t, [&] {
      levers = predict::levers(l.question(), p.summary.step, l.options);
      h.diagnosis = predict::diagnose(l.question(), p.summary.step, l.options);
    });
  std::string text;
  if (flags.output.format == "json") {
    text = io::write_prediction(p).dump(1) + "\n";
  } else if (flags.output.format == "csv") {
    text = report::prediction_csv(h, p);
  } else if (flags.output.format == "md") {
    text = report::prediction_markdown(h, p, levers);
  } else {
    bool colour = t.out_is_terminal && flags.output.out.empty();
    text = report::prediction_page(h, p, levers, colour);
  }
  write_html(t, flags.output, [&] { return page_data(l, flags.question.sets, p, levers, h); });
  write_answer(t, flags.output, text);
}

}  // namespace

void add_predict(Command& app, Terminal& t) {
  auto flags = std::make_shared<PredictFlags>();
  Command* c = app.add_subcommand(
      "predict",
      "Predict one training iteration: how long, how sure, where the time goes, what to try next");
  add_question_flags(*c, flags->question);
  add_measured_flags(*c, flags->question);
  add_program_flags(*c, flags->question);
  c->add_option("--script", flags->described.script,
                "a training script, unmodified, in place of --workload: its model, batch and "
                "optimizer are described, and its DDP arguments are the plan's knobs (ddpsim "
                "describe); it sends nothing, and what it writes goes to a folder that vanishes; "
                "its own arguments follow after --");
  add_describer_flags(*c, flags->described);
  add_step_flag(*c, flags->step);
  add_output_flags(*c, flags->output, {"table", "csv", "json", "md"});
  add_html_flag(*c, flags->output);
  c->callback([&t, flags] { predict_command(t, *flags); });
}

}  // namespace ddpsim::cli
