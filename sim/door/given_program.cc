#include "sim/door/given_program.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/cost/roofline.h"
#include "sim/door/documents.h"
#include "sim/io/program_file.h"
#include "sim/predict/given_program.h"
#include "sim/predict/lowered.h"
#include "sim/systems/base/input.h"
#include "sim/systems/base/record.h"
#include "sim/units/convert.h"

namespace ddpsim::door {
namespace {

// What a plan says of how collectives are performed, and not of which there are.
constexpr const char* kOfCollectives[] = {"backend",   "nccl",          "environment",
                                          "pytorch",   "gloo_threads",  "tcp_streams",
                                          "algorithm", "gloo_algorithm"};

bool of_workers(const std::string& knob) {
  return knob == "gloo_threads" || knob == "tcp_streams";
}

template <class Each>
void each_step(const Program& p, Each each) {
  for (const StepProgram& s : p.warmup) each(s);
  each(p.steady);
}

std::string program_name(const std::string& file) {
  std::string out = file.substr(file.rfind('/') + 1);
  for (const char* ending : {".gz", ".json", ".program"})
    if (std::string e = ending; out.size() > e.size() && out.ends_with(e))
      out.resize(out.size() - e.size());
  return out;
}

}  // namespace

void refuse_beside_program(const QuestionText& f, const std::vector<io::Setting>& settings) {
  if (f.program.empty()) {
    if (!f.compute_scale.empty())
      throw InputError{"--compute-scale " + f.compute_scale, "is of --program; name one"};
    return;
  }
  for (auto [flag, value] : {std::pair{"", &f.scenario},
                             {"--workload ", &f.workload},
                             {"--plan ", &f.plan},
                             {"--layers ", &f.layers},
                             {"--measured-step ", &f.measured_step},
                             {"--samples-per-s ", &f.samples_per_s}})
    if (!value->empty())
      throw InputError{flag + *value,
                       "a program is the workload and the plan; give --program, --cluster and "
                       "what is about them"};
  for (const io::Setting& s : settings) {
    if (s.target == io::Target::Cluster || s.target == io::Target::Profile) continue;
    bool plan = s.target == io::Target::Scenario && s.path.front() == "plan";
    bool known = plan && s.path.size() > 1 &&
                 std::find(std::begin(kOfCollectives), std::end(kOfCollectives), s.path[1]) !=
                     std::end(kOfCollectives);
    if (s.target == io::Target::Workload || (plan && !known))
      throw InputError{"--set " + s.text,
                       "changes what is lowered, and a program is; change its file"};
    if (s.path.front() == "input")
      throw InputError{
          "--set " + s.text,
          "a program has its input in it (ddpsim show program --set input.samples_per_s"
          "=1200 --format json)"};
    if (s.path.front() == "measured_step")
      throw InputError{"--set " + s.text, "a program's computation is scaled by --compute-scale"};
    if (s.path.front() == "other_jobs")
      throw InputError{"--set " + s.text, "a program is predicted by itself"};
  }
}

void give_program(const QuestionText& f, Asked& asked) {
  const std::string text = io::read_file(f.program);
  io::ProgramFile read = io::read_playable(io::parse_json(text, f.program), f.program,
                                           asked.hardware->device->profile.kind);
  Scenario& s = asked.scenario;
  Plan& plan = s.plan;
  if (read.backend && plan.backend && *read.backend != *plan.backend)
    throw InputError{
        f.program + "#/backend",
        fmt::format("its collectives go over {}, and {} is asked for; lower it for "
                    "that (ddpsim show program --set backend={})",
                    name_of(*read.backend), name_of(*plan.backend), name_of(*plan.backend))};
  if (read.backend) plan.backend = read.backend;
  auto given = std::make_shared<GivenProgram>();
  Program& p = given->program = std::move(read.program);
  p.backend = backend_of(plan, p.device);
  if (p.worker_threads == 0)
    p.worker_threads = worker_threads(plan, p.backend);
  else
    for (const std::string& set : f.sets)
      if (io::Setting one = io::parse_setting(set); one.path.size() > 1 && of_workers(one.path[1]))
        throw InputError{"--set " + set, "the program says how many workers it has"};
  plan.accumulation_steps = p.micro_steps;
  if (s.ranks == 0) s.ranks = read.ranks;
  if (s.ranks != read.ranks && !read.of_any_ranks)
    throw InputError{
        "--ranks " + std::to_string(s.ranks),
        fmt::format("the program is of {} ranks, and bytes of its collectives depend on that "
                    "(shards); record or lower it for {}",
                    read.ranks, s.ranks)};
  given->file = f.program;
  given->name = read.name.empty() ? program_name(f.program) : read.name;
  given->recorded_from = read.recorded_from;
  if (!f.compute_scale.empty()) {
    constexpr double kMost = 100;
    given->scaled = f.compute_scale;
    predict::scale_computation(p, parse_positive("--compute-scale", f.compute_scale, kMost));
  }
  auto part = std::make_shared<WorkloadPart>();
  part->workload = predict::stand_in(p, given->name, std::move(read.tensors), read.batch);
  part->name = f.program;
  part->file = f.program;
  constexpr std::uint64_t kOffset = 0xcbf29ce484222325ull;
  part->document = {{"name", given->name},
                    {"program", f.program},
                    {"contents", fmt::format("{:016x}", fnv1a(kOffset, text))},
                    {"ranks", read.ranks}};
  if (!given->scaled.empty()) part->document["compute_scale"] = given->scaled;
  if (!given->recorded_from.empty()) part->document["recorded_from"] = given->recorded_from;
  asked.workload = std::move(part);
  asked.options.program = &given->program;
  asked.program = std::move(given);
}

void check_given_program(const QuestionText& f, const Asked& asked) {
  const Program& p = asked.program->program;
  if (auto problem = predict::check_program(p, asked.question(), asked.options.known))
    throw InputError{f.program + "#" + problem.path, problem.message};
  if (asked.options.fidelity == predict::Fidelity::Message && !predict::by_message(p))
    throw InputError{"--fidelity message",
                     std::string("plays all-reduces and broadcasts over ") + name_of(p.backend) +
                         ", and the program has other collectives; use --fidelity collective"};
}

void check_period(const Asked& asked) {
  predict::Options options = asked.options;
  options.fidelity = predict::Fidelity::Collective;
  if (predict::steady_period(asked.question(), Level::Mid, options).ps <= 0)
    throw InputError{asked.program->file + "#/steps",
                     "its steady step takes no time: the last operation of a step is its end, and "
                     "here it waits for nothing that takes any"};
}

Program lowered_program(const Loaded& l) {
  if (l.program) return l.program->program;
  StepTimes times =
      predict::step_times(l.workload, l.profile, Level::Mid, predict::gathered_in(l.scenario.plan));
  Program p = predict::lowered(l.question(), times);
  if (l.scenario.input) systems::feed(p, predict::batch_times(l.question()));
  if (!p.coordination) return p;
  p = predict::steady_step(l.question(), Level::Mid, l.options).program;
  p.coordination.reset();
  p.warmup.clear();
  return p;
}

ProgramSize size_of(const Program& p, const Profile& profile) {
  ProgramSize most;
  double bandwidth = profile.memory.bandwidth_bytes_per_s * profile.memory.efficiency.low;
  Duration each = profile.memory.kernel + profile.host.launch + profile.host.hook +
                  profile.host.collective_launch;
  auto tensors = static_cast<double>(p.tensor_names.size());
  each_step(p, [&](const StepProgram& s) {
    ProgramSize size;
    for (const Op& op : s.ops) {
      double counted = 1 + op.kernels + op.hooks;
      size.seconds += seconds(op.duration) + static_cast<double>(op.traffic) / bandwidth +
                      counted * seconds(each);
      if (op.cost == Cost::Traverse) size.seconds += tensors * seconds(profile.host.traverse);
      if (!is_collective(op.kind)) continue;
      size.bytes += static_cast<double>(op.bytes);
      size.collectives += 1;
    }
    if (profile.memory.half_divide_bytes_per_s > 0)
      for (const Bucket& b : s.buckets)
        size.seconds +=
            static_cast<double>(b.wire_bytes.count) / profile.memory.half_divide_bytes_per_s;
    most.seconds = std::max(most.seconds, size.seconds);
    most.bytes = std::max(most.bytes, size.bytes);
    most.collectives = std::max(most.collectives, size.collectives);
  });
  return most;
}

std::string plan_text(const GivenProgram& p) {
  const auto& ops = p.program.steady.ops;
  auto collectives =
      std::count_if(ops.begin(), ops.end(), [](const Op& op) { return is_collective(op.kind); });
  return fmt::format("program {}: {} operations a step, {} of them collectives, over {}", p.file,
                     ops.size(), collectives, name_of(p.program.backend));
}

std::string times_text(const GivenProgram& p) {
  std::string out = p.recorded_from.empty()
                        ? "times of computation as the program says"
                        : "times of computation are those of the machine that recorded the "
                          "program (" +
                              p.recorded_from + ")";
  if (!p.scaled.empty()) out += ", times " + p.scaled;
  return out;
}

}  // namespace ddpsim::door
