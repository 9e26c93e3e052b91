// Text of nccl-tests. A row begins where two whole numbers precede the name of a type, wherever
// that is in a line: whatever stands before (the prefixes of mpirun, srun, pdsh, of container logs)
// is passed over. What NCCL says (NAME:PID:TID [DEV] NCCL INFO ...) is cut off, and a row that it
// split is put together from the lines that hold nothing but numbers.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "sim/io/json_reader.h"
#include "sim/io/nccl_tests.h"
#include "sim/units/number.h"

namespace ddpsim::io {
namespace {

using View = std::string_view;
using Words = std::vector<View>;

// Without colours (ESC ... letter) and carriage returns.
std::string plain(View line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b') {
      out.push_back(line[i] == '\r' || line[i] == '\t' || line[i] == '\0' ? ' ' : line[i]);
      continue;
    }
    while (i < line.size() &&
           !((line[i] >= 'a' && line[i] <= 'z') || (line[i] >= 'A' && line[i] <= 'Z')))
      ++i;
  }
  return out;
}

Words words_of(View line) {
  Words out;
  for (std::size_t i = 0; i < line.size();) {
    while (i < line.size() && line[i] == ' ') ++i;
    std::size_t from = i;
    while (i < line.size() && line[i] != ' ') ++i;
    if (i > from) out.push_back(line.substr(from, i - from));
  }
  return out;
}

std::optional<std::int64_t> whole(View s) {
  return parse_integer(s);
}

