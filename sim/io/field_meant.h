// What is meant by the names that other tools have for fields.
#pragma once

#include <string>

namespace ddpsim::io {

// The field that somebody means who writes "hosts", "nodes", "batch", "precision" or "world-size":
// "cluster.hosts", ..., "ranks", or "workload"; "" = none that is known.
std::string field_meant(const std::string& name);

// The setting that is meant by a name of other tools, with its value: "workload.precision=bf16" of
// "bf16"; "" = none that is known.
std::string setting_for(const std::string& name);

// Is it a name of tensor, pipeline, expert, context or sequence parallelism?
bool is_other_parallelism(const std::string& name);
inline constexpr const char* kDataParallelismOnly =
    "ddpsim models data parallelism only: tensor, pipeline, expert and context parallelism have no "
    "key; remove it";

// What is meant by a flag of other programs that holds a value by itself: "--set
// workload.precision=bf16" of "bf16"; "" = none that is known.
std::string flag_meant(const std::string& name);

// What a field is set to by somebody who says true or false of it: "bf16 with
// workload.casting=autocast"; "" = it takes such an answer, or nothing is meant by it.
std::string setting_meant(const std::string& field, bool on);

}  // namespace ddpsim::io
