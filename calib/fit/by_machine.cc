#include "calib/fit/by_machine.h"

#include <cmath>
#include <map>

#include "sim/analysis/compare.h"

namespace ddpsim::calib {
namespace {

struct RowErrors {
  std::vector<double> left_out;
  std::vector<double> shipped;
};

double error_of_row(const CollectiveRow& row) {
  return row.predicted / row.measured - 1;
}

void add_errors(const std::vector<CollectiveRow>& rows, const SizeRange& range,
                std::vector<double>& to) {
  for (const CollectiveRow& row : rows)
    if (row.available && row.bytes >= range.from && row.bytes < range.to)
      to.push_back(error_of_row(row));
}

double median_magnitude(std::vector<double> errors) {
  for (double& e : errors) e = std::abs(e);
  return errors.empty() ? 0 : analysis::median(errors);
}

// Of the machines that have sizes of this range.
OverMachines over_machines(const std::vector<MachineErrors>& machines, std::size_t range) {
  std::vector<double> medians;
  std::vector<double> shipped;
  for (const MachineErrors& m : machines) {
    if (m.ranges[range].rows == 0) continue;
    medians.push_back(m.ranges[range].median);
    shipped.push_back(m.ranges[range].shipped);
  }
  if (medians.empty()) return {};
  return {medians.size(), analysis::median(medians), analysis::median(shipped), 0, {}};
}

}  // namespace

MachineReport by_machine(const std::vector<CollectiveTable>& tables,
                         const CollectiveReport& report) {
  const std::vector<TableResult>& results = report.tables;
  std::map<std::string, std::array<RowErrors, kSizeRanges.size()>> errors;
  std::map<std::string, std::size_t> count;
  std::map<std::string, nccl::Constants> constants;
  PriceRatios ratios;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    if (results[i].in_sample) continue;
    ++count[tables[i].machine];
    constants[tables[i].machine] = results[i].constants;
    const std::vector<CollectiveRow> shipped = predict_table(tables[i], tables[i].profile);
    ratios.add(tables[i].machine, shipped);
    for (std::size_t k = 0; k < kSizeRanges.size(); ++k) {
      RowErrors& e = errors[tables[i].machine][k];
      add_errors(results[i].rows, kSizeRanges[k], e.left_out);
      add_errors(shipped, kSizeRanges[k], e.shipped);
    }
  }
  MachineReport out;
  out.constants = report.constants;
  for (const auto& [machine, of] : errors) {
    MachineErrors& m = out.machines.emplace_back();
    m.machine = machine;
    m.constants = constants[machine];
    m.tables = count[machine];
    for (std::size_t k = 0; k < of.size(); ++k)
      if (!of[k].left_out.empty())
        m.ranges[k] = {of[k].left_out.size(), median_magnitude(of[k].left_out),
                       analysis::median(of[k].left_out), median_magnitude(of[k].shipped)};
  }
  for (std::size_t k = 0; k < kSizeRanges.size(); ++k) {
    OverMachines& over = out.over[k] = over_machines(out.machines, k);
    for (const MachineErrors& m : out.machines)
      if (m.ranges[k].rows > 0 && m.ranges[k].median >= over.worst)
        over.worst = m.ranges[k].median, over.worst_machine = m.machine;
  }
  out.intervals = ratios.intervals();
  return out;
}

}  // namespace ddpsim::calib
