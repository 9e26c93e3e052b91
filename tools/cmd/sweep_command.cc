// ddpsim sweep: a prediction for every point of some axes, on all cores, streamed to a file that a killed sweep is continued from. ddpsim merge: its shards.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <ostream>
#include <thread>
#include <utility>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "sim/io/lines.h"
#include "tools/cmd/pool.h"
#include "tools/cmd/processes.h"
#include "tools/cmd/sweep.h"

namespace ddpsim::cli {
namespace {

constexpr std::int64_t kBlock = 16;     // points a thread takes at once
constexpr std::int64_t kAhead = 1024;   // blocks that may wait for an earlier one
constexpr std::int64_t kMostKept = 1'000'000;  // rows of a page or a table

struct Flags {
  QuestionFlags question;
  OutputFlags output;
  std::vector<std::string> axes;
  std::vector<std::string> zips;
  int jobs = 0;
  bool resume = false;
  bool interval = false;
  std::string shard;
};

struct Part {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

// "3/16": of 16 parts, the one after the first three.
Part part_of(const std::string& shard, std::int64_t points) {
  if (shard.empty()) return {0, points};
  std::int64_t k = -1;
  std::int64_t n = 0;
  const char* end = shard.data() + shard.size();
  auto [slash, bad] = std::from_chars(shard.data(), end, k);
  if (bad != std::errc() || slash == end || *slash != '/' || std::from_chars(slash + 1, end, n).ptr != end || n < 1 || k < 0)
    throw InputError{"--shard " + shard, "expected K/N, for example --shard $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"};
  if (k >= n) throw InputError{"--shard " + shard, fmt::format("shards are numbered 0 to {}; a Slurm array that fits: --array=0-{}", n - 1, n - 1)};
  auto at = [&](std::int64_t i) { return static_cast<std::int64_t>(static_cast<__int128>(points) * i / n); };
  return {at(k), at(k + 1)};
}

// How far, how fast, how long yet: a bar on a terminal, else a line now and then.
class Progress {
 public:
  Progress(Terminal& t, std::int64_t done, std::int64_t of) : t_(t), from_(done), of_(of), begin_(Clock::now()), said_(begin_) {}
  void show(std::int64_t done, bool last = false) {
    auto now = Clock::now();
    double since = std::chrono::duration<double>(now - said_).count();
    if (!last && since < (t_.err_is_terminal ? 0.2 : 5.0)) return;
    if (last && !shown_) return;
    said_ = now;
    shown_ = true;
    double seconds = std::chrono::duration<double>(now - begin_).count();
    double rate = seconds > 0 ? static_cast<double>(done - from_) / seconds : 0;
    std::string left = rate > 0 ? fmt::format("{:.0f} s left", static_cast<double>(of_ - done) / rate) : "";
    if (last) left = fmt::format("{:.1f} s", seconds);
    std::string text = fmt::format("{} of {} points, {:.0f}/s, {}", done, of_, rate, left);
    if (!t_.err_is_terminal) {
      t_.err << "ddpsim: " << text << "\n" << std::flush;
      return;
    }
    constexpr int kWidth = 30;
    auto full = static_cast<std::size_t>(of_ > 0 ? done * kWidth / of_ : kWidth);
    t_.err << "\r[" << std::string(full, '#') << std::string(kWidth - full, '.') << "] " << text << "  " << (last ? "\n" : "") << std::flush;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Terminal& t_;
  std::int64_t from_;
  std::int64_t of_;
  Clock::time_point begin_;
  Clock::time_point said_;
  bool shown_ = false;
};

std::string last_field(const std::string& line) {
  auto comma = line.rfind(',');
  return comma == std::string::npos ? "" : line.substr(comma + 1);
}
std::int64_t point_of(const std::string& line) {
  std::int64_t point = -1;
  std::from_chars(line.data(), line.data() + line.size(), point);
  return point;
}

// Rows that the file has already, and where to go on.
struct Found {
  std::int64_t rows = 0;
  std::int64_t bytes = 0;
};
Found rows_in(const std::string& path, const Sweep& s, const Part& part, bool resume) {
  auto found = io::scan_lines(path);
  if (!found || found->lines == 0) return {};
  if (!resume) throw InputError{"--out " + path, "exists; --resume continues it, or remove it to begin anew"};
  if (found->first + "\n" != sweep_header(s)) throw InputError{"--resume", path + " has other columns; it is not of this sweep"};
  std::int64_t rows = found->lines - 1;
  if (rows == 0) return {0, found->bytes};
  for (const std::string* line : {&found->second, &found->last})
    if (last_field(*line) != s.id) throw InputError{"--resume", path + " is of another sweep (another question, other axes, or another version of ddpsim)"};
  if (point_of(found->second) != part.first || point_of(found->last) != part.first + rows - 1 || part.first + rows > part.last)
    throw InputError{"--resume", fmt::format("{} holds points {} to {}; this part of the sweep is {} to {}", path, point_of(found->second), point_of(found->last), part.first, part.last - 1)};
  return {rows, found->bytes};
}

// All rows of a sweep's CSV.
std::vector<SweepRow> rows_of(const Sweep& s, const std::string& path) {
  struct State {
    const Sweep& sweep;
    const std::string& path;
    std::vector<SweepRow> rows;
    bool header = true;
  } state{s, path, {}};
  auto read = [](void* where, const std::string& line) {
    auto& to = *static_cast<State*>(where);
    if (!std::exchange(to.header, false)) to.rows.push_back(row_of(to.sweep, line, to.path));
  };
  io::each_line(path, read, &state);
  return std::move(state.rows);
}

// Under mpirun: in rounds, each process a part of the round's points; the first one writes. The rows are those of one process.
class Round {
 public:
  Round(const Processes& p, std::int64_t first, std::int64_t last, int jobs) : p_(p), first_(first), last_(last), length_(kPoints * p.size() * jobs) {}
  // make(point) -> line; write(lines) on the first process, whose exception ends all.
  template <class Make, class Write, class Tick>
  void play(int jobs, Make make, Write write, Tick tick) const {
    for (std::int64_t at = first_;; at += length_) {
      std::int64_t end = std::min(at + length_, last_);
      std::int64_t points = std::max<std::int64_t>(end - at, 0);
      std::int64_t from = at + points * p_.rank() / p_.size();
      std::int64_t to = at + points * (p_.rank() + 1) / p_.size();
      std::string mine;
      if (from < to) in_order<std::string>(from, to, jobs, kAhead * kBlock, make, [&](std::int64_t, const std::string& line) { mine += line; }, [] {});
      std::string all;
      p_.gather(mine, [](void* state, const char* data, int bytes) { static_cast<std::string*>(state)->append(data, static_cast<std::size_t>(bytes)); }, &all);
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

// What a file holds is the first process's business; how far it is, everybody's.
void sweep_with_mpi(Terminal& t, const Flags& flags, Loader& loader, const Sweep& s, const Part& part, const Processes& processes) {
  int jobs = flags.jobs > 0 ? flags.jobs : 1;  // mpirun starts a process a core
  std::int64_t start[2] = {0, 0};  // rows that are there, or -1: refused; bytes
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
    t.out << text << std::flush;
    if (!t.out) throw InputError{"stdout", "cannot be written (is the disk full?)"};
  };
  std::string header = start[1] == 0 ? sweep_header(s) : "";
  Progress progress(t, start[0], part.last - part.first);
  Round round(processes, part.first + start[0], part.last, jobs);
  round.play(jobs, [&](std::int64_t point) { return sweep_line(s, ask_point(loader, s, point)); },
             [&](const std::string& lines) { write(std::exchange(header, "") + lines); }, [&](std::int64_t end) { progress.show(end - part.first, end == part.last); });
}

void sweep_command(Terminal& t, Flags& flags) {
  if (flags.jobs < 0) throw InputError{fmt::format("--jobs {}", flags.jobs), "expected the number of threads; 0 = all cores"};
  bool stream = flags.output.format == "csv";
  if (flags.resume && (flags.output.out.empty() || !stream)) throw InputError{"--resume", "continues a CSV file: name it with --out"};
#ifdef __GLIBC__
  // Every point takes and gives back the same few megabytes: they stay in the process.
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_MMAP_THRESHOLD, 256 << 20);
#endif
  Loader loader(t, flags.question);
  Sweep s = make_sweep(t, loader, flags.question, flags.axes, flags.zips, flags.interval);
  Part part = part_of(flags.shard, s.points);
  if (started_by_mpi()) {
    if (!stream || !flags.output.html.empty()) throw InputError{stream ? "--html" : "--format " + flags.output.format, "is for one process; under mpirun ddpsim sweep writes CSV"};
    Processes processes(t.executable);
    return sweep_with_mpi(t, flags, loader, s, part, processes);
  }
  bool keep = !stream || !flags.output.html.empty();
  if (keep && part.last - part.first > kMostKept) throw InputError{stream ? "--html" : "--format " + flags.output.format, fmt::format("keeps all rows, at most {}; CSV has no limit", kMostKept)};
  check_html(flags.output);
  Found found;
  std::optional<io::LineFile> file;
  if (stream && !flags.output.out.empty()) {
    found = rows_in(flags.output.out, s, part, flags.resume);
    file.emplace(flags.output.out, found.bytes);
  }
  auto write = [&](const std::string& text) {
    if (file) return file->append(text);
    t.out << text;
    if (!t.out) throw InputError{"stdout", "cannot be written (is the disk full?)"};
  };
  if (stream && found.bytes == 0) write(sweep_header(s));
  std::int64_t first = part.first + found.rows;
  int jobs = flags.jobs > 0 ? flags.jobs : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::vector<SweepRow> kept;
  if (keep && found.rows > 0) kept = rows_of(s, flags.output.out);
  SweepSummary summary;
  Progress progress(t, found.rows, part.last - part.first);
  std::int64_t done = found.rows;
  std::int64_t blocks = (part.last - first + kBlock - 1) / kBlock;
  jobs = static_cast<int>(std::min<std::int64_t>(jobs, std::max<std::int64_t>(blocks, 1)));
  auto make = [&](std::int64_t block) {
    std::vector<SweepRow> rows;
    std::int64_t from = first + block * kBlock;
    for (std::int64_t p = from; p < std::min(from + kBlock, part.last); ++p) rows.push_back(ask_point(loader, s, p));
    return rows;
  };
  auto take = [&](std::int64_t, std::vector<SweepRow> rows) {
    std::string lines;
    for (SweepRow& r : rows) {
      summary.add(r);
      if (stream) lines += sweep_line(s, r);
      if (keep) kept.push_back(std::move(r));
    }
    if (stream) write(lines);
    done += static_cast<std::int64_t>(rows.size());
  };
  in_order<std::vector<SweepRow>>(0, blocks, jobs, kAhead, make, take, [&] { progress.show(done); });
  progress.show(done, true);
  write_html(t, flags.output, [&] {
    io::OrderedJson page = sweep_json(s, kept);
    page["title"] = title(loader, s);
    return page;
  });
  if (stream) {
    if (!file) t.out << std::flush;
    if (file && found.rows == part.last - part.first) t.err << "ddpsim: " << flags.output.out << " was complete\n";
    std::string text = summary.text(s);
    (file ? t.out : t.err) << (file || t.err_is_terminal ? text : "") << std::flush;
    return;
  }
  if (flags.output.format == "json") return write_answer(t, flags.output, sweep_json(s, kept).dump(1) + "\n");
  bool markdown = flags.output.format == "md";
  const char* gap = markdown ? "\n\n" : "\n";
  std::string notes = summary.notes();
  if (markdown && !notes.empty()) notes = "\n" + notes;
  write_answer(t, flags.output, (s.nccl.empty() ? "" : "with " + s.nccl + gap) + sweep_table(s, kept, markdown) + notes);
}

struct MergeFlags {
  std::vector<std::string> files;
  OutputFlags output;  // out and html
};

struct Shard {
  std::string file;
  io::FoundLines found;
  std::int64_t first = 0;
};

// The page that ddpsim sweep --html writes, of rows in files.
void merge_page(Terminal& t, const OutputFlags& flags, const Sweep& s, const std::vector<Shard>& shards) {
  std::vector<SweepRow> rows;
  for (const Shard& shard : shards)
    for (SweepRow& r : rows_of(s, shard.file)) rows.push_back(std::move(r));
  write_html(t, flags, [&] {
    io::OrderedJson page = sweep_json(s, rows);
    page["title"] = fmt::format("{}", fmt::join(fields_of(s.axes), " x "));
    return page;
  });
}

void merge_command(Terminal& t, const MergeFlags& flags) {
  check_html(flags.output);
  if (flags.files.empty())
    throw InputError{"FILE...", "no file given; name the CSV files that ddpsim sweep --shard K/N --out FILE wrote, for example ddpsim merge shard*.csv --out sweep.csv"};
  std::vector<Shard> shards;
  for (const std::string& f : flags.files) {
    auto found = io::scan_lines(f);
    if (!found) throw InputError{f, "no such file"};
    if (found->lines < 1 || !found->first.starts_with("point,")) throw InputError{f, "is not what ddpsim sweep writes"};
    if (found->lines == 1) continue;  // a shard without points
    shards.push_back({f, *found, point_of(found->second)});
  }
  if (shards.empty()) throw InputError{"FILE...", "no file has a row"};
  std::sort(shards.begin(), shards.end(), [](const Shard& a, const Shard& b) { return a.first < b.first; });
  const std::string id = last_field(shards[0].found.last);
  std::int64_t next = 0;
  for (const Shard& s : shards) {
    if (s.found.first != shards[0].found.first || last_field(s.found.second) != id || last_field(s.found.last) != id) throw InputError{s.file, "is of another sweep than " + shards[0].file};
    if (s.first < next) throw InputError{s.file, fmt::format("begins at point {}, which another file has", s.first)};
    if (s.first > next) throw InputError{s.file, fmt::format("begins at point {}; points {} to {} are in no file", s.first, next, s.first - 1)};
    if (point_of(s.found.last) != s.first + s.found.lines - 2) throw InputError{s.file, "has rows missing or doubled"};
    next = s.first + s.found.lines - 1;
  }
  std::int64_t points = 0;
  if (auto dash = id.rfind('-'); dash != std::string::npos) std::from_chars(id.data() + dash + 1, id.data() + id.size(), points);
  if (next != points) throw InputError{shards.back().file, fmt::format("ends at point {}; points {} to {} are in no file (is a shard unfinished? --resume)", next - 1, next, points - 1)};
  if (!flags.output.out.empty() && io::exists(flags.output.out)) throw InputError{"--out " + flags.output.out, "exists; remove it, or name another file"};
  std::optional<Sweep> page;
  if (!flags.output.html.empty()) {
    if (points > kMostKept) throw InputError{"--html", fmt::format("keeps all rows, at most {}; CSV has no limit", kMostKept)};
    page = sweep_of(shards[0].found.first, shards[0].file);
    page->id = id;
  }
  std::optional<io::LineFile> file;
  if (!flags.output.out.empty()) file.emplace(flags.output.out, 0);
  struct State {
    Terminal& t;
    io::LineFile* file;
    std::string block;
    bool header = true;
    void flush() {
      if (file) file->append(block);
      else t.out << block << std::flush;
      if (!t.out) throw InputError{"stdout", "cannot be written (is the disk full?)"};
      block.clear();
    }
  } state{t, file ? &*file : nullptr, shards[0].found.first + "\n"};
  for (const Shard& s : shards) {
    state.header = true;
    auto copy = [](void* where, const std::string& line) {
      auto& to = *static_cast<State*>(where);
      if (!std::exchange(to.header, false)) to.block += line + "\n";
      if (to.block.size() > (1 << 16)) to.flush();
    };
    io::each_line(s.file, copy, &state);
  }
  state.flush();
  if (page) merge_page(t, flags.output, *page, shards);
}

}  // namespace

void add_sweep(CLI::App& app, Terminal& t) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c = app.add_subcommand("sweep", "Predict every point of some axes: bucket sizes, hosts, bandwidths, systems");
  add_question_flags(*c, flags->question);
  c->add_option("--axis", flags->axes, "FIELD=VALUES, repeatable: bucket_cap_mb=1,5,25  cluster.hosts=1:64:x2  cluster.link.bandwidth=10Gb/s:100Gb/s:+10Gb/s  workload=resnet50,vgg16")->allow_extra_args(false);
  c->add_option("--zip", flags->zips, "FIELD=VALUES, repeatable: fields that change together, as one axis: --zip cluster.hosts=1,2 --zip workload.batch=64,32")->allow_extra_args(false);
  c->add_option("--jobs", flags->jobs, "threads; default: all cores. The rows are the same whatever it is");
  c->add_option("--shard", flags->shard, "K/N: the K-th of N parts, from 0 (a Slurm array); ddpsim merge joins their files");
  c->add_flag("--interval", flags->interval, "also both ends of the profile's ranges (three simulations a point)");
  c->add_flag("--resume", flags->resume, "continue --out where a killed sweep left it");
  add_output_flags(*c, flags->output, {"csv", "table", "md", "json"});
  add_html_flag(*c, flags->output);
  c->callback([&t, flags] { sweep_command(t, *flags); });
}

void add_merge(CLI::App& app, Terminal& t) {
  auto flags = std::make_shared<MergeFlags>();
  CLI::App* c = app.add_subcommand("merge", "Join the files of a sweep's shards into the file that one process would have written");
  c->add_option("files", flags->files, "CSV files of ddpsim sweep --shard, in any order");
  c->add_option("--out", flags->output.out, "write to this file instead of stdout");
  add_html_flag(*c, flags->output);
  c->callback([&t, flags] { merge_command(t, *flags); });
}

}  // namespace ddpsim::cli
