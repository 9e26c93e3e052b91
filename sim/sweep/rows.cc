#include "sim/sweep/rows.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/predict/memory.h"
#include "sim/report/text.h"
#include "sim/units/convert.h"
#include "sim/units/number.h"
#include "sim/units/text.h"

namespace ddpsim::sweep {
namespace {

// Columns of a row between the axes and the reason, with the reason's comma.
constexpr std::size_t kResults = 21;
constexpr const char* kFirstResult = "world_size";

constexpr std::size_t kHash = 16;  // digits of Sweep::id

std::string share(const std::optional<double>& v) {
  return v ? fmt::format("{:.6f}", *v) : "";
}
std::string ps(const std::optional<Duration>& d) {
  return d ? std::to_string(d->ps) : "";
}

// Who wrote an axis wrote no --set and no --ranks.
std::string in_words_of_axes(const std::vector<std::string>& fields,
                             const std::vector<std::string>& values, const std::string& where) {
  for (std::size_t k = 0; k < fields.size(); ++k) {
    std::string set = fields[k] + "=" + values[k];
    if (where.starts_with("--set " + set)) return where.substr(6);
    if (fields[k] == "ranks" && where == "--ranks " + values[k]) return set;
  }
  return where;
}

}  // namespace

Sweep sweep_over(const std::vector<std::string>& axes, const std::vector<std::string>& zips,
                 bool interval) {
  Sweep s;
  s.interval = interval;
  for (const std::string& text : axes) s.axes.push_back(parse_axis("--axis", text));
  std::vector<Axis> zipped;
  for (const std::string& text : zips) zipped.push_back(parse_axis("--zip", text));
  if (!zipped.empty()) s.axes.push_back(zip(zipped));
  if (s.axes.empty())
    throw InputError{"--axis",
                     "nothing to sweep; name a field and its values, for example --axis "
                     "bucket_cap_mb=1,5,10,25,50,100 --axis cluster.hosts=1:64:x2"};
  s.points = points_of(s.axes);
  return s;
}

SweepRow row_at(const Sweep& s, std::int64_t point) {
  SweepRow row;
  row.point = point;
  row.values = values_at(s.axes, point);
  return row;
}

void fill(SweepRow& row, const Sweep& s, const predict::Question& q, const predict::Prediction& p,
          const predict::Options& options) {
  row.ranks = q.scenario.ranks;
  row.jitter = q.scenario.jitter.has_value();
  row.step = p.summary.step;
  if (s.interval || p.fitted) {
    row.low = p.step_low;
    row.high = p.step_high;
  }
  row.samples_per_s = p.samples_per_s;
  row.samples =
      static_cast<double>(q.workload.batch) * q.scenario.plan.accumulation_steps * q.scenario.ranks;
  row.scaling_efficiency = p.scaling_efficiency;
  if (row.low && p.scaling_efficiency > 0) {
    row.efficiency_low = p.efficiency_low;
    row.efficiency_high = p.efficiency_high;
  }
  row.profile = q.profile.name;
  row.basis = report::basis_sentence(q.profile, q.workload);
  row.communication = p.summary.communication;
  row.exposed = p.summary.exposed_communication;
  row.all_reduces = static_cast<int>(p.summary.buckets.size());
  auto largest = std::max_element(p.summary.buckets.begin(), p.summary.buckets.end(),
                                  [](const auto& x, const auto& y) { return x.bytes < y.bytes; });
  if (largest != p.summary.buckets.end()) row.algorithm = largest->algorithm;
  row.busiest_link = p.busiest_link.name;
  row.busiest_share = p.busiest_link.busy;
  if (p.memory) {
    row.memory = p.memory->device;
    if (p.memory->capacity > 0) row.fits = p.memory->fits();
    if (!p.memory->fits()) row.would_fit = predict::in_words(predict::what_fits(q, options));
  }
  row.beyond = fmt::format("{}", fmt::join(p.extrapolated, "; "));
}

bool does_not_fit(const SweepRow& r) {
  return r.fits && !*r.fits;
}

std::string memory_text(const SweepRow& r) {
  if (r.memory == 0) return {};
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  return fmt::format("{:.1f} GiB{}", static_cast<double>(r.memory) / kGiB,
                     does_not_fit(r) ? " does not fit" : "");
}

void refuse(SweepRow& row, const Sweep& s, const InputError& e) {
  row.reason = printable(
      e.where.empty() ? e.what
                      : in_words_of_axes(fields_of(s.axes), row.values, e.where) + ": " + e.what);
}

namespace {

constexpr const char* kFirstColumn = "point,";
constexpr const char* kLastColumn = "sweep";

// Fields of a line that report::csv_field wrote.
std::optional<std::vector<std::string>> split_row(const std::string& line) {
  std::vector<std::string> out(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"')
      out.back() += line[++i];
    else if (quoted && c == '"')
      quoted = false;
    else if (!quoted && c == '"' && out.back().empty())
      quoted = true;
    else if (!quoted && c == ',')
      out.emplace_back();
    else
      out.back() += c;
  }
  return quoted ? std::nullopt : std::optional(out);
}

}  // namespace

bool is_sweep_header(const std::string& line) {
  auto columns = split_row(line);
  auto has = [&](const char* name) {
    return columns && std::count(columns->begin() + 1, columns->end(), name) > 0;
  };
  return line.starts_with(kFirstColumn) && has(kFirstResult) && has("step_ps") && has("reason") &&
         columns->back() == kLastColumn;
}

RowText read_row(const std::string& header, const std::string& line) {
  RowText out;
  auto columns = split_row(header);
  auto fields = split_row(line);
  auto wrong = [&](std::string why) {
    out.problem = std::move(why);
    return out;
  };
  if (!fields || fields->size() != columns->size())
    return wrong(fmt::format("it has {} fields, its header {}", fields ? fields->size() : 0,
                             columns->size()));
  auto first = std::find(columns->begin() + 1, columns->end(), kFirstResult);
  std::size_t axes = first - columns->begin();
  auto field = [&](const char* name) -> const std::string& {
    return (*fields)[std::find(first, columns->end(), name) - columns->begin()];
  };
  out.point = parse_integer(fields->front()).value_or(-1);
  if (out.point < 0) return wrong("its point is not a number");
  out.values.assign(fields->begin() + 1, fields->begin() + axes);
  out.id = fields->back();
  if (points_of_id(out.id) == 0) return wrong("its last field is no mark of a sweep");
  bool answered = field("reason").empty();
  for (const char* name : {"world_size", "step_ps"}) {
    auto v = parse_integer(field(name));
    if (answered && (!v || *v < 1))
      return wrong(fmt::format("its {} is not a positive number", name));
    if (!answered && !field(name).empty())
      return wrong(fmt::format("it has a reason and a {}", name));
  }
  return out;
}

std::vector<std::string> printed_values(const std::vector<std::string>& values) {
  std::vector<std::string> out;
  for (const std::string& v : values)
    out.push_back(split_row(report::csv_field(v)).value_or(std::vector<std::string>(1)).front());
  return out;
}

std::int64_t points_of_id(const std::string& id) {
  bool hash =
      id.size() > kHash && id[kHash] == '-' && id.find_first_not_of("0123456789abcdef") == kHash;
  return hash ? std::max<std::int64_t>(parse_integer(id.substr(kHash + 1)).value_or(0), 0) : 0;
}

std::string sweep_header(const Sweep& s) {
  std::string out = "point";
  for (const std::string& f : fields_of(s.axes)) out += "," + report::csv_field(f);
  return out +
         ",world_size,step_ps,step_low_ps,step_high_ps,samples_per_s,scaling_efficiency,scaling_"
         "efficiency_low,scaling_efficiency_high,communication_ps,exposed_ps,all_reduces,largest_"
         "all_reduce,busiest_link,busiest_share,memory_bytes,fits,would_fit,profile,basis,"
         "beyond_model,reason,sweep\n";
}

std::string sweep_line(const Sweep& s, const SweepRow& r) {
  std::string out = std::to_string(r.point);
  for (const std::string& v : r.values) out += "," + report::csv_field(v);
  if (r.reason.empty())
    out += fmt::format(",{},{},{},{},{:.3f},{},{},{},{},{},{},{},{},{:.6f},{},{},{},{},{},{},",
                       r.ranks, r.step.ps, ps(r.low), ps(r.high), r.samples_per_s,
                       r.scaling_efficiency > 0 ? share(r.scaling_efficiency) : "",
                       share(r.efficiency_low), share(r.efficiency_high), r.communication.ps,
                       r.exposed.ps, r.all_reduces, report::csv_field(r.algorithm),
                       report::csv_field(r.busiest_link), r.busiest_share, r.memory,
                       !r.fits   ? ""
                       : *r.fits ? "yes"
                                 : "does not fit",
                       report::csv_field(r.would_fit), report::csv_field(r.profile),
                       report::csv_field(r.basis), report::csv_field(r.beyond));
  else
    out += std::string(kResults, ',') + report::csv_field(r.reason);
  return out + "," + s.id + "\n";
}

namespace {

std::vector<std::string> fields_in(const std::string& line) {
  return split_row(line).value_or(std::vector<std::string>(1));
}

template <class T>
T parsed(const std::optional<T>& v, const std::string& text, const std::string& file) {
  if (!v)
    throw InputError{file, "\"" + text.substr(0, 60) + "\" is no number that ddpsim sweep writes"};
  return *v;
}

}  // namespace

Sweep sweep_of(const std::string& header, const std::string& file) {
  std::vector<std::string> columns = fields_in(header);
  Sweep s;
  auto end = std::find(columns.begin(), columns.end(), kFirstResult);
  for (auto c = columns.begin() + 1; c < end; ++c) {
    s.axes.emplace_back();
    s.axes.back().fields = {*c};
  }
  if (sweep_header(s) != header + "\n")
    throw InputError{file, "has other columns than this version of ddpsim sweep writes"};
  return s;
}

SweepRow row_of(const Sweep& s, const std::string& line, const std::string& file) {
  std::vector<std::string> f = fields_in(line);
  std::size_t axes = fields_of(s.axes).size();
  if (f.size() != 1 + axes + kResults + 1)
    throw InputError{file, "has a row that ddpsim sweep does not write"};
  SweepRow r;
  r.point = parsed(parse_integer(f[0]), f[0], file);
  r.values.assign(f.begin() + 1, f.begin() + 1 + static_cast<std::ptrdiff_t>(axes));
  auto at = [&](std::size_t k) -> const std::string& { return f[1 + axes + k]; };
  auto whole = [&](std::size_t k) { return parsed(parse_integer(at(k)), at(k), file); };
  auto real = [&](std::size_t k) { return parsed(parse_number(at(k)), at(k), file); };
  r.reason = at(kResults - 1);
  if (!r.reason.empty()) return r;
  r.ranks = static_cast<int>(whole(0));
  r.step = {whole(1)};
  if (!at(2).empty()) r.low = Duration{whole(2)};
  if (!at(3).empty()) r.high = Duration{whole(3)};
  r.samples_per_s = real(4);
  r.samples = r.samples_per_s * static_cast<double>(r.step.ps) / kPsPerSecond;
  if (!at(5).empty()) r.scaling_efficiency = real(5);
  if (!at(6).empty()) r.efficiency_low = real(6);
  if (!at(7).empty()) r.efficiency_high = real(7);
  r.communication = {whole(8)};
  r.exposed = {whole(9)};
  r.all_reduces = static_cast<int>(whole(10));
  r.algorithm = at(11);
  r.busiest_link = at(12);
  r.busiest_share = real(13);
  r.memory = whole(14);
  if (!at(15).empty()) r.fits = at(15) == "yes";
  r.would_fit = at(16);
  r.profile = at(17);
  r.basis = at(18);
  r.beyond = at(19);
  return r;
}

std::string id_of(std::uint64_t hash, std::int64_t points) {
  return fmt::format("{:0{}x}-{}", hash, kHash, points);
}

}  // namespace ddpsim::sweep
