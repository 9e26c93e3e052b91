#include "tools/cmd/collectives_machines.h"

#include <fmt/format.h>

#include "sim/report/text.h"

namespace ddpsim::cli {
namespace {

using calib::kSizeRanges;

std::string percent(double v) {
  return fmt::format("{:.1f}", 100 * v);
}

std::string cell(const calib::RangeError& r) {
  return r.rows == 0
             ? "-"
             : fmt::format("{} ({:+.0f}; {})", percent(r.median), 100 * r.bias, percent(r.shipped));
}

// One line: a name and what is said of each range.
template <class Said>
std::string line(const char* form, const std::string& name, Said said) {
  std::string out = fmt::format(fmt::runtime(form), name);
  for (std::size_t k = 0; k < kSizeRanges.size(); ++k) out += said(k);
  return out;
}

constexpr const char* kIntervals =
    "80 % of the rows of machines took so many times the shipped profiles' price, and of a machine "
    "left out so many rows are in what the others say";

std::string spread_cell(const calib::PriceInterval& s) {
  return fmt::format("{:.2f} to {:.2f}", s.low, s.high);
}
std::string inside_cell(const calib::PriceInterval& s) {
  return s.rows == 0
             ? "-"
             : fmt::format("{:.0f} % of {}",
                           100 * static_cast<double>(s.inside) / static_cast<double>(s.rows),
                           s.rows);
}
std::string spreads_text(const calib::PriceIntervals& all) {
  std::string out = fmt::format("{}:\n", kIntervals);
  for (std::size_t k = 0; k < all.size(); ++k)
    out += fmt::format("  {:<12} {} ({} machines); {}\n", nccl::kPriceSpread[k].what,
                       spread_cell(all[k]), all[k].machines, inside_cell(all[k]));
  return out;
}
std::string spreads_markdown(const calib::PriceIntervals& all) {
  std::string out = fmt::format(
      "{} (`ddpsim explain --op` gives these intervals):\n\n| sizes | measured / price | machines "
      "| inside |\n|---|---:|---:|---:|\n",
      kIntervals);
  for (std::size_t k = 0; k < all.size(); ++k)
    out += fmt::format("| {} | {} | {} | {} |\n", nccl::kPriceSpread[k].what, spread_cell(all[k]),
                       all[k].machines, inside_cell(all[k]));
  return out + "\n";
}
io::OrderedJson spreads_json(const calib::PriceIntervals& all) {
  io::OrderedJson out = io::OrderedJson::array();
  for (std::size_t k = 0; k < all.size(); ++k)
    out.push_back({{"sizes", nccl::kPriceSpread[k].what},
                   {"low", all[k].low},
                   {"high", all[k].high},
                   {"shipped_low", nccl::kPriceSpread[k].low},
                   {"shipped_high", nccl::kPriceSpread[k].high},
                   {"machines", all[k].machines},
                   {"rows", all[k].rows},
                   {"inside", all[k].inside}});
  return out;
}

io::OrderedJson constants_json(const nccl::Constants& c) {
  return {{"own_channel_us", c.own_channel.us},
          {"batch_channel_us", c.batch_channel.us},
          {"nvls_chunk_us", c.nvls_chunk.us}};
}

}  // namespace

std::string machines_table(const calib::MachineReport& r) {
  std::string out = line("\n{:<58}", "by machine: median error, % (bias; shipped profile)",
                         [](std::size_t k) { return fmt::format(" {:>18}", kSizeRanges[k].what); });
  for (const calib::MachineErrors& m : r.machines)
    out += line("\n{:<58}", fmt::format("{:.50} ({})", m.machine, m.tables),
                [&](std::size_t k) { return fmt::format(" {:>18}", cell(m.ranges[k])); });
  out += line("\n{:<58}", "median of the machines (how many; shipped)", [&](std::size_t k) {
    const calib::OverMachines& o = r.over[k];
    return fmt::format(
        " {:>18}", fmt::format("{} ({}; {})", percent(o.median), o.machines, percent(o.shipped)));
  });
  return out + "\n\n" + spreads_text(r.intervals);
}

std::string machines_markdown(const calib::MachineReport& r) {
  std::string out =
      "## As the owner of another machine would find it\n\n"
      "All tables of one machine together (cluster and source), priced with what the tables of "
      "*other* machines say. Median of |predicted / measured - 1| over its rows, %; in brackets "
      "the "
      "median error, and the first with the shipped profile alone.\n\n";
  out += line("| {} | tables |", "machine",
              [](std::size_t k) { return fmt::format(" {} |", kSizeRanges[k].what); });
  out += "\n|---|---:|---:|---:|---:|---:|\n";
  for (const calib::MachineErrors& m : r.machines)
    out += line("| {} |", fmt::format("{} | {}", report::markdown_cell(m.machine), m.tables),
                [&](std::size_t k) { return fmt::format(" {} |", cell(m.ranges[k])); }) +
           "\n";
  out += line("| **{}** | |", "median of the machines", [&](std::size_t k) {
    const calib::OverMachines& o = r.over[k];
    return fmt::format(" **{}** of {} (shipped {}) |", percent(o.median), o.machines,
                       percent(o.shipped));
  });
  out += line("\n| {} | |", "worst", [&](std::size_t k) {
    return fmt::format(" {}, {} |", percent(r.over[k].worst),
                       report::markdown_cell(r.over[k].worst_machine));
  });
  out += "\n\n" + spreads_markdown(r.intervals);
  return out;
}

io::OrderedJson machines_json(const calib::MachineReport& r) {
  io::OrderedJson machines = io::OrderedJson::array();
  for (const calib::MachineErrors& m : r.machines) {
    io::OrderedJson ranges = io::OrderedJson::array();
    for (const calib::RangeError& e : m.ranges)
      ranges.push_back({{"rows", e.rows},
                        {"median_error", e.median},
                        {"bias", e.bias},
                        {"shipped_median_error", e.shipped}});
    machines.push_back({{"name", m.machine},
                        {"tables", m.tables},
                        {"constants", constants_json(m.constants)},
                        {"ranges", ranges}});
  }
  io::OrderedJson over = io::OrderedJson::array();
  for (std::size_t k = 0; k < kSizeRanges.size(); ++k)
    over.push_back({{"sizes", kSizeRanges[k].what},
                    {"machines", r.over[k].machines},
                    {"median_error", r.over[k].median},
                    {"shipped_median_error", r.over[k].shipped},
                    {"worst", r.over[k].worst},
                    {"worst_machine", r.over[k].worst_machine}});
  return {{"machines", machines},
          {"over_machines", over},
          {"constants", {{"shipped", constants_json({})}, {"of_all", constants_json(r.constants)}}},
          {"intervals", spreads_json(r.intervals)}};
}

}  // namespace ddpsim::cli
