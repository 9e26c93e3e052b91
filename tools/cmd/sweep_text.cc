#include "tools/cmd/sweep_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/model/version.h"
#include "sim/report/text.h"
#include "sim/sweep/flips.h"
#include "sim/units/text.h"

namespace ddpsim::cli {

using namespace sweep;

namespace {

std::string would_fit(const SweepRow& r) {
  if (!does_not_fit(r)) return {};
  return r.would_fit.empty() ? "nothing that was tried would make it fit"
                             : "it would fit with " + r.would_fit;
}

std::string efficiency(const SweepRow& r) {
  if (r.scaling_efficiency <= 0) return "none";
  double mid = r.scaling_efficiency;
  return report::efficiency_text(mid, r.efficiency_low.value_or(mid),
                                 r.efficiency_high.value_or(mid));
}

}  // namespace

std::string sweep_table(const Sweep& s, const std::vector<SweepRow>& rows, bool markdown) {
  std::vector<std::vector<std::string>> cells(1, fields_of(s.axes));
  std::size_t fields = cells[0].size();
  for (const char* name :
       {"step", "from", "to", "samples/s", "efficiency", "exposed", "all-reduce", "memory"})
    cells[0].push_back(name);
  for (const SweepRow& r : rows) {
    std::vector<std::string> line;
    for (const std::string& v : r.values) line.push_back(printable(v));
    if (r.reason.empty())
      for (std::string v :
           {to_string(r.step), r.low ? to_string(*r.low) : "", r.high ? to_string(*r.high) : "",
            fmt::format("{:.0f}", r.samples_per_s), efficiency(r), to_string(r.exposed),
            r.algorithm, memory_text(r)})
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
  for (std::size_t k = 1; k < cells.size(); ++k) {
    const std::string with = would_fit(rows[k - 1]);
    if (markdown && !with.empty()) cells[k].back() += "; " + with;
    wrapped(cells[k]);
    if (!markdown && !with.empty()) out += report::wrapped("    " + with + "\n");
  }
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
  result("memory_bytes", "bytes", [](const SweepRow& r) { return r.memory; });
  if (std::any_of(rows.begin(), rows.end(), [](const SweepRow& r) { return r.fits.has_value(); }))
    result("fits", "", [](const SweepRow& r) {
      return r.fits ? OrderedJson(*r.fits ? "yes" : "does not fit") : OrderedJson();
    });
  if (std::any_of(rows.begin(), rows.end(), does_not_fit))
    result("would_fit", "", [](const SweepRow& r) { return r.would_fit; });
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

std::string summary_text(const Sweep& s, const SweepSummary& summary) {
  std::string out;
  for (const auto& [title, rows] : summary.lists())
    out += title + (s.nccl.empty() ? "" : " with " + s.nccl) + "\n" + sweep_table(s, *rows, false);
  return out + summary.notes() + summary.problems();
}

}  // namespace ddpsim::cli
