// ddpsim import horovod-timeline FILE: what Horovod fused, and what that took, as a table and as a
// measured Run.
#include "tools/cmd/import_horovod.h"

#include <algorithm>
#include <map>
#include <ostream>
#include <set>

#include <fmt/format.h>

#include "sim/io/codecs.h"
#include "sim/io/horovod_timeline.h"
#include "sim/model/version.h"
#include "sim/report/text.h"
#include "sim/units/text.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/import_traces.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

struct TimelineFlags {
  std::string file;
  std::string run;
  std::string name;
  OutputFlags output;
};

using Times = std::vector<std::int64_t>;  // microseconds

std::int64_t median_of(Times v) {
  if (v.empty()) return 0;
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

// What the steps after the first say.
struct Told {
  Times steps;
  Times reductions;                      // of a step
  Times waited;                          // of a reduction, from the last request to its begin
  std::map<std::string, Times> of_step;  // an activity's time in a step
  std::size_t ways = 0;                  // different ones in which steps were fused
  Times cycles;                          // from one to the next
};

Told told_by(const io::HorovodTimeline& t) {
  Told out;
  std::set<std::set<std::vector<std::size_t>>> ways;
  std::int64_t before = -1;
  for (std::size_t k = 0; k < t.steps.size(); ++k) {
    std::int64_t end = 0;
    std::set<std::vector<std::size_t>> sets;
    std::map<std::string, std::int64_t> activities;
    for (const io::TimelineReduction& r : t.steps[k]) {
      end = std::max(end, r.end);
      std::vector<std::size_t> sorted = r.tensors;
      std::sort(sorted.begin(), sorted.end());
      sets.insert(std::move(sorted));
      for (const io::TimelineActivity& a : r.activities) activities[a.name] += a.end - a.begin;
      if (k > 0) out.waited.push_back(r.begin - r.asked);
    }
    if (k > 0) {
      out.steps.push_back(end - before);
      out.reductions.push_back(static_cast<std::int64_t>(t.steps[k].size()));
      for (const auto& [name, us] : activities) out.of_step[name].push_back(us);
      ways.insert(std::move(sets));
    }
    before = end;
  }
  out.ways = ways.size();
  for (std::size_t i = 1; i < t.cycles.size(); ++i)
    out.cycles.push_back(t.cycles[i] - t.cycles[i - 1]);
  return out;
}

double in_ms(std::int64_t us) {
  return static_cast<double>(us) / 1e3;
}

std::string timeline_table(const io::HorovodTimeline& t, const Told& told) {
  std::string out =
      fmt::format("Horovod's timeline: {} steps, {} tensors{}\n", t.steps.size(), t.tensors.size(),
                  t.ranks > 0 ? fmt::format(", {} ranks", t.ranks) : "");
  auto row = [&](const std::string& what, const Times& v, bool times) {
    if (v.empty()) return;
    const auto [least, most] = std::minmax_element(v.begin(), v.end());
    out += times
               ? fmt::format("  {:<34} {:>12.3f} {:>12.3f} {:>12.3f}\n", what, in_ms(median_of(v)),
                             in_ms(*least), in_ms(*most))
               : fmt::format("  {:<34} {:>12} {:>12} {:>12}\n", what, median_of(v), *least, *most);
  };
  out += fmt::format("  {:<34} {:>12} {:>12} {:>12}\n", "after the first step", "median", "least",
                     "most");
  row("step, ms", told.steps, true);
  row("reductions of a step", told.reductions, false);
  row("asked until begun, ms", told.waited, true);
  for (const auto& [name, v] : told.of_step) row(name + " of a step, ms", v, true);
  row("from cycle to cycle, ms", told.cycles, true);
  if (!told.steps.empty())
    out += fmt::format("  {} of {} steps were fused in a way of their own\n", told.ways,
                       told.steps.size());
  for (std::size_t r = 0; r < t.last_rank.size(); ++r)
    if (t.last_rank[r] > 0)
      out += fmt::format("  rank {} asked last for {} tensors (by name)\n", r, t.last_rank[r]);
  for (const std::string& note : t.notes) out += "note: " + printable(note) + "\n";
  return out;
}

io::OrderedJson timeline_json(const io::HorovodTimeline& t) {
  io::OrderedJson j{{"schema", "ddpsim.horovod_timeline/1"},
                    {"ranks", t.ranks},
                    {"tensors", io::OrderedJson::array()},
                    {"steps", io::OrderedJson::array()}};
  for (const auto& tensor : t.tensors)
    j["tensors"].push_back(
        {{"name", tensor.name}, {"dtype", tensor.dtype}, {"elements", tensor.elements}});
  for (const auto& step : t.steps) {
    io::OrderedJson reductions = io::OrderedJson::array();
    for (const io::TimelineReduction& r : step) {
      io::OrderedJson one{{"tensors", r.tensors},
                          {"asked_us", r.asked},
                          {"begin_us", r.begin},
                          {"end_us", r.end},
                          {"activities", io::OrderedJson::array()}};
      for (const io::TimelineActivity& a : r.activities)
        one["activities"].push_back({{"name", a.name}, {"begin_us", a.begin}, {"end_us", a.end}});
      reductions.push_back(std::move(one));
    }
    j["steps"].push_back(std::move(reductions));
  }
  j["cycles_us"] = t.cycles;
  j["notes"] = t.notes;
  return j;
}

void import_timeline(Terminal& t, const TimelineFlags& f) {
  if (!f.run.empty()) io::check_place(f.run);
  const io::HorovodTimeline timeline =
      io::read_horovod_timeline(io::read_file(f.file), printable(f.file));
  if (!f.run.empty()) {
    Run run = io::run_of(timeline);
    const std::string file = f.file.substr(f.file.find_last_of('/') + 1);
    run.key = fmt::format("horovod/{}/n{}", f.name.empty() ? file : f.name, timeline.ranks);
    run.origin.version = kVersion;
    run.origin.argv = {"ddpsim"};
    run.origin.argv.insert(run.origin.argv.end(), t.arguments.begin(), t.arguments.end());
    run.origin.backend = "horovod";
    run.origin.hosts = "machines";
    run.origin.compute = "real";
    run.origin.software = "Horovod, with its timeline on, which doubles what cycles agree on";
    std::string text = json_text(io::write_run(run));
    io::read_run(io::parse_json(text, "import"), "import");  // what is written can be read
    write_output(t, f.run, text);
    t.written += fmt::format("ddpsim: wrote {}: {} steps\n", printable(f.run), run.steps.size());
  }
  write_answer(t, f.output,
               f.output.format == "json" ? json_text(timeline_json(timeline))
                                         : timeline_table(timeline, told_by(timeline)));
  if (f.run.empty())
    t.err << "ddpsim: --run FILE.json writes the steps as a measured Run (ddpsim show run, "
             "ddpsim compare)\n";
}

}  // namespace

void add_import_horovod(Command& import, Terminal& t) {
  auto f = std::make_shared<TimelineFlags>();
  Command* c = import.add_subcommand(
      "horovod-timeline",
      "Horovod's timeline (HOROVOD_TIMELINE, of rank 0): what was fused and what that took, as a "
      "measured Run");
  c->add_option("file", f->file, "what HOROVOD_TIMELINE named, gzip or not, up to 64 MiB")
      ->required();
  c->add_option("--run", f->run, "file to write: the steps, with spans, as a measured Run");
  c->add_option("--name", f->name, "what it was, for people; default: the file's name");
  add_output_flags(*c, f->output, {"table", "json"});
  c->callback([&t, f] { import_timeline(t, *f); });
}

}  // namespace ddpsim::cli
