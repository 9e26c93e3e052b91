// From rows as printed to a Run: which rows can be true, on how many ranks, under which setting.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "sim/io/json_reader.h"
#include "sim/io/nccl_tests.h"
#include "sim/model/version.h"
#include "sim/units/convert.h"

namespace ddpsim::io {
namespace {

constexpr int kMostRanks = 1 << 16;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 42;  // so that no product overflows

// Whether two printed numbers can be of one row: low <= high once each was moved by what its print
// may have rounded away.
bool may_be(double low, double high, Printed p) {
  double slack = 1e-6 * std::abs(p.value);
  return p.value + p.half + slack >= low && p.value - p.half - slack <= high;
}

// What algbw and busbw mean: bytes / time and that times the bus factor; or both the latter, as
// early versions have it for all-gather and reduce-scatter.
enum class Meaning { Now, Early };

// algbw = bytes / time x factor.
bool algbw_agrees(std::int64_t bytes, double factor, const NcclTestsTime& t) {
  double b = static_cast<double>(bytes) / kBytesPerUsOfGBps * factor;  // GB/s x us
  double shortest = t.time_us.value - t.time_us.half;
  return may_be(b / (t.time_us.value + t.time_us.half), shortest > 0 ? b / shortest : 1e300,
                t.algbw);
}

bool busbw_agrees(double factor, const NcclTestsTime& t) {
  return may_be((t.algbw.value - t.algbw.half) * factor, (t.algbw.value + t.algbw.half) * factor,
                t.busbw);
}

// Whether half a row is one of n ranks.
bool ranks_agree(const NcclTestsTable& t, const NcclTestsRow& r, const NcclTestsTime& x, int n,
                 Meaning m) {
  double factor = nccl_tests_bus_factor(t.op, n);
  return m == Meaning::Now ? busbw_agrees(factor, x)
                           : busbw_agrees(1, x) && algbw_agrees(r.bytes, factor, x);
}

// Enough digits to tell ranks apart.
bool tells_ranks(const NcclTestsTime& t) {
  return t.algbw.value > 50 * t.algbw.half && t.busbw.value > 0;
}

std::vector<const NcclTestsTime*> halves(const NcclTestsRow& row) {
  std::vector<const NcclTestsTime*> out;
  if (row.out_of_place) out.push_back(&*row.out_of_place);
  if (row.in_place) out.push_back(&*row.in_place);
  return out;
}

std::string list_of(const std::set<std::string>& names) {
  std::string out;
  for (const std::string& n : names) out += (out.empty() ? "" : ", ") + n;
  return out;
}

// By what its columns can only be; "" = several.
std::string guess_op(const NcclTestsTable& t) {
  std::set<std::string> guesses;
  for (const NcclTestsRow& r : t.rows) {
    if (r.redop.empty() || r.bytes == 0 || r.bytes > kMostBytes || r.count > r.bytes) continue;
    bool whole = r.count * std::max(1, nccl_tests_element_bytes(r.type)) == r.bytes;
    bool reduces = r.redop != "none";
    if (reduces)
      guesses.insert(r.root >= 0 ? "reduce" : whole ? "all_reduce" : "reduce_scatter");
    else if (r.root >= 0)
      guesses.insert("broadcast");
    else
      return {};
  }
  return guesses.size() == 1 ? *guesses.begin() : std::string();
}

// The table that is meant; several of the same operation and devices are repetitions of one.
NcclTestsTable choose(const NcclTests& tests, const NcclTestsSetting& setting) {
  std::string wanted = setting.op.empty() ? "" : nccl_tests_op(setting.op);
  if (!setting.op.empty() && wanted.empty()) {
    std::string hint = nearest(setting.op, nccl_tests_ops());
    throw InputError{"--op " + setting.op.substr(0, 60),
                     hint.empty()
                         ? "expected one of " + fmt::format("{}", fmt::join(nccl_tests_ops(), ", "))
                         : "is no operation of nccl-tests (did you mean \"" + hint + "\"?)"};
  }
  std::vector<NcclTestsTable> left;
  std::set<std::string> ops;
  std::set<std::string> forced;
  for (NcclTestsTable t : tests.tables) {
    if (!t.op_is_sure && !wanted.empty() && (t.op.empty() || guess_op(t).empty()))
      t.op = wanted;
    else if (std::string guess = guess_op(t); !t.op_is_sure && !guess.empty())
      t.op = guess;
    ops.insert(t.op.empty() ? "an unnamed operation" : t.op);
    std::string name = t.forced_kind.empty() ? "" : t.forced_kind + "=" + t.forced_value;
    if (!name.empty()) forced.insert(name);
    if (!wanted.empty() && t.op != wanted) continue;
    if (!setting.forced.empty() && name != setting.forced) continue;
    left.push_back(std::move(t));
  }
  if (left.empty() && !setting.forced.empty())
    throw InputError{"--forced " + setting.forced,
                     forced.empty() ? "the file forces nothing; leave --forced out"
                                    : "the file holds " + list_of(forced)};
  if (left.empty()) throw InputError{"--op " + setting.op, "the file holds " + list_of(ops)};
  if (setting.forced.empty() &&
      forced.size() + (std::any_of(left.begin(), left.end(),
                                   [](const NcclTestsTable& t) { return t.forced_kind.empty(); })
                           ? 1
                           : 0) >
          1)
    throw InputError{setting.file, "holds " + list_of(forced) + "; choose one with --forced"};
  NcclTestsTable out = left.front();
  if (out.op.empty() && out.rows.empty() && !out.dropped.empty())
    throw InputError{setting.file, "no row of nccl-tests is left: " + out.dropped.front()};
  if (out.op.empty())
    throw InputError{
        setting.file,
        "does not say which operation it is of; say it with --op, for example --op all_reduce"};
  for (std::size_t i = 1; i < left.size(); ++i) {
    const NcclTestsTable& t = left[i];
    if (t.op != out.op)
      throw InputError{setting.file, "holds " + list_of(ops) + "; choose one with --op"};
    if (t.ranks == 0 || out.ranks == 0)
      throw InputError{setting.file,
                       "holds several tables of " + t.op +
                           " and does not say of which devices; split it, a Run is of one setting"};
    if (t.ranks != out.ranks || t.host_time != out.host_time)
      throw InputError{
          setting.file,
          fmt::format("holds {} on {} ranks and on {} ranks; split it, a Run is of one setting",
                      t.op, out.ranks, t.ranks)};
    out.rows.insert(out.rows.end(), t.rows.begin(), t.rows.end());
    out.dropped.insert(out.dropped.end(), t.dropped.begin(), t.dropped.end());
    out.footer = out.footer && t.footer;
  }
  return out;
}

// Of a log of very many rows every so manieth tells the ranks as well as all do.
std::vector<const NcclTestsRow*> telling(const NcclTestsTable& t) {
  constexpr std::size_t kEnough = 1024;
  std::vector<const NcclTestsRow*> out;
  for (std::size_t i = 0; i < t.rows.size(); i += t.rows.size() / kEnough + 1)
    out.push_back(&t.rows[i]);
  return out;
}

// Rows whose busbw / algbw is that of n ranks.
std::size_t agreeing(const NcclTestsTable& t, int n, Meaning m) {
  std::size_t out = 0;
  for (const NcclTestsRow* row : telling(t))
    for (const NcclTestsTime* x : halves(*row))
      out += tells_ranks(*x) && ranks_agree(t, *row, *x, n, m) ? 1 : 0;
  return out;
}

// Early, if algbw and busbw are the same though they may not be, and bytes / time is another.
Meaning meaning_of(const NcclTestsTable& t) {
  if ((t.op != "all_gather" && t.op != "reduce_scatter") || t.host_time) return Meaning::Now;
  std::size_t now = 0;
  std::size_t early = 0;
  for (const NcclTestsRow& r : t.rows)
    for (const NcclTestsTime* x : halves(r)) {
      if (!tells_ranks(*x)) continue;
      bool plain = algbw_agrees(r.bytes, 1, *x);
      now += plain ? 1 : 0;
      early += !plain && busbw_agrees(1, *x) ? 1 : 0;
    }
  return early > now ? Meaning::Early : Meaning::Now;
}

struct Told {
  std::size_t rows = 0;  // that tell
  int least = 0;         // ranks that most of them agree with; 0 = none
  int most = 0;
  double ratio = 0;  // busbw / algbw of the row with the largest bandwidth
};
Told told_by_bandwidths(const NcclTestsTable& t, Meaning m) {
  Told out;
  double largest = 0;
  for (const NcclTestsRow* r : telling(t))
    for (const NcclTestsTime* x : halves(*r)) {
      if (!tells_ranks(*x)) continue;
      ++out.rows;
      if (x->algbw.value > largest)
        largest = x->algbw.value,
        out.ratio = m == Meaning::Now ? x->busbw.value / x->algbw.value
                                      : x->algbw.value * x->time_us.value * kBytesPerUsOfGBps /
                                            static_cast<double>(r->bytes);
    }
  std::size_t best = 0;
  if (out.rows == 0 || nccl_tests_bus_factor(t.op, 2) == nccl_tests_bus_factor(t.op, 4)) return out;
  // The factor is one number for all n above some thousands.
  for (int n = 2; n <= 4096; ++n) {
    std::size_t here = agreeing(t, n, m);
    if (here > best) best = here, out.least = n;
    if (here == best && best > 0) out.most = n;
  }
  return out;
}

int ranks_of(const NcclTestsTable& t, const NcclTestsSetting& setting, Meaning m,
             std::vector<std::string>& notes) {
  int ranks = setting.ranks > 0 ? setting.ranks : t.ranks;
  Told told = told_by_bandwidths(t, m);
  std::string says = told.least == told.most ? fmt::format("{}", told.least)
                                             : fmt::format("{} to {}", told.least, told.most);
  if (ranks == 0) {
    if (told.least > 0 && told.least == told.most) {
      notes.push_back(
          fmt::format("the file names no ranks; busbw / algbw is that of {}", told.least));
      return told.least;
    }
    throw InputError{setting.file, told.least > 0 ? "names no ranks, and busbw / algbw fits " +
                                                        says + "; say it with --ranks"
                                                  : "names no ranks; say how many with --ranks"};
  }
  if (ranks > kMostRanks)
    throw InputError{setting.file, fmt::format("{} ranks; at most {} are read", ranks, kMostRanks)};
  if (told.rows > 0 && 2 * agreeing(t, ranks, m) < told.rows) {
    std::string source = setting.ranks > 0 ? "--ranks says" : "its list of devices has";
    throw InputError{
        setting.file,
        told.least > 0
            ? fmt::format(
                  "busbw / algbw is {:.3f}, as {} of {} ranks has it; {} {}, which would be {:.3f}",
                  told.ratio, t.op, says, source, ranks, nccl_tests_bus_factor(t.op, ranks))
            : fmt::format("busbw / algbw is {:.3f}; {} of {} ranks has {:.3f} (is it another "
                          "operation? see --op)",
                          told.ratio, t.op, ranks, nccl_tests_bus_factor(t.op, ranks))};
  }
  return ranks;
}

// Why a row cannot be true; "" = it can.
std::string damage(const NcclTestsTable& t, const NcclTestsRow& r, int ranks, Meaning m) {
  int element = nccl_tests_element_bytes(r.type);
  if (element == 0) return "\"" + r.type.substr(0, 20) + "\" is no type of nccl-tests";
  if (r.bytes > kMostBytes || r.count > r.bytes) return "its size is not true";
  if (r.bytes != r.count * element && r.bytes != r.count * element * ranks)
    return fmt::format("{} elements of {} bytes are not {} bytes", r.count, element, r.bytes);
  for (const NcclTestsTime* x : halves(r)) {
    if (x->time_us.value < 0 || x->time_us.value > 1e12 || x->algbw.value < 0)
      return "its time is not true";
    double factor = nccl_tests_bus_factor(t.op, ranks);
    if (x->time_us.value > 0 && !t.host_time &&
        !algbw_agrees(r.bytes, m == Meaning::Now ? 1 : factor, *x))
      return fmt::format("{} bytes in {} us are {:.2f} GB/s, not {}", r.bytes, x->time_us.value,
                         static_cast<double>(r.bytes) / kBytesPerUsOfGBps / x->time_us.value,
                         x->algbw.value);
    if (!busbw_agrees(m == Meaning::Now ? factor : 1, *x))
      return fmt::format("busbw {} is not that of algbw {} on {} ranks", x->busbw.value,
                         x->algbw.value, ranks);
  }
  return {};
}

std::int64_t declared_sizes(const NcclTestsTable& t) {
  if (t.max_bytes < t.min_bytes || t.max_bytes <= 0 || t.step <= 0) return 0;
  if (t.max_bytes > kMostBytes) return 0;
  if (!t.step_is_factor) return (t.max_bytes - t.min_bytes) / t.step + 1;
  if (t.step < 2) return 0;
  std::int64_t n = 0;
  for (std::int64_t s = std::max<std::int64_t>(1, t.min_bytes); s <= t.max_bytes; s *= t.step) {
    ++n;
    if (s > t.max_bytes / t.step) break;
  }
  return n;
}

// `empty`: rows of 0 bytes, which stand for sizes that are too small.
void note_missing(const NcclTests& tests, const NcclTestsTable& t,
                  const std::set<std::int64_t>& found, int empty, std::vector<std::string>& notes) {
  std::int64_t declared = declared_sizes(t);
  auto have = static_cast<std::int64_t>(found.size()) + empty;
  if (declared > have)
    notes.push_back(fmt::format(
        "{} of {} declared sizes are missing: {} to {} bytes were to be measured, the rows reach "
        "from {} to {}",
        declared - have, declared, t.min_bytes, t.max_bytes, *found.begin(), *found.rbegin()));
  if (tests.expects_footer && !t.footer)
    notes.push_back("the footer is missing: the log ends before the test did");
}

// Where the sample of these parameters is in Run::samples.
using SampleIndex = std::map<std::map<std::string, std::int64_t>, std::size_t>;

void add_samples(const NcclTestsTable& t, const NcclTestsRow& r, int ranks, Run& run,
                 SampleIndex& index) {
  for (bool in_place : {false, true}) {
    const auto& half = in_place ? r.in_place : r.out_of_place;
    if (!half || !(half->time_us.value > 0)) continue;
    Sample s;
    s.op = t.host_time ? t.op + "_host_time" : t.op;
    s.parameters = {{"bytes", r.bytes},
                    {"ranks", ranks},
                    {"in_place", in_place ? 1 : 0},
                    {"count", r.count},
                    {"element_bytes", nccl_tests_element_bytes(r.type)}};
    if (half->wrong > 0) s.parameters["wrong"] = half->wrong;
    auto [there, fresh] = index.try_emplace(s.parameters, run.samples.size());
    if (fresh) run.samples.push_back(s);
    Sample& to = run.samples[there->second];
    auto add = [&](double us) {
      if (us > 0 && us <= 1e12)
        to.durations.push_back({static_cast<std::int64_t>(std::llround(us * kPsPerUs))});
    };
    for (double us : half->each_us) add(us);
    if (half->each_us.empty()) add(half->time_us.value);
    if (!to.durations.empty()) continue;
    run.samples.pop_back();
    index.erase(there);
  }
}

// One word of NCCL_ALGO or NCCL_PROTO, lower case; "" where several are allowed, or it is unknown.
template <std::size_t N>
std::string forced_word(const std::map<std::string, std::string>& environment, const char* key,
                        const std::array<const char*, N>& words) {
  auto at = environment.find(key);
  if (at == environment.end()) return {};
  std::string plain;
  for (char c : at->second)
    plain.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
  return std::find(words.begin(), words.end(), plain) == words.end() ? std::string() : plain;
}

CollectiveSetting setting_of(const NcclTests& tests, const NcclTestsTable& t,
                             const NcclTestsSetting& setting, int ranks) {
  CollectiveSetting c;
  c.op = t.op;
  c.ranks = ranks;
  std::set<std::string> hosts;
  for (const NcclTestsDevice& d : t.devices) hosts.insert(d.host);
  c.hosts = setting.hosts > 0 ? setting.hosts : static_cast<int>(hosts.size());
  c.gpus_per_process =
      setting.gpus_per_process >= 0 ? setting.gpus_per_process : t.gpus_per_process;
  c.gpu = !setting.gpu.empty() ? setting.gpu : t.devices.empty() ? "" : t.devices.front().name;
  c.nccl = setting.nccl.empty() ? tests.nccl : setting.nccl;
  c.environment = setting.environment;
  c.environment.insert(tests.environment.begin(), tests.environment.end());
  if (!t.forced_kind.empty()) c.environment["NCCL_" + t.forced_kind] = t.forced_value;
  c.algorithm = forced_word(c.environment, "NCCL_ALGO", kNcclAlgorithmWords);
  c.protocol = forced_word(c.environment, "NCCL_PROTO", kNcclProtocolWords);
  c.cluster = setting.cluster;
  c.source = setting.source;
  return c;
}

std::string key_of(const CollectiveSetting& c) {
  std::string where = c.cluster.empty() ? c.gpu.empty() ? "unknown" : c.gpu : c.cluster;
  std::string out = fmt::format("nccl-tests/{}/{}/n{}", c.op, where, c.ranks);
  for (const std::string& word : {c.algorithm, c.protocol})
    if (!word.empty()) out += "/" + word;
  return out;
}

}  // namespace

NcclTestsRun run_of(const NcclTests& tests, const NcclTestsSetting& setting) {
  NcclTestsTable t = choose(tests, setting);
  if (t.firsts > 1)
    throw InputError{setting.file,
                     fmt::format("{} processes each call themselves rank 0: nccl-tests was built "
                                 "without MPI, each ran by itself, and nothing went between them; "
                                 "build it with make MPI=1, and measure again",
                                 t.firsts)};
  NcclTestsRun out;
  out.notes = t.dropped;
  Meaning meaning = meaning_of(t);
  int ranks = ranks_of(t, setting, meaning, out.notes);
  Run& run = out.run;
  std::set<std::int64_t> sizes;
  SampleIndex index;
  int empty = 0;
  for (const NcclTestsRow& r : t.rows) {
    if (r.bytes == 0) {
      ++empty;
      continue;
    }
    if (std::string why = damage(t, r, ranks, meaning); !why.empty()) {
      out.notes.push_back(fmt::format("line {} is dropped: {}", r.line, why));
      continue;
    }
    sizes.insert(r.bytes);
    add_samples(t, r, ranks, run, index);
  }
  if (run.samples.empty())
    throw InputError{
        setting.file,
        "no row of nccl-tests is left" +
            (out.notes.empty() ? std::string("; is it the output of an nccl-tests program?")
                               : ": " + out.notes.front())};
  if (empty > 0) out.notes.push_back(fmt::format("{} rows of 0 bytes are left out", empty));
  if (t.host_time)
    out.notes.push_back("the times are the host's (-C), not the collective's: op is " + t.op +
                        "_host_time");
  note_missing(tests, t, sizes, empty, out.notes);

  run.kind = RunKind::Measured;
  run.evidence = setting.evidence;
  run.collectives = setting_of(tests, t, setting, ranks);
  run.key = key_of(*run.collectives);
  run.origin.version = kVersion;
  run.origin.backend = "nccl";
  run.origin.hosts = run.collectives->hosts == 1 ? "gpus" : "machines";
  run.origin.compute = "real";
  run.origin.gpu = run.collectives->gpu;
  run.origin.software =
      tests.tests_version.empty() ? "nccl-tests" : "nccl-tests " + tests.tests_version;
  for (const std::string& note : out.notes) run.skipped.push_back({"rows", note});
  return out;
}

}  // namespace ddpsim::io
