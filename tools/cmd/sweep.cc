#include "tools/cmd/sweep.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "sim/model/version.h"
#include "sim/report/text.h"
#include "sim/units/number.h"
#include "sim/units/text.h"
#include "tools/cmd/documents.h"
#include "tools/cmd/sweep_flips.h"

namespace ddpsim::cli {
namespace {

constexpr std::size_t kBest = 5;
constexpr const char* kJitterNote =
    "the scenario's jitter is in samples/s and efficiency; the steps are those without it";

// One text after another, which do not run together.
std::uint64_t hashed(std::uint64_t h, const std::string& text) {
  return fnv1a(h, text + '\xff');
}

Choice choice_at(const Sweep& s, const std::vector<std::string>& values) {
  Choice out;
  std::size_t k = 0;
  for (const Axis& a : s.axes)
    for (const std::string& field : a.fields) choose(field, values[k++], out);
  return out;
}

// Columns of a row between the axes and the reason, with the reason's comma.
constexpr std::size_t kResults = 19;
constexpr const char* kFirstResult = "world_size";
constexpr std::size_t kProfilesNamed = 6;

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

// A field that no document has, a name that nothing has, a value of the wrong kind or without its
// unit: an axis of invalid points only.
void check_axis(const Terminal& t, Loader& loader, const Sweep& s, std::size_t axis) {
  const Axis& a = s.axes[axis];
  io::Home home = home_of(t);
  for (const auto& values : a.values)
    for (std::size_t k = 0; k < a.fields.size(); ++k) {
      const std::string& field = a.fields[k];
      const char* folder = field == "workload"  ? "workloads"
                           : field == "cluster" ? "topologies"
                           : field == "profile" ? "calib/profiles"
                                                : nullptr;
      Choice ignored;
      try {
        if (folder) (void)home.find(folder, values[k], field.c_str());
        choose(field, values[k], ignored);
      } catch (const InputError& e) {
        throw InputError{"--axis " + field, folder ? "\"" + e.where + "\": " + e.what : e.what};
      }
    }
  std::vector<std::string> values = values_at(s.axes, 0);
  try {
    (void)loader.ask(choice_at(s, values));
  } catch (const InputError& e) {
    for (const std::string& field : a.fields) {
      bool named = e.where.starts_with("--set " + field + "=");
      bool nothing = e.what.starts_with("unknown key") || e.what.starts_with("expected ") ||
                     e.what.starts_with("is a bare number");
      if (field == "ranks" && e.where.starts_with("--ranks ") && e.what.starts_with("expected "))
        named = nothing = true;
      for (const char* wrong :
           {"is not an index of a list", "is not inside an object", "has no unit",
            "has an unknown unit", "is not a number with a unit", "is not a variable of NCCL"})
        nothing = nothing || e.what.find(wrong) != std::string::npos;
      if (named && nothing) throw InputError{"--axis " + field, e.what};
    }
  }
}

}  // namespace

Sweep make_sweep(const Terminal& t, Loader& loader, const QuestionFlags& flags,
                 const std::vector<std::string>& axes, const std::vector<std::string>& zips,
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
  for (std::size_t k = 0; k < s.axes.size(); ++k) check_axis(t, loader, s, k);
  std::uint64_t h =
      hashed(0xcbf29ce484222325ull, std::string(kVersion) + (interval ? " interval" : ""));
  for (const std::string& text :
       {flags.workload, flags.cluster, flags.plan, flags.ranks, flags.layers, flags.fidelity})
    h = hashed(h, text);
  for (const auto* list : {&flags.profiles, &flags.sets, &axes, &zips}) {
    for (const std::string& text : *list) h = hashed(h, text);
    h = hashed(h, "\n");
  }
  // What the files say; where the first point is invalid, its reason stands for them.
  try {
    Asked a = loader.ask(choice_at(s, values_at(s.axes, 0)));
    std::vector<std::string> varied;
    for (const std::string& field : fields_of(s.axes))
      varied.push_back(field.substr(field.rfind('.') + 1));
    s.nccl = nccl_text(a.scenario.plan, varied);
    for (const io::Json* j : std::initializer_list<const io::Json*>{
             &a.document, &a.workload->document, &a.hardware->document,
             &a.hardware->profile_document})
      h = hashed(h, j->dump());
  } catch (const InputError& e) {
    // The first and the last point fail alike, and no axis is to blame: the question itself is
    // wrong.
    bool blamed = false;
    for (const std::string& field : fields_of(s.axes))
      blamed = blamed || e.where.find(field) != std::string::npos;
    std::string last;
    try {
      (void)loader.ask(choice_at(s, values_at(s.axes, s.points - 1)));
    } catch (const InputError& other) {
      last = other.where + other.what;
    }
    if (!blamed && last == e.where + e.what) throw;
    h = hashed(h, e.where + e.what);
  }
  s.id = fmt::format("{:016x}-{}", h, s.points);
  return s;
}

std::string title(Loader& loader, const Sweep& s) {
  std::string fields;
  for (const std::string& f : fields_of(s.axes)) fields += (fields.empty() ? "" : " x ") + f;
  try {
    Asked a = loader.ask(choice_at(s, values_at(s.axes, 0)));
    return fmt::format("{} on {}: {}{}{}", a.workload->workload.name, a.hardware->cluster.name,
                       fields, s.nccl.empty() ? "" : "; ", s.nccl);
  } catch (const InputError&) {
    return fields;
  }
}

SweepRow ask_point(Loader& loader, const Sweep& sweep, std::int64_t point) {
  SweepRow row;
  row.point = point;
  row.values = values_at(sweep.axes, point);
  try {
    Asked a = loader.ask(choice_at(sweep, row.values));
    a.options.warmup = false;
    a.options.names = false;
    a.options.interval = sweep.interval;
    predict::Prediction p = predict::predict(a.question(), a.options);
    row.ranks = a.scenario.ranks;
    row.jitter = a.scenario.jitter.has_value();
    row.step = p.summary.step;
    if (sweep.interval || p.fitted) {
      row.low = p.step_low;
      row.high = p.step_high;
    }
    row.samples_per_s = p.samples_per_s;
    row.samples = static_cast<double>(a.workload->workload.batch) *
                  a.scenario.plan.accumulation_steps * a.scenario.ranks;
    row.scaling_efficiency = p.scaling_efficiency;
    if (row.low && p.scaling_efficiency > 0) {
      row.efficiency_low = p.efficiency_low;
      row.efficiency_high = p.efficiency_high;
    }
    row.profile = a.hardware->profile.name;
    row.basis = report::basis_sentence(a.hardware->profile);
    row.communication = p.summary.communication;
    row.exposed = p.summary.exposed_communication;
    row.all_reduces = static_cast<int>(p.summary.buckets.size());
    auto largest = std::max_element(p.summary.buckets.begin(), p.summary.buckets.end(),
                                    [](const auto& x, const auto& y) { return x.bytes < y.bytes; });
    if (largest != p.summary.buckets.end()) row.algorithm = largest->algorithm;
    row.busiest_link = p.busiest_link.name;
    row.busiest_share = p.busiest_link.busy;
    row.state = p.state_bytes;
    row.beyond = fmt::format("{}", fmt::join(p.extrapolated, "; "));
  } catch (const InputError& e) {
    row.reason =
        printable(e.where.empty() ? e.what
                                  : in_words_of_axes(fields_of(sweep.axes), row.values, e.where) +
                                        ": " + e.what);
  } catch (const std::bad_alloc&) {
    row.reason = "not enough memory for this point";
    row.internal = true;
  } catch (const std::exception& e) {
    row.reason = printable("internal error, please report it: " + std::string(e.what()));
    row.internal = true;
  }
  return row;
}

SweepRow skipped_point(const Sweep& sweep, std::int64_t point) {
  SweepRow row;
  row.point = point;
  row.values = values_at(sweep.axes, point);
  row.reason = "not asked (--skip)";
  return row;
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
  auto axes = static_cast<std::size_t>(first - columns->begin());
  auto field = [&](const char* name) -> const std::string& {
    return (*fields)[static_cast<std::size_t>(std::find(first, columns->end(), name) -
                                              columns->begin())];
  };
  out.point = parse_integer(fields->front()).value_or(-1);
  if (out.point < 0) return wrong("its point is not a number");
  out.values.assign(fields->begin() + 1, fields->begin() + static_cast<std::ptrdiff_t>(axes));
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
  constexpr std::size_t kHash = 16;
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
         "all_reduce,busiest_link,busiest_share,state_bytes,profile,basis,"
         "beyond_model,reason,sweep\n";
}

std::string sweep_line(const Sweep& s, const SweepRow& r) {
  std::string out = std::to_string(r.point);
  for (const std::string& v : r.values) out += "," + report::csv_field(v);
  if (r.reason.empty())
    out += fmt::format(",{},{},{},{},{:.3f},{},{},{},{},{},{},{},{},{:.6f},{},{},{},{},", r.ranks,
                       r.step.ps, ps(r.low), ps(r.high), r.samples_per_s,
                       r.scaling_efficiency > 0 ? share(r.scaling_efficiency) : "",
                       share(r.efficiency_low), share(r.efficiency_high), r.communication.ps,
                       r.exposed.ps, r.all_reduces, report::csv_field(r.algorithm),
                       report::csv_field(r.busiest_link), r.busiest_share, r.state.count,
                       report::csv_field(r.profile), report::csv_field(r.basis),
                       report::csv_field(r.beyond));
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
  r.samples = r.samples_per_s * static_cast<double>(r.step.ps) / 1e12;
  if (!at(5).empty()) r.scaling_efficiency = real(5);
  if (!at(6).empty()) r.efficiency_low = real(6);
  if (!at(7).empty()) r.efficiency_high = real(7);
  r.communication = {whole(8)};
  r.exposed = {whole(9)};
  r.all_reduces = static_cast<int>(whole(10));
  r.algorithm = at(11);
  r.busiest_link = at(12);
  r.busiest_share = real(13);
  r.state = {whole(14)};
  r.profile = at(15);
  r.basis = at(16);
  r.beyond = at(17);
  return r;
}

std::vector<std::string> provenance(const std::vector<SweepRow>& rows) {
  std::vector<std::string> out;
  for (const SweepRow& r : rows) {
    if (!r.reason.empty()) continue;
    std::string line = "profile " + r.profile + ": " + r.basis;
    if (std::find(out.begin(), out.end(), line) == out.end()) out.push_back(std::move(line));
  }
  return out;
}

static std::string efficiency(const SweepRow& r) {
  if (r.scaling_efficiency <= 0) return "none";
  double mid = r.scaling_efficiency;
  return report::efficiency_text(mid, r.efficiency_low.value_or(mid),
                                 r.efficiency_high.value_or(mid));
}

std::string sweep_table(const Sweep& s, const std::vector<SweepRow>& rows, bool markdown) {
  std::vector<std::vector<std::string>> cells(1, fields_of(s.axes));
  std::size_t fields = cells[0].size();
  for (const char* name :
       {"step", "from", "to", "samples/s", "efficiency", "exposed", "all-reduce"})
    cells[0].push_back(name);
  for (const SweepRow& r : rows) {
    std::vector<std::string> line;
    for (const std::string& v : r.values) line.push_back(printable(v));
    if (r.reason.empty())
      for (std::string v :
           {to_string(r.step), r.low ? to_string(*r.low) : "", r.high ? to_string(*r.high) : "",
            fmt::format("{:.0f}", r.samples_per_s), efficiency(r), to_string(r.exposed),
            r.algorithm})
        line.push_back(std::move(v));
    else
      line.push_back(r.reason);
    cells.push_back(std::move(line));
  }
  // Columns that are empty everywhere are left out: no interval was asked for.
  for (std::size_t k = cells[0].size(); k-- > fields;) {
    bool empty = cells.size() > 1;
    for (std::size_t i = 1; i < cells.size(); ++i)
      empty = empty && (cells[i].size() < cells[0].size() || cells[i][k].empty());
    if (!empty) continue;
    std::size_t full = cells[0].size();
    for (auto& line : cells)
      if (line.size() == full) line.erase(line.begin() + static_cast<std::ptrdiff_t>(k));
  }
  std::vector<std::size_t> width(cells[0].size());
  for (const auto& line : cells) {
    bool reason = line.size() != cells[0].size();
    for (std::size_t k = 0; k < line.size() - (reason ? 1 : 0); ++k)
      width[k] = std::max(width[k], line[k].size());
  }
  std::string out;
  auto put = [&](const std::vector<std::string>& line) {
    for (std::size_t k = 0; k < line.size(); ++k) {
      bool last = k + 1 == line.size();
      bool left = k < fields || last;
      std::string cell = markdown ? report::markdown_cell(line[k])
                         : left   ? fmt::format("{:<{}}", line[k], last ? 0 : width[k])
                                  : fmt::format("{:>{}}", line[k], width[k]);
      out += markdown ? "| " + cell + " " : (k ? "  " : "") + cell;
    }
    if (markdown) {
      for (std::size_t k = line.size(); k < cells[0].size(); ++k) out += "| ";
      out += "|";
    }
    out += "\n";
  };
  auto wrapped = [&](const std::vector<std::string>& line) {
    std::size_t from = out.size();
    put(line);
    if (!markdown && line.size() != cells[0].size())
      out = out.substr(0, from) + report::wrapped(out.substr(from));
  };
  put(cells[0]);
  if (markdown) {
    for (std::size_t k = 0; k < cells[0].size(); ++k)
      out += k < fields || k + 1 == cells[0].size() ? "|---" : "|---:";
    out += "|\n";
  }
  for (std::size_t k = 1; k < cells.size(); ++k) wrapped(cells[k]);
  return out;
}

io::OrderedJson sweep_json(const Sweep& s, const std::vector<SweepRow>& rows) {
  using io::OrderedJson;
  OrderedJson columns = OrderedJson::array();
  OrderedJson data = OrderedJson::array();
  auto column = [&](const std::string& name, const char* role, const char* unit, auto value) {
    columns.push_back({{"name", name}, {"role", role}, {"unit", unit}});
    OrderedJson values = OrderedJson::array();
    for (const SweepRow& r : rows) values.push_back(value(r));
    data.push_back(std::move(values));
  };
  auto result = [&](const char* name, const char* unit, auto value) {
    column(name, "result", unit, [&](const SweepRow& r) {
      return r.reason.empty() ? OrderedJson(value(r)) : OrderedJson();
    });
  };
  std::vector<std::string> fields = fields_of(s.axes);
  // Numbers as numbers, so that they can be drawn.
  for (std::size_t k = 0; k < fields.size(); ++k)
    column(fields[k], "axis", "", [&](const SweepRow& r) {
      return io::Json::accept(r.values[k]) ? OrderedJson::parse(r.values[k])
                                           : OrderedJson(r.values[k]);
    });
  result("step_ps", "ps", [](const SweepRow& r) { return r.step.ps; });
  if (std::any_of(rows.begin(), rows.end(), [](const SweepRow& r) { return r.low.has_value(); })) {
    result("step_low_ps", "ps", [](const SweepRow& r) {
      return r.low ? io::OrderedJson(r.low->ps) : io::OrderedJson();
    });
    result("step_high_ps", "ps", [](const SweepRow& r) {
      return r.high ? io::OrderedJson(r.high->ps) : io::OrderedJson();
    });
  }
  result("samples_per_s", "1/s", [](const SweepRow& r) { return r.samples_per_s; });
  auto optional = [](const std::optional<double>& v) {
    return v ? OrderedJson(*v) : OrderedJson();
  };
  result("scaling_efficiency", "share", [](const SweepRow& r) {
    return r.scaling_efficiency > 0 ? OrderedJson(r.scaling_efficiency) : OrderedJson();
  });
  if (std::any_of(rows.begin(), rows.end(),
                  [](const SweepRow& r) { return r.efficiency_low.has_value(); })) {
    result("scaling_efficiency_low", "share",
           [&](const SweepRow& r) { return optional(r.efficiency_low); });
    result("scaling_efficiency_high", "share",
           [&](const SweepRow& r) { return optional(r.efficiency_high); });
  }
  result("communication_ps", "ps", [](const SweepRow& r) { return r.communication.ps; });
  result("exposed_ps", "ps", [](const SweepRow& r) { return r.exposed.ps; });
  result("all_reduces", "", [](const SweepRow& r) { return r.all_reduces; });
  result("largest_all_reduce", "", [](const SweepRow& r) { return r.algorithm; });
  result("busiest_link", "", [](const SweepRow& r) { return r.busiest_link; });
  result("busiest_share", "share", [](const SweepRow& r) { return r.busiest_share; });
  result("state_bytes", "bytes", [](const SweepRow& r) { return r.state.count; });
  result("world_size", "", [](const SweepRow& r) { return r.ranks; });
  result("samples_per_s_per_rank", "1/s",
         [](const SweepRow& r) { return r.samples_per_s / r.ranks; });
  for (auto [name, member] :
       {std::pair{"profile", &SweepRow::profile}, std::pair{"basis", &SweepRow::basis}})
    column(name, "provenance", "", [field = member](const SweepRow& r) { return r.*field; });
  if (std::any_of(rows.begin(), rows.end(), [](const SweepRow& r) { return !r.beyond.empty(); }))
    result("beyond_model", "", [](const SweepRow& r) { return r.beyond; });
  column("reason", "reason", "", [](const SweepRow& r) { return r.reason; });
  bool jitter = std::any_of(rows.begin(), rows.end(), [](const SweepRow& r) { return r.jitter; });
  OrderedJson notes = OrderedJson::array();
  if (jitter) notes.push_back(kJitterNote);
  SweepFlips flips;
  for (const SweepRow& r : rows) flips.add(r);
  for (const std::string& line : flips.lines(s)) notes.push_back(line);
  return {{"schema", "ddpsim.sweep/1"},
          {"kind", "sweep"},
          {"version", kVersion},
          {"sweep", s.id},
          {"nccl", s.nccl},
          {"provenance", provenance(rows)},
          {"notes", notes},
          {"columns", columns},
          {"data", data}};
}

namespace {

template <class Before>
void keep_best(std::vector<SweepRow>& best, const SweepRow& row, Before before) {
  if (best.size() == kBest && !before(row, best.back())) return;
  best.insert(std::upper_bound(best.begin(), best.end(), row, before), row);
  if (best.size() > kBest) best.pop_back();
}

double of_a_rank(const SweepRow& r) {
  return r.samples_per_s / r.ranks;
}

}  // namespace

void SweepSummary::add(const SweepRow& row) {
  ++rows_;
  jitter_ = jitter_ || row.jitter;
  internal_ += row.internal ? 1 : 0;
  if (!row.reason.empty()) {
    if (invalid_++ == 0) first_reason_ = row.reason;
    return;
  }
  if (!row.beyond.empty() && beyond_++ == 0) first_beyond_ = row.beyond;
  auto same = [&](const SweepRow& r) { return r.profile == row.profile && r.basis == row.basis; };
  if (profiles_.size() <= kProfilesNamed && std::none_of(profiles_.begin(), profiles_.end(), same))
    profiles_.push_back(row);
  if (!first_) first_ = row;
  samples_differ_ =
      samples_differ_ || std::abs(row.samples - first_->samples) > 1e-3 * first_->samples;
  ranks_differ_ = ranks_differ_ || row.ranks != first_->ranks;
  keep_best(shortest_, row, [](const SweepRow& a, const SweepRow& b) { return a.step < b.step; });
  keep_best(fastest_, row,
            [](const SweepRow& a, const SweepRow& b) { return a.samples_per_s > b.samples_per_s; });
  keep_best(cheapest_, row,
            [](const SweepRow& a, const SweepRow& b) { return of_a_rank(a) > of_a_rank(b); });
}

std::string SweepSummary::notes() const {
  std::string out = jitter_ ? std::string(kJitterNote) + "\n" : "";
  std::vector<std::string> lines = provenance(profiles_);
  for (std::size_t k = 0; k < std::min(lines.size(), kProfilesNamed); ++k)
    out += report::wrapped(lines[k] + "\n");
  if (lines.size() > kProfilesNamed)
    out += "... and other profiles: see the columns profile and basis\n";
  if (beyond_ > 0)
    out += report::wrapped(fmt::format("{} of {} points beyond the model; the first: {}\n", beyond_,
                                       rows_, first_beyond_));
  return out;
}

std::string SweepSummary::text(const Sweep& s) const {
  std::string out;
  auto list = [&](const char* title, const std::vector<SweepRow>& rows) {
    out += title + (s.nccl.empty() ? "" : " with " + s.nccl) + "\n" + sweep_table(s, rows, false);
  };
  if (first_ && !samples_differ_) list("shortest steps", shortest_);
  if (first_ && samples_differ_) list("most samples per second", fastest_);
  if (first_ && ranks_differ_)
    list("most samples per second of each rank (the least cost)", cheapest_);
  out += notes();
  if (invalid_ > 0)
    out += report::wrapped(fmt::format("{} of {} points have no prediction; the first: {}\n",
                                       invalid_, rows_, first_reason_));
  return out;
}

}  // namespace ddpsim::cli
