#include "tools/cmd/tune_horovod.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/io/codecs.h"
#include "sim/systems/base/settings.h"
#include "sim/tune/autotune.h"
#include "sim/units/text.h"

namespace ddpsim::cli {
namespace {

std::string setting_text(const systems::AutotuneSetting& s) {
  return fmt::format("{:>7.3f} MiB {:>8.3f} ms   {:<5} {:<12} {:<5}", s.fusion_mb, s.cycle_ms,
                     s.cache ? "yes" : "no",
                     s.hierarchical_allreduce ? "hierarchical"
                     : s.torus_allreduce      ? "torus"
                                              : "flat",
                     s.hierarchical_allgather ? "yes" : "no");
}

std::string course_table(const Loaded& l, const predict::AutotuneCourse& c, std::uint64_t seed) {
  std::string out = fmt::format(
      "HOROVOD_AUTOTUNE=1: {} on {}, {} ranks: {} settings of 50 steps after 150 that warm up\n",
      l.workload.name, l.cluster.name, l.scenario.ranks, c.tried.size());
  out += fmt::format("  until it settles: {} steps, {:.0f} s, a step {:.2f} % longer than now\n\n",
                     c.steps, static_cast<double>(c.lasts.ps) / 1e12,
                     100 * (static_cast<double>(c.lasts.ps) / static_cast<double>(c.steps) /
                                static_cast<double>(c.now.ps) -
                            1));
  out += fmt::format("  {:<4} {:>11} {:>11}   {:<5} {:<12} {:<10} {:>10} {:>12}\n", "", "fusion",
                     "cycle", "cache", "all-reduce", "all-gather", "step", "bytes/us");
  // The first pass, and of each the best.
  const std::size_t pass = 21;
  for (std::size_t i = 0; i < c.tried.size(); ++i) {
    const std::size_t from = i / pass * pass;
    const std::size_t to = std::min(from + pass, c.tried.size());
    const auto best =
        std::max_element(c.tried.begin() + static_cast<std::ptrdiff_t>(from),
                         c.tried.begin() + static_cast<std::ptrdiff_t>(to),
                         [](const auto& a, const auto& b) { return a.score < b.score; });
    const bool is_best = static_cast<std::size_t>(best - c.tried.begin()) == i;
    if (i >= pass && !is_best) continue;
    const predict::AutotuneCourse::Tried& x = c.tried[i];
    out += fmt::format("  {:<4} {}      {:>10} {:>12.1f}{}\n", i + 1, setting_text(x.setting),
                       to_string(x.step), x.score, is_best ? "  best of its pass" : "");
  }
  out += fmt::format("\nit settles on {}: {}\n", setting_text(c.best), to_string(c.tuned_step));
  out += fmt::format("the plan as it is ({}): {}, {:.2f} % {}\n",
                     systems::settings_text(l.scenario.plan).empty()
                         ? "defaults"
                         : systems::settings_text(l.scenario.plan),
                     to_string(c.now),
                     100 * std::abs(static_cast<double>(c.now.ps - c.tuned_step.ps)) /
                         static_cast<double>(c.tuned_step.ps),
                     c.now < c.tuned_step ? "shorter" : "longer");
  out +=
      "note: Horovod searches 0 to 64 MiB and 1 to 100 ms; its default, 128 MiB, is not among "
      "them\n";
  out += fmt::format(
      "note: after four fixed settings of a pass it draws from std::random_device; this is one "
      "course of many (--seed {})\n",
      seed);
  for (const std::string& note : c.notes) out += "note: " + note + "\n";
  return out;
}

io::OrderedJson setting_json(const systems::AutotuneSetting& s) {
  return {{"HOROVOD_FUSION_THRESHOLD", static_cast<std::int64_t>(s.fusion_mb * 1024 * 1024)},
          {"HOROVOD_CYCLE_TIME", s.cycle_ms},
          {"cache", s.cache},
          {"HOROVOD_HIERARCHICAL_ALLREDUCE", s.hierarchical_allreduce},
          {"HOROVOD_HIERARCHICAL_ALLGATHER", s.hierarchical_allgather},
          {"HOROVOD_TORUS_ALLREDUCE", s.torus_allreduce}};
}

io::OrderedJson course_json(const predict::AutotuneCourse& c, std::uint64_t seed) {
  io::OrderedJson j{{"schema", "ddpsim.autotune/1"},
                    {"seed", seed},
                    {"steps", c.steps},
                    {"lasts_ps", c.lasts.ps},
                    {"now_ps", c.now.ps},
                    {"tuned_ps", c.tuned_step.ps},
                    {"tuned", setting_json(c.best)},
                    {"tried", io::OrderedJson::array()},
                    {"notes", c.notes}};
  for (const auto& x : c.tried) {
    io::OrderedJson one = setting_json(x.setting);
    one["step_ps"] = x.step.ps;
    one["bytes_per_us"] = x.score;
    j["tried"].push_back(std::move(one));
  }
  return j;
}

}  // namespace

void autotune_command(Terminal& t, const Loaded& l, std::uint64_t seed, const OutputFlags& output) {
  if (!systems::record_of(l.scenario.plan.system).negotiates)
    throw InputError{"--autotune", fmt::format("is Horovod's own tuner (--plan horovod), and this "
                                               "plan is {}",
                                               ddpsim::name_of(l.scenario.plan.system))};
  if (output.format != "table" && output.format != "json")
    throw InputError{"--format " + output.format, "--autotune writes table and json"};
  const predict::AutotuneCourse c = predict::autotune(l.question(), l.options, seed);
  write_answer(
      t, output,
      output.format == "json" ? course_json(c, seed).dump(1) + "\n" : course_table(l, c, seed));
}

}  // namespace ddpsim::cli
