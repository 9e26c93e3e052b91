// What is meant by the names that other tools have for fields.
#pragma once

#include <string>

namespace ddpsim::io {

// The field that somebody means who writes "hosts", "nodes", "batch", "precision" or "world-size":
// "cluster.hosts", ..., "ranks", or "workload"; "" = none that is known.
std::string field_meant(const std::string& name);

}  // namespace ddpsim::io