bool is_number(View s) {
  return s == "N/A" || parse_printed(s).has_value();
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// "2025-10-01" or "12:30:59", of -S.
bool is_stamp(View s) {
  return (s.size() == 10 && s[4] == '-' && s[7] == '-' && is_digit(s[0])) ||
         (s.size() == 8 && s[2] == ':' && s[5] == ':' && is_digit(s[0]));
}

// What stands before NCCL's own words: of "  8  2 float sum -1host1:12:34 [0] NCCL INFO x" all but
// "host1:12:34 [0] NCCL INFO x", with the glued number kept.
View without_nccl(View line) {
  auto at = std::min(line.find(" NCCL INFO "), line.find(" NCCL WARN "));
  if (at == View::npos) return line;
  line = line.substr(0, at);
  auto bracket = line.rfind('[');
  if (bracket != View::npos) line = line.substr(0, bracket);
  while (!line.empty() && line.back() == ' ') line.remove_suffix(1);
  auto space = line.rfind(' ');
  View last = space == View::npos ? line : line.substr(space + 1);
  View before = space == View::npos ? View{} : line.substr(0, space + 1);
  if (last.find(':') == View::npos) return line;
  // The host's name is glued to what was printed last.
  for (View word : {"sum", "prod", "max", "min", "avg", "none"})
    if (last.starts_with(word)) return line.substr(0, before.size() + word.size());
  std::size_t n = last.starts_with('-') ? 1 : 0;
  while (n < last.size() && (is_digit(last[n]) || last[n] == '.')) ++n;
  if (last.starts_with("N/A")) n = 3;
  // A host's name that begins with a digit, at the start of a line, is no number.
  return before.empty() ? View{} : line.substr(0, before.size() + n);
}

View without_stream(View line) {  // "[1,0]<stdout>:"
  for (View tag : {"<stdout>:", "<stderr>:"})
    if (auto at = line.find(tag); at != View::npos && at < 80) line.remove_prefix(at + tag.size());
  return line;
}

std::string version_of_code(std::int64_t code) {  // NCCL_VERSION_CODE
  if (code <= 0) return {};
  std::int64_t major = code < 10000 ? 1000 : 10000;
  return std::to_string(code / major) + "." + std::to_string(code % major / 100) + "." +
         std::to_string(code % 100);
}

class Parser {
 public:
  explicit Parser(NcclTests& out) : out_(out) {}

  void line(int number, View raw) {
    number_ = number;
    std::string clean = plain(raw);
    View text = without_stream(clean);
    environment(text);
    command(text);
    // Some lose the first '#' on the way (Markdown, a shell): then the first is that of "#wrong".
    auto hash = text.find('#');
    View before = text.substr(0, hash);
    if (is_of_test(before)) {
      if (comment(text)) return;
    } else if (hash != View::npos && comment(text.substr(hash))) {
      return;
    }
    row(words_of(without_nccl(text)));
  }

  void end() { give_up("the log ends within it"); }

 private:
  NcclTestsTable& table() {
    if (out_.tables.empty()) begin();
    return out_.tables.back();
  }
  void begin() {
    give_up("another test begins within it");
    out_.tables.emplace_back();
    out_.tables.back().op = command_;
    root_known_ = false;
    group_ = 4;
  }

  void environment(View line) {
    constexpr View kSet = " set by environment to ";
    auto at = line.find(kSet);
    if (at == View::npos) return;
    auto space = line.rfind(' ', at - 1);
    View name = line.substr(space == View::npos ? 0 : space + 1,
                            at - (space == View::npos ? 0 : space + 1));
    View value = line.substr(at + kSet.size());
    while (!value.empty() && (value.back() == ' ' || value.back() == '.')) value.remove_suffix(1);
    if (name.starts_with("NCCL_") && !value.empty()) out_.environment.emplace(name, value);
  }

  // "mpirun ... -x NCCL_ALGO=Ring ./build/all_reduce_perf -b 8"
  void command(View line) {
    if (line.find("_perf") == View::npos || line.find("NCCL INFO") != View::npos) return;
    for (View w : words_of(line)) {
      auto equals = w.find('=');
      if (w.starts_with("NCCL_") && equals != View::npos)
        out_.environment.emplace(w.substr(0, equals), w.substr(equals + 1));
      while (!w.empty() && (w.back() == '`' || w.back() == '"' || w.back() == '\''))
        w.remove_suffix(1);
      while (!w.empty() && (w.front() == '`' || w.front() == '"' || w.front() == '\''))
        w.remove_prefix(1);
      if (w.ends_with("_perf") || w.ends_with("_perf_mpi"))
        if (std::string op = nccl_tests_op(w); !op.empty()) command_ = op;
    }
  }

  // A line that nccl-tests writes behind a '#', by its words.
  static bool is_of_test(View line) {
    auto has = [&](View text) { return line.find(text) != View::npos; };
    return (has("nThread ") && has("minBytes ")) ||
           (has("Rank ") && has(" Pid ") && has(" on ") && has(" device ")) ||
           (has("size ") && has(" count ") && has("algbw") && has("busbw")) ||
           has("Out of bounds values") || has("Avg bus bandwidth") ||
           has("Collective test starting:") || has("nccl-tests version ");
  }

  bool comment(View line) {
    Words w = words_of(line);
    auto has = [&](View text) { return line.find(text) != View::npos; };
    if (has("nccl-tests version")) {
      for (std::size_t i = 0; i + 1 < w.size(); ++i)
        if (w[i] == "version") out_.tests_version = w[i + 1];
      for (View x : w)
        if (x.starts_with("nccl-library="))
          if (auto code = whole(x.substr(13))) out_.nccl = version_of_code(*code);
      return true;
    }
    if (has("Collective test starting:")) {
      begin();
      table().op = nccl_tests_op(w.back());
      table().op_is_sure = !table().op.empty();
      started_ = true;
      return true;
    }
    if (has("nThread ") && has("minBytes ")) return header(w), true;
    if (has("Rank ") && has(" device ") && has(" on ")) return device(line, w), true;
    if (has(" Rank ") && has(" Pid ")) return true;  // cut
    if (has("algbw") && has("busbw")) return columns(w), true;
    if (has("Out of bounds values") || has("Avg bus bandwidth")) {
      give_up("the footer comes before its end");
      table().footer = true;
      return true;
    }
    // A comment, but for a row behind a '#' of somebody else's.
    return line.starts_with("# ") || line == "#";
  }

  void header(const Words& w) {
    if (!started_ || out_.tables.empty() || !out_.tables.back().rows.empty() ||
        out_.tables.back().max_bytes != 0)
      begin();
    started_ = false;
    NcclTestsTable& t = table();
    auto after = [&](View key) {
      for (std::size_t i = 0; i + 1 < w.size(); ++i)
        if (w[i] == key) return whole(w[i + 1]).value_or(0);
      return std::int64_t{0};
    };
    std::int64_t threads = after("nThread");
    std::int64_t gpus = after("nGpus");
    if (threads > 0 && threads < 4096 && gpus > 0 && gpus < 4096)
      t.gpus_per_process = static_cast<int>(threads * gpus);
    t.min_bytes = std::max<std::int64_t>(0, after("minBytes"));
    t.max_bytes = std::max<std::int64_t>(0, after("maxBytes"));
    for (std::size_t i = 0; i + 1 < w.size(); ++i) {
      if (w[i] != "step:") continue;
      View s = w[i + 1];
      t.step_is_factor = s.find("factor") != View::npos;
      t.step = std::max<std::int64_t>(0, whole(s.substr(0, s.find('('))).value_or(0));
    }
  }

  void device(View line, const Words& w) {
    NcclTestsDevice d;
    bool named = false;
    for (std::size_t i = 0; i + 1 < w.size(); ++i) {
      if (w[i] == "Rank")
        d.rank = within_2_20(whole(w[i + 1]).value_or(-1), -1);
      else if (w[i] == "Group")
        d.group = within_2_20(whole(w[i + 1]).value_or(0), 0);
      else if (w[i] == "Pid")
        d.pid = w[i + 1];
      else if (w[i] == "on" && !named)
        d.host = w[i + 1], named = true;
    }
    if (auto bracket = line.find("] "); bracket != View::npos) {
      d.name = line.substr(bracket + 2);
      while (!d.name.empty() && d.name.back() == ' ') d.name.pop_back();
      if (auto more = d.name.find(" NCCL "); more != std::string::npos) d.name.clear();
    }
    if (d.rank < 0 || d.host.empty()) return;
    NcclTestsTable& t = table();
    auto& processes = devices_[{out_.tables.size(), d.group, d.rank}];
    bool fresh = processes.empty();
    processes.insert(d.host + " " + d.pid);
    if (d.rank == 0) t.firsts = std::max(t.firsts, static_cast<int>(processes.size()));
    if (fresh) t.devices.push_back(std::move(d));
  }

  void columns(const Words& w) {
    give_up("the columns begin again within it");
    if (!table().rows.empty() || !table().dropped.empty()) begin();
    auto is = [&](View name) { return std::find(w.begin(), w.end(), name) != w.end(); };
    table().host_time = is("cputime");
    has_root_ = is("root");
    root_known_ = true;
    group_ = is("i_min") || is("min") ? 8 : 4;
  }

  void row(const Words& w) {
    for (std::size_t k = 0; k + 2 < w.size(); ++k) {
      if (nccl_tests_element_bytes(w[k + 2]) == 0) continue;
      auto bytes = whole(w[k]);
      auto count = whole(w[k + 1]);
      if (!bytes || !count || *bytes < 0 || *count < 0) continue;
      give_up("another row begins within it");
      pending_ = NcclTestsRow{number_, *bytes, *count, std::string(w[k + 2]), "", -1, {}, {}};
      rest_.clear();
      add({w.begin() + k + 3, w.end()});
      return;
    }
    if (!pending_ || w.empty()) return;
    // Numbers only, but for a word of a prefix ("0:").
    Words tail = w;
    if (!is_number(tail.front()) && tail.front().ends_with(':')) tail.erase(tail.begin());
    bool numbers = !tail.empty() && std::all_of(tail.begin(), tail.end(),
                                                [](View x) { return is_number(x) || is_stamp(x); });
    if (numbers) add(tail);
  }

  void add(const Words& w) {
    for (View x : w)
      if (!is_stamp(x)) rest_.emplace_back(x);
    complete();
  }

  void complete() {
    std::vector<std::string> v = rest_;
    if (!v.empty() && !is_number(v.front())) {
      pending_->redop = v.front();
      v.erase(v.begin());
    }
    std::size_t two = 2 * group_;
    bool root = root_known_ ? has_root_ : v.size() % 4 == 1;
    if (root_known_ && has_root_ && v.size() == two && !whole(v.front()))
      root = false;  // a header of another version
    if (v.size() < two + (root ? 1 : 0)) {
      // Of operations that are in place only.
      bool half = v.size() == static_cast<std::size_t>(group_) + (root ? 1 : 0);
      if (!half) return;
      waiting_ = true;
      return;
    }
    finish(v, root);
  }

  void finish(std::vector<std::string> v, bool root) {
    NcclTestsRow r = std::move(*pending_);
    pending_.reset();
    rest_.clear();
    waiting_ = false;
    if (root) {
      r.root = within_2_20(whole(v.front()).value_or(-1), -1);
      v.erase(v.begin());
    }
    std::size_t g = group_;
    NcclTestsTable& t = table();
    auto drop = [&](const std::string& why) {
      t.dropped.push_back("line " + std::to_string(r.line) + " is dropped: " + why);
    };
    if (v.size() != 2 * g && v.size() != g)
      return drop("it has " + std::to_string(v.size()) +
                  " numbers behind its columns of text, not " + std::to_string(2 * g));
    for (std::size_t h = 0; h * g < v.size(); ++h) {
      auto time = parse_printed(v[h * g]);
      auto alg = parse_printed(v[h * g + 1]);
      auto bus = parse_printed(v[h * g + 2]);
      if (!time || !alg || !bus)
        return drop("\"" +
                    (!time  ? v[h * g]
                     : !alg ? v[h * g + 1]
                            : v[h * g + 2])
                        .substr(0, 30) +
                    "\" is not a number");
      auto& to = v.size() == g || h == 1 ? r.in_place : r.out_of_place;
      to = NcclTestsTime{*time,
                         *alg,
                         *bus,
                         {},
                         g > 3 ? std::max<std::int64_t>(0, whole(v[h * g + 3]).value_or(0)) : 0};
    }
    t.rows.push_back(std::move(r));
  }

  // Whatever is pending cannot be completed.
  void give_up(const std::string& why) {
    if (!pending_) return;
    if (waiting_) {  // half a row is all that there is
      std::vector<std::string> v = rest_;
      if (!v.empty() && !is_number(v.front())) v.erase(v.begin());
      return finish(v, v.size() % 4 == 1);
    }
    std::string what = "line " + std::to_string(pending_->line) + " is dropped: " + why;
    pending_.reset();
    rest_.clear();
    table().dropped.push_back(what);
  }

  NcclTests& out_;
  // Of table, group and rank: its processes.
  std::map<std::tuple<std::size_t, int, int>, std::set<std::string>> devices_;
  int number_ = 0;
  std::string command_;  // operation of the last command line that was seen
  bool started_ = false;
  bool root_known_ = false;
  bool has_root_ = false;
  int group_ = 4;  // columns of half a row
  std::optional<NcclTestsRow> pending_;
  std::vector<std::string> rest_;  // its numbers so far
  bool waiting_ = false;           // they are half a row
};

// Ranks and GPUs of a process, by the list of devices.
void count_devices(NcclTestsTable& t) {
  if (t.devices.empty()) return;
  int group = t.devices.front().group;
  std::map<std::string, int> processes;
  for (const NcclTestsDevice& d : t.devices) {
    t.ranks += d.group == group ? 1 : 0;
    if (!d.pid.empty()) ++processes[d.host + " " + d.pid];
  }
  if (t.gpus_per_process > 0 || processes.empty()) return;
  for (const auto& [process, n] : processes) t.gpus_per_process = std::max(t.gpus_per_process, n);
}

}  // namespace

NcclTests read_nccl_tests_text(const std::string& text, const std::string& file) {
  NcclTests out;
  out.expects_footer = true;
  Parser parser(out);
  int number = 0;
  for (std::size_t from = 0; from <= text.size();) {
    auto end = std::min(text.find('\n', from), text.size());
    parser.line(++number, View(text).substr(from, std::min<std::size_t>(end - from, 1 << 16)));
    from = end + 1;
  }
  parser.end();
  std::erase_if(out.tables,
                [](const NcclTestsTable& t) { return t.rows.empty() && t.dropped.empty(); });
  if (out.tables.empty())
    throw InputError{file,
                     "holds no row of nccl-tests (size, count, type, ..., time, algbw, busbw); "
                     "give what an nccl-tests program printed"};
  for (NcclTestsTable& t : out.tables) count_devices(t);
  return out;
}

}  // namespace ddpsim::io
