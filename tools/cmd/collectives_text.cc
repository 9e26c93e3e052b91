// The answer of ddpsim validate --collectives: a table, JSON, and a part of a report.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "sim/report/text.h"
#include "tools/cmd/collectives.h"
#include "tools/cmd/collectives_machines.h"

namespace ddpsim::cli {
namespace {

std::string percent(double v) {
  return fmt::format("{:.1f}", 100 * v);
}
std::string overall(const calib::CollectiveReport& r, std::size_t band) {
  bool any = std::any_of(r.tables.begin(), r.tables.end(),
                         [&](const calib::TableResult& t) { return t.bands[band].rows > 0; });
  return any ? percent(r.median[band]) : "-";
}
std::string name_of(const calib::TableResult& t) {
  return t.name + (t.in_sample ? " (in sample)" : "");
}
std::string cell(const calib::BandError& b) {
  return b.rows == 0 ? "-" : percent(b.median) + " (" + percent(b.nccl_median) + ")";
}

}  // namespace

std::string collectives_table(const calib::CollectiveReport& r,
                              const validation::ExecutedReport& x) {
  std::string out =
      fmt::format("{:<52} {:>16} {:>16} {:>16}\n", "median error, % (NCCL's own estimate)",
                  "< 1 MiB", "1-16 MiB", ">= 16 MiB");
  for (const calib::TableResult& t : r.tables)
    out += fmt::format("{:<52} {:>16} {:>16} {:>16}\n", name_of(t), cell(t.bands[0]),
                       cell(t.bands[1]), cell(t.bands[2]));
  out += fmt::format("{:<52} {:>16} {:>16} {:>16}\n", "median of the tables", overall(r, 0),
                     overall(r, 1), overall(r, 2));
  out += fmt::format(
      "NCCL off by more than 5 % in {} cells, ddpsim closer in {}; elsewhere ddpsim at most {} "
      "points worse\n",
      r.cells_off, r.cells_closer, percent(r.most_worse));
  out += fmt::format(
      "every other size: median of the tables without a cliff {:.2f} % (largest {:.2f} %), 1 to "
      "128 MiB pooled: 95th percentile {} %\n",
      100 * r.fitted_median, 100 * r.fitted_worst_median, percent(r.fitted_p95));
  for (const calib::Extrapolation& e : r.extrapolated)
    out += fmt::format("from at most 64 ranks: {} median {} %\n", e.table, percent(e.median));
  out += fmt::format(
      "executed alone, {} all-reduces of 256 KiB and more: median {:.2f} %, 95th percentile {:.2f} "
      "%; order right in {} of {} pairs\n",
      x.judged, 100 * x.median, 100 * x.p95, x.ranked_right, x.ranked);
  for (const auto& [name, e] : {std::pair{"Gloo", &x.gloo}, std::pair{"Open MPI", &x.open_mpi}})
    out += fmt::format(
        "the real {}, {} of {} all-reduces that repeat: median {:.2f} %, largest {:.2f} %\n", name,
        e->judged, e->rows, 100 * e->median, 100 * e->largest);
  return out;
}

namespace {

const char* played_by(validation::PlayedBy p) {
  return p == validation::PlayedBy::Gloo      ? "gloo"
         : p == validation::PlayedBy::OpenMpi ? "open_mpi"
                                              : "executor";
}

io::OrderedJson library_json(const validation::LibraryErrors& e) {
  return {{"rows", e.rows},
          {"judged", e.judged},
          {"median_error", e.median},
          {"largest_error", e.largest}};
}

}  // namespace

io::OrderedJson collectives_json(const calib::CollectiveReport& r,
                                 const validation::ExecutedReport& x) {
  io::OrderedJson tables = io::OrderedJson::array();
  for (const calib::TableResult& t : r.tables) {
    io::OrderedJson rows = io::OrderedJson::array();
    for (const calib::CollectiveRow& row : t.rows)
      rows.push_back({{"bytes", row.bytes},
                      {"measured_ps", row.measured.ps},
                      {"predicted_ps", row.predicted.ps},
                      {"nccl_ps", row.nccl.ps},
                      {"algorithm", nccl::name_of(row.choice.algorithm)},
                      {"protocol", nccl::name_of(row.choice.protocol)},
                      {"channels", row.choice.channels},
                      {"base_ps", row.price.base.ps},
                      {"steps_ps", row.price.steps.ps},
                      {"fill_ps", row.price.fill.ps},
                      {"transfer_ps", row.price.transfer.ps},
                      {"limited_by", row.price.limited_by}});
    io::OrderedJson bands = io::OrderedJson::array();
    for (const calib::BandError& b : t.bands)
      bands.push_back(
          {{"rows", b.rows}, {"median_error", b.median}, {"nccl_median_error", b.nccl_median}});
    io::OrderedJson cliffs = io::OrderedJson::array();
    for (const calib::Cliff& c : t.cliffs)
      cliffs.push_back(
          {{"from_bytes", c.from}, {"to_bytes", c.to}, {"fall", c.fall}, {"why", c.why}});
    io::OrderedJson fits = io::OrderedJson::object();
    for (const auto& [name, f] : t.fits)
      fits[name] = {{"step_factor", f.step_factor},
                    {"step_slower_us", f.slower_us},
                    {"efficiency_factor", f.efficiency},
                    {"tables", f.tables},
                    {"step_tables", f.step_tables}};
    tables.push_back({{"name", t.name},
                      {"machine", t.machine},
                      {"sample", t.in_sample ? "in_sample" : "held_out"},
                      {"fits", fits},
                      {"bands", bands},
                      {"cliffs", cliffs},
                      {"fitted_median_error", t.fitted_median},
                      {"rows", rows}});
  }
  io::OrderedJson executed = io::OrderedJson::array();
  for (const validation::ExecutedRow& e : x.rows)
    executed.push_back({{"where", e.where},
                        {"algorithm", e.algorithm},
                        {"bytes", e.bytes},
                        {"measured_ps", e.measured.ps},
                        {"predicted_ps", e.predicted.ps},
                        {"deviation", e.deviation},
                        {"played_by", played_by(e.played_by)},
                        {"in_sample", e.in_sample}});
  io::OrderedJson extrapolated = io::OrderedJson::array();
  for (const calib::Extrapolation& e : r.extrapolated)
    extrapolated.push_back(
        {{"table", e.table}, {"from", e.from}, {"rows", e.rows}, {"median_error", e.median}});
  return {{"tables", tables},
          {"median_error", r.median},
          {"cells_off", r.cells_off},
          {"cells_closer", r.cells_closer},
          {"most_worse", r.most_worse},
          {"extrapolated", extrapolated},
          {"executed",
           {{"judged", x.judged},
            {"median_error", x.median},
            {"p95_error", x.p95},
            {"pairs", x.ranked},
            {"pairs_right", x.ranked_right},
            {"gloo", library_json(x.gloo)},
            {"open_mpi", library_json(x.open_mpi)},
            {"rows", executed}}},
          {"fitted",
           {{"median_error", r.fitted_median},
            {"largest_median_error", r.fitted_worst_median},
            {"p95_error_1_to_128_mib", r.fitted_p95},
            {"pooled", r.fitted_pooled},
            {"left_out_at_cliffs", r.fitted_at_cliffs},
            {"beside_gaps", r.fitted_gaps},
            {"p95_error_without_gaps", r.fitted_p95_no_gaps},
            {"p95_in_place", r.fitted_p95_in_place},
            {"p95_best_line", r.fitted_p95_best_line}}}};
}

namespace {

std::string size_text(std::int64_t bytes) {
  return to_string(Bytes{bytes});
}

}  // namespace

std::string collectives_markdown(const calib::CollectiveReport& r,
                                 const calib::MachineReport& machines,
                                 const validation::ExecutedReport& x) {
  std::string out =
      "# NCCL's collectives: published tables beside ddpsim's prices\n\n"
      "Made by `tools/reports` (`ddpsim validate --collectives --format md`); do not edit. Tables: "
      "`calib/published`, imported from public nccl-tests\n"
      "output; nothing of them was measured by ddpsim.\n\n";
  out += machines_markdown(machines);
  out +=
      "## The mechanism alone, table by table\n\n"
      "Constants from datasheets and from NCCL's own tables; one latency and one efficiency "
      "factor for each kind of link, fitted on the tables of *other*\n"
      "machines (leave one machine out; latencies inside a host on those of one host and of the "
      "same generation of GPUs; so are the constants of launches and of NVLS's chunks). Median of "
      "|predicted / measured - 1| over the sizes of a band, %; "
      "in brackets NCCL's own estimate of what it chooses,\n"
      "on the same channel graph. The profiles' efficiencies of networks (InfiniBand 0.92, "
      "libfabric 0.75 and 0.90, TCPXO 0.92) are chosen from what is publicly known of such "
      "networks,\n"
      "which may include these tables; NVLink's and PCIe's are NCCL's own numbers.\n\n"
      "| table | < 1 MiB | 1-16 MiB | >= 16 MiB |\n|---|---:|---:|---:|\n";
  for (const calib::TableResult& t : r.tables)
    out += fmt::format("| {} | {} | {} | {} |\n", report::markdown_cell(name_of(t)),
                       cell(t.bands[0]), cell(t.bands[1]), cell(t.bands[2]));
  out += fmt::format("| **median of the tables** | **{}** | **{}** | **{}** |\n\n", overall(r, 0),
                     overall(r, 1), overall(r, 2));
  out += fmt::format(
      "NCCL's estimate is off by more than 5 % in {} cells (table, band); ddpsim is closer in {} "
      "of them. In the other cells ddpsim is at most {} points worse.\n\n",
      r.cells_off, r.cells_closer, percent(r.most_worse));
  std::string lost;
  constexpr const char* kBandNames[] = {"< 1 MiB", "1-16 MiB", ">= 16 MiB"};
  for (const calib::TableResult& t : r.tables)
    for (std::size_t b = 0; b < calib::kBands; ++b)
      if (t.bands[b].rows > 0 && t.bands[b].nccl_median > 0.05 &&
          t.bands[b].median >= t.bands[b].nccl_median)
        lost += fmt::format("| {} | {} | {} |\n", report::markdown_cell(t.name), kBandNames[b],
                            cell(t.bands[b]));
  if (!lost.empty())
    out += "In which NCCL is closer:\n\n| table | band | % |\n|---|---|---:|\n" + lost + "\n";
  out +=
      "Used, from other machines' tables (a factor of what the profile says; of a network's "
      "step, what it takes more):\n\n| machine | link "
      "| latency of a step | tables | efficiency | tables |\n|---|---|---:|---:|---:|---:|\n";
  std::vector<std::string> seen;
  for (const calib::TableResult& t : r.tables)
    for (const auto& [name, f] : t.fits) {
      std::string line =
          fmt::format("| {} | {} | {} | {} | {:.2f} | {} |\n", report::markdown_cell(t.machine),
                      name, calib::steps_text(name, f), f.step_tables, f.efficiency, f.tables);
      if (std::find(seen.begin(), seen.end(), line) != seen.end()) continue;
      seen.push_back(line);
      out += line;
    }
  out += fmt::format(
      "\n## Every other size\n\n"
      "Each size of a table from the sizes next to it (linear in bytes). Tables without a cliff: "
      "median of their medians {} %, the largest {} %. Pooled over 1 to 128 MiB, {} rows:\n"
      "95th percentile {} %; {} rows at which a cliff begins, or which are predicted from one, are "
      "left out of that. {} of the rows are beside a size that their table lacks (predicted over "
      "a\n"
      "gap of more than four): without them {} %. In the same rows, in place differs from out of "
      "place by {} % (95th percentile): what is above that is no noise from one iteration to the\n"
      "next, it is no line. The line that fits the three sizes best, the judged one among them, "
      "misses them by {} % (95th percentile).\n\n",
      fmt::format("{:.2f}", 100 * r.fitted_median),
      fmt::format("{:.2f}", 100 * r.fitted_worst_median), r.fitted_pooled, percent(r.fitted_p95),
      r.fitted_at_cliffs, r.fitted_gaps, percent(r.fitted_p95_no_gaps),
      percent(r.fitted_p95_in_place), percent(r.fitted_p95_best_line));
  out +=
      "Pooled rows off by more than 10 %:\n\n| table | size | from | error | in place | best line "
      "|\n|---|---:|---:|---:|---:|---:|\n";
  for (const calib::TableResult& t : r.tables)
    for (const calib::FittedRow& f : t.fitted)
      if (!f.at_cliff && f.bytes >= kMiB && f.bytes <= 128 * kMiB && std::abs(f.error) > 0.1)
        out += fmt::format("| {} | {} | {}, {} | {:+.1f} % | {} | {:.1f} % |\n",
                           report::markdown_cell(t.name), size_text(f.bytes), size_text(f.below),
                           size_text(f.above), 100 * f.error,
                           f.in_place ? fmt::format("{:+.1f} %", 100 * *f.in_place) : "-",
                           100 * std::abs(f.best_line()));
  out += "\n";
  out += "| table | rows | median, % |\n|---|---:|---:|\n";
  for (const calib::TableResult& t : r.tables)
    if (!t.fitted.empty())
      out += fmt::format("| {} | {} | {:.2f} |\n", report::markdown_cell(t.name), t.fitted.size(),
                         100 * t.fitted_median);
  out +=
      "\n## Cliffs\n\nNeighbouring sizes whose time falls by more than 10 %.\n\n| table | from | "
      "to | falls by | |\n|---|---:|---:|---:|---|\n";
  for (const calib::TableResult& t : r.tables)
    for (const calib::Cliff& c : t.cliffs)
      out += fmt::format("| {} | {} | {} | {:.0f} % | {} |\n", report::markdown_cell(t.name),
                         size_text(c.from), size_text(c.to), 100 * c.fall, c.why);
  out +=
      "\n## More ranks than were fitted\n\nLatency, efficiency and what the mechanism lacks by "
      "size, from the tables of at most 64 ranks of a machine; the error of its larger ones.\n\n"
      "| table | rows | median, % |\n|---|---:|---:|\n";
  for (const calib::Extrapolation& e : r.extrapolated)
    out += fmt::format("| {} | {} | {} |\n", report::markdown_cell(e.table), e.rows,
                       percent(e.median));
  out += fmt::format(
      "\n## Executed by ddpsim\n\n"
      "All-reduces that ddpsim's executor played alone over TCP, on hosts made of network "
      "namespaces of one machine, beside the simulation of their messages; none was\n"
      "fitted. {} of 256 KiB and more: median {:.2f} %, 95th percentile {:.2f} %. Of {} pairs of "
      "algorithms at one place and size whose times differ by more than 3 %, {} are in the right\n"
      "order.\n\nThe real Gloo (Debian's library, ring and bcube), the same way: of {} of 256 KiB "
      "and more {} repeat (median absolute deviation at most {:.0f} %); of those, median {:.2f} %, "
      "largest {:.2f} %.\nThe real Open MPI (Debian's 4.1.4), held out, the same way: of {} {} "
      "repeat; median {:.2f} %, largest {:.2f} %.\n\n"
      "| where | algorithm | bytes | measured | deviation | error "
      "|\n|---|---|---:|---:|---:|---:|\n",
      x.judged, 100 * x.median, 100 * x.p95, x.ranked, x.ranked_right, x.gloo.rows, x.gloo.judged,
      100 * validation::kRepeats, 100 * x.gloo.median, 100 * x.gloo.largest, x.open_mpi.rows,
      x.open_mpi.judged, 100 * x.open_mpi.median, 100 * x.open_mpi.largest);
  for (const validation::ExecutedRow& e : x.rows)
    out +=
        fmt::format("| {} | {} | {} | {} | {:.1f} % | {:+.2f} % |\n",
                    report::markdown_cell(e.where), e.algorithm, size_text(e.bytes),
                    to_string(e.measured), 100 * e.deviation, 100 * (e.predicted / e.measured - 1));
  return out;
}

}  // namespace ddpsim::cli
