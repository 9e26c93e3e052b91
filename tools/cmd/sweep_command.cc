// ddpsim sweep: a prediction for every point of some axes, on all cores, streamed to a file that a
// killed sweep is continued from. ddpsim merge: its shards.
#include <ostream>
#include <stdexcept>
#include <thread>
#include <utility>

#include <fmt/format.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "sim/io/lines.h"
#include "sim/report/text.h"
#include "sim/sweep/flips.h"
#include "sim/sweep/resume.h"
#include "sim/sweep/summary.h"
#include "sim/units/number.h"
#include "tools/cmd/crash.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/pool.h"
#include "tools/cmd/processes.h"
#include "tools/cmd/progress.h"
#include "tools/cmd/sweep.h"
#include "tools/cmd/sweep_text.h"

namespace ddpsim::cli {

using namespace sweep;

namespace {

constexpr std::int64_t kBlock = 16;            // points a thread takes at once
constexpr std::int64_t kAhead = 1024;          // blocks that may wait for an earlier one
constexpr std::int64_t kMostKept = 1'000'000;  // rows of a page or a table

struct SweepCommandFlags {
  QuestionFlags question;
  OutputFlags output;
  std::vector<std::string> axes;
  std::vector<std::string> zips;
  int jobs = 0;
  bool resume = false;
  bool interval = false;
  std::string shard;
  std::vector<std::int64_t> skip;  // points that are not asked
};

// What --out holds of this sweep. Any file that is not empty is somebody's, unless each of its rows
// is of this sweep.
Found rows_in(const std::string& path, const Sweep& s, const Part& part, bool resume) {
  if (io::file_bytes(path) == 0) return {};  // also a device or a pipe, which holds nothing
  if (!resume)
    throw InputError{
        "--out " + path,
        "exists; --resume continues it if it is of this sweep, or remove it to begin anew"};
  RowReader reader(path, "--resume", s, part);
  std::string left = io::each_line(path, [&](const std::string& line) { reader.take(line); });
  return reader.end(left);
}

// All rows of a sweep's CSV.
std::vector<SweepRow> rows_of(const Sweep& s, const std::string& path) {
  std::vector<SweepRow> rows;
  bool header = true;
  (void)io::each_line(path, [&](const std::string& line) {
    if (!std::exchange(header, false)) rows.push_back(row_of(s, line, path));
  });
  return rows;
}

// Under mpirun: in rounds, each process a part of the round's points; the first one writes. The
// rows are those of one process.
class Round {
 public:
  Round(const Processes& p, std::int64_t first, std::int64_t last, int jobs)
      : p_(p), first_(first), last_(last), length_(kPoints * p.size() * jobs) {}
  // make(point) -> line; write(lines) on the first process, whose exception ends all.
  template <class Make, class Write, class Tick>
  void play(int jobs, Make make, Write write, Tick tick) const {
    for (std::int64_t at = first_;; at += length_) {
      std::int64_t end = std::min(at + length_, last_);
      std::int64_t points = std::max<std::int64_t>(end - at, 0);
      std::int64_t from = at + points * p_.rank() / p_.size();
      std::int64_t to = at + points * (p_.rank() + 1) / p_.size();
      std::string mine;
      if (from < to)
        in_order<std::string>(
            from, to, jobs, kAhead * kBlock, make,
            [&](std::int64_t, const std::string& line) { mine += line; }, [] {});
      std::string all;
      p_.gather(
          mine,
          [](void* state, const char* data, int bytes) {
            static_cast<std::string*>(state)->append(data, static_cast<std::size_t>(bytes));
          },
          &all);
      int go_on = end < last_ ? 1 : 0;
      std::optional<InputError> failed;
      if (p_.rank() == 0) {
        try {
          write(all);
          tick(end);
        } catch (const InputError& e) {
          failed = e;
          go_on = -1;
        }
      }
      p_.broadcast(&go_on, sizeof go_on);
      if (failed) throw *failed;
      if (go_on < 0) throw InputError{"mpirun", "the first process could not write"};
      if (go_on == 0) return;
    }
  }

