// What `ddpsim validate --collectives` says of each machine, and over machines.
#pragma once

#include <string>

#include "calib/fit/by_machine.h"
#include "sim/io/codecs.h"

namespace ddpsim::cli {

std::string machines_table(const calib::MachineReport& r);
std::string machines_markdown(const calib::MachineReport& r);
io::OrderedJson machines_json(const calib::MachineReport& r);

}  // namespace ddpsim::cli
