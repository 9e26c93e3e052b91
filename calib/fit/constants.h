// nccl::Constants from published tables, so that a machine is judged without what its own said.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "calib/fit/collective_table.h"

namespace ddpsim::calib {

// From tables of one host whose machine is not `without` ("" = all); what no table tells is 0.
// - Launches by channel: tables of one process for several GPUs, rows that took a quarter longer
//   than their price, where launches hide the operation. The median launch of a GPU with the most
//   channels less that with one, over the channels between; the median of a machine's tables, then
//   of the machines, by NCCL's version.
// - NVLS's chunks: least sum over machines of the median error of NVLS's rows, on a grid, and a
//   fiftieth of the value.
nccl::Constants fit_constants(const std::vector<CollectiveTable>& tables,
                              const std::string& without);

}  // namespace ddpsim::calib