 private:
  static constexpr std::int64_t kPoints = 256;  // of a thread in a round
  const Processes& p_;
  std::int64_t first_;
  std::int64_t last_;
  std::int64_t length_;
};

// A crash says at which point it was.
SweepRow ask(Loader& loader, const Sweep& s, const SweepCommandFlags& flags, std::int64_t point) {
  SweepRow row = row_at(s, point);
  if (std::find(flags.skip.begin(), flags.skip.end(), point) != flags.skip.end()) {
    row.reason = "not asked (--skip)";
    return row;
  }
  at_point(point);
  row = ask_point(loader, s, point);
  at_point(-1);
  return row;
}

// What a file holds is the first process's business; how far it is, everybody's.
void sweep_with_mpi(Terminal& t, const SweepCommandFlags& flags, Loader& loader, const Sweep& s,
                    const Part& part, const Processes& processes) {
  int jobs = flags.jobs > 0 ? flags.jobs : 1;  // mpirun starts a process a core
  std::int64_t start[2] = {0, 0};              // rows that are there, or -1: refused; bytes
  std::optional<io::LineFile> file;
  std::optional<InputError> refused;
  if (processes.rank() == 0) {
    try {
      Found found;
      if (!flags.output.out.empty()) {
        found = rows_in(flags.output.out, s, part, flags.resume);
        file.emplace(flags.output.out, found.bytes);
      }
      start[0] = found.rows;
      start[1] = found.bytes;
    } catch (const InputError& e) {
      refused = e;
      start[0] = -1;
    }
  }
  processes.broadcast(start, sizeof start);
  if (refused) throw *refused;
  if (start[0] < 0) throw InputError{"mpirun", "the first process could not begin"};
  auto write = [&](const std::string& text) {
    if (file) return file->append(text);
    write_out(t, text);
  };
  std::string header = start[1] == 0 ? sweep_header(s) : "";
  Progress progress(t, "points", start[0], part.last - part.first);
  Round round(processes, part.first + start[0], part.last, jobs);
  round.play(
      jobs, [&](std::int64_t point) { return sweep_line(s, ask(loader, s, flags, point)); },
      [&](const std::string& lines) { write(std::exchange(header, "") + lines); },
      [&](std::int64_t end) { progress.show(end - part.first, end == part.last); });
}

// Every row is written by now. Exit code 3, although the sweep is whole.
void report_internal(Terminal& t, const SweepSummary& summary) {
  if (summary.internal_errors() == 0) return;
  keep_files(t);
  throw std::runtime_error(
      fmt::format("{} of the points; their rows say which, and why", summary.internal_errors()));
}

std::string flips_text(const SweepFlips& flips, const Sweep& s) {
  std::string out;
  for (const std::string& line : flips.lines(s))
    out += report::wrapped((out.empty() ? "" : "  ") + line + "\n");
  return out;
}

void sweep_command(Terminal& t, SweepCommandFlags& flags) {
  if (flags.jobs < 0)
    throw InputError{fmt::format("--jobs {}", flags.jobs),
                     "expected the number of threads; 0 = all cores"};
  bool stream = flags.output.format == "csv";
  if (flags.resume && (flags.output.out.empty() || !stream))
    throw InputError{"--resume", "continues a CSV file: name it with --out"};
#ifdef __GLIBC__
  // Every point takes and gives back the same few megabytes: they stay in the process.
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_MMAP_THRESHOLD, 256 << 20);
#endif
  Loader loader(context_of(t), flags.question);
  Sweep s = make_sweep(t, loader, flags.question, flags.axes, flags.zips, flags.interval);
  Part part = part_of(flags.shard, s.points);
  for (std::int64_t point : flags.skip)
    if (point < 0 || point >= s.points)
      throw InputError{fmt::format("--skip {}", point),
                       fmt::format("is no point of this sweep; they are 0 to {}", s.points - 1)};
  CrashReport report;
  if (started_by_mpi()) {
    if (!stream || !flags.output.html.empty())
      throw InputError{stream ? "--html" : "--format " + flags.output.format,
                       "is for one process; under mpirun ddpsim sweep writes CSV"};
    Processes processes(t.executable);
    return sweep_with_mpi(t, flags, loader, s, part, processes);
  }
  bool keep = !stream || !flags.output.html.empty();
  if (keep && part.last - part.first > kMostKept)
    throw InputError{stream ? "--html" : "--format " + flags.output.format,
                     fmt::format("keeps all rows, at most {}; CSV has no limit", kMostKept)};
  check_html(flags.output);
  Found found;
  std::optional<io::LineFile> file;
  if (stream && !flags.output.out.empty()) {
    found = rows_in(flags.output.out, s, part, flags.resume);
    file.emplace(flags.output.out, found.bytes);
  }
  auto write = [&](const std::string& text) {
    if (file) return file->append(text);
    write_out(t, text);
  };
  if (stream && found.bytes == 0) write(sweep_header(s));
  std::int64_t first = part.first + found.rows;
  int jobs = flags.jobs > 0 ? flags.jobs
                            : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::vector<SweepRow> kept;
  if (keep && found.rows > 0) kept = rows_of(s, flags.output.out);
  SweepSummary summary;
  SweepFlips flips;
  Progress progress(t, "points", found.rows, part.last - part.first);
  std::int64_t done = found.rows;
  std::int64_t blocks = (part.last - first + kBlock - 1) / kBlock;
  jobs = static_cast<int>(std::min<std::int64_t>(jobs, std::max<std::int64_t>(blocks, 1)));
  auto make = [&](std::int64_t block) {
    std::vector<SweepRow> rows;
    std::int64_t from = first + block * kBlock;
    for (std::int64_t p = from; p < std::min(from + kBlock, part.last); ++p)
      rows.push_back(ask(loader, s, flags, p));
    return rows;
  };
  auto take = [&](std::int64_t, std::vector<SweepRow> rows) {
    std::string lines;
    for (SweepRow& r : rows) {
      summary.add(r);
      flips.add(r);
      if (stream) lines += sweep_line(s, r);
      if (keep) kept.push_back(std::move(r));
    }
    if (stream) write(lines);
    done += static_cast<std::int64_t>(rows.size());
  };
  in_order<std::vector<SweepRow>>(0, blocks, jobs, kAhead, make, take,
                                  [&] { progress.show(done); });
  progress.show(done, true);
  write_html(t, flags.output, [&] {
    io::OrderedJson page = sweep_json(s, kept);
    page["title"] = title(loader, s);
    return page;
  });
  if (stream) {
    if (file && found.rows == part.last - part.first)
      t.err << "ddpsim: " << flags.output.out << " was complete\n";
    std::string text = summary_text(s, summary) + flips_text(flips, s);
    (file ? t.out : t.err) << (file || t.err_is_terminal ? text : "") << std::flush;
    return report_internal(t, summary);
  }
  if (flags.output.format == "json") {
    write_answer(t, flags.output, sweep_json(s, kept).dump(1) + "\n");
    return report_internal(t, summary);
  }
  bool markdown = flags.output.format == "md";
  const char* gap = markdown ? "\n\n" : "\n";
  std::string notes = summary.notes() + flips_text(flips, s);
  if (markdown && !notes.empty()) notes = "\n" + notes;
  write_answer(
      t, flags.output,
      (s.nccl.empty() ? "" : "with " + s.nccl + gap) + sweep_table(s, kept, markdown) + notes);
  report_internal(t, summary);
}

struct MergeFlags {
  std::vector<std::string> files;
  OutputFlags output;  // out and html
};

// The page that ddpsim sweep --html writes, of rows in files.
void merge_page(Terminal& t, const OutputFlags& flags, const Sweep& s,
                const std::vector<RowReader>& shards) {
  std::vector<SweepRow> rows;
  for (const RowReader& shard : shards)
    for (SweepRow& r : rows_of(s, shard.path())) rows.push_back(std::move(r));
  write_html(t, flags, [&] {
    io::OrderedJson page = sweep_json(s, rows);
    page["title"] = fmt::format("{}", fmt::join(fields_of(s.axes), " x "));
    return page;
  });
}

void merge_command(Terminal& t, const MergeFlags& flags) {
  check_html(flags.output);
  if (flags.files.empty())
    throw InputError{"FILE...",
                     "no file given; name the CSV files that ddpsim sweep --shard K/N --out FILE "
                     "wrote, for example ddpsim merge shard*.csv --out sweep.csv"};
  std::vector<RowReader> shards;
  for (const std::string& f : flags.files) {
    RowReader reader(f, f);
    std::string left = io::each_line(f, [&](const std::string& line) { reader.take(line); });
    if (reader.header().empty()) throw InputError{f, "is not what ddpsim sweep writes"};
    if (!left.empty())
      throw InputError{f, "ends in the middle of a row (is it unfinished? --resume)"};
    if (reader.found().rows > 0)
      shards.push_back(std::move(reader));  // else a shard without points
  }
  if (shards.empty()) throw InputError{"FILE...", "no file has a row"};
  join(shards);
  std::int64_t points = points_of_id(shards[0].id());
  if (!flags.output.out.empty() && io::exists(flags.output.out))
    throw InputError{"--out " + flags.output.out, "exists; remove it, or name another file"};
  std::optional<Sweep> page;
  if (!flags.output.html.empty()) {
    if (points > kMostKept)
      throw InputError{"--html",
                       fmt::format("keeps all rows, at most {}; CSV has no limit", kMostKept)};
    page = sweep_of(shards[0].header(), shards[0].path());
    page->id = shards[0].id();
  }
  std::optional<io::LineFile> file;
  if (!flags.output.out.empty()) file.emplace(flags.output.out, 0);
  std::string block = shards[0].header() + "\n";
  auto flush = [&] {
    if (file)
      file->append(block);
    else
      write_out(t, block);
    block.clear();
  };
  for (const RowReader& s : shards) {
    bool header = true;
    (void)io::each_line(s.path(), [&](const std::string& line) {
      if (!std::exchange(header, false)) block += line + "\n";
      if (block.size() > (1 << 16)) flush();
    });
  }
  flush();
  if (page) merge_page(t, flags.output, *page, shards);
}

}  // namespace

