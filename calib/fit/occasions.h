// Which Runs were made on one occasion. What is a machine's scheduling, and not the network's,
// repeats within an occasion and differs between them. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/run.h"

namespace ddpsim::calib {

// Seconds since 1970 of "2026-11-21T19:33:03Z" (Origin::date); nothing if it is not of that form.
std::optional<std::int64_t> seconds_of(const std::string& date);

struct Occasion {
  std::string machine;            // "AMD EPYC, 2 cores, Linux 6.18.44, PyTorch 1.13.0a0"
  std::string first;              // Origin::date of its first Run
  std::vector<std::size_t> runs;  // indices into what was asked for, by date
};
// Runs are of one occasion if CPU, number of cores, kernel and framework are the same, and no hour
// passed between one Run and the next. ddpsim's own revision does not count: it changes nothing of
// the machine. Runs whose date cannot be read are of one occasion if that text is the same. By
// machine, then by date.
std::vector<Occasion> occasions(const std::vector<const Run*>& runs);

// "AMD EPYC, 2 cores, ... (from 2026-11-21T19:33:03Z)". For people.
std::string name_of(const Occasion& o);

}  // namespace ddpsim::calib