void add_sweep(Command& app, Terminal& t) {
  auto flags = std::make_shared<SweepCommandFlags>();
  Command* c = app.add_subcommand(
      "sweep", "Predict every point of some axes: bucket sizes, hosts, bandwidths, systems");
  add_question_flags(*c, flags->question);
  add_measured_flags(*c, flags->question);
  c->add_option("--axis", flags->axes,
                "FIELD=VALUES, repeatable: bucket_cap_mb=1,5,25  cluster.hosts=1:64:x2  "
                "cluster.link.bandwidth=10Gb/s:100Gb/s:+10Gb/s  workload=resnet50,vgg16")
      ->allow_extra_args(false);
  c->add_option("--zip", flags->zips,
                "FIELD=VALUES, repeatable: fields that change together, as one axis: --zip "
                "cluster.hosts=1,2 --zip workload.batch=64,32")
      ->allow_extra_args(false);
  c->add_option("--jobs", flags->jobs,
                "threads; default: all cores. The rows are the same whatever it is");
  c->add_option("--shard", flags->shard,
                "K/N: the K-th of N parts, from 0 (a Slurm array); ddpsim merge joins their files");
  c->add_option("--skip", flags->skip,
                "POINT, repeatable: do not ask this point (one that crashes); its row says so")
      ->allow_extra_args(false);
  c->add_flag("--interval", flags->interval,
              "also both ends of the profile's ranges (three simulations a point)");
  c->add_flag("--resume", flags->resume, "continue --out where a killed sweep left it");
  add_output_flags(*c, flags->output, {"csv", "table", "md", "json"});
  add_html_flag(*c, flags->output);
  c->callback([&t, flags, c] {
    // Rows for people are a table; rows for a file or a pipe are CSV.
    bool people = t.columns > 0 && flags->output.out.empty() && !flags->resume && !started_by_mpi();
    if (people && c->get_option("--format")->count() == 0) flags->output.format = "table";
    sweep_command(t, *flags);
  });
}

void add_merge(Command& app, Terminal& t) {
  auto flags = std::make_shared<MergeFlags>();
  Command* c = app.add_subcommand(
      "merge",
      "Join the files of a sweep's shards into the file that one process would have written");
  c->add_option("files", flags->files, "CSV files of ddpsim sweep --shard, in any order");
  c->add_option("--out", flags->output.out, "write to this file instead of stdout");
  add_html_flag(*c, flags->output);
  c->callback([&t, flags] { merge_command(t, *flags); });
}

}  // namespace ddpsim::cli
