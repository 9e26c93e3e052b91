// Run: what happened, or would happen. One schema for measured and predicted (ddpsim.run/1, shared by both).
#pragma once

#include <string>
#include <vector>

#include "sim/model/program.h"
#include "sim/units/units.h"

namespace ddpsim {

enum class RunKind : std::uint8_t { Measured, Predicted };

// One operation in one step on one actor (a class of ranks that behave alike, named by its first rank).
struct Span {
  int step = 0;
  int actor = 0;  // first rank of the class
  int count = 1;  // ranks in the class
  Lane lane = Lane::Host;
  OpKind kind = OpKind::Forward;
  std::string op;
  std::vector<TensorIndex> tensors;
  std::int64_t bytes = 0;
  TimePoint ready;  // could have started
  TimePoint begin;  // of the transfer, for a collective: after the last rank arrived
  TimePoint end;
  std::string algorithm;  // collectives: "ring/Simple"
};

struct StepRecord {
  StepKind kind = StepKind::Steady;
  Duration duration;  // end of this step minus end of the step before
};

struct Run {
  RunKind kind = RunKind::Predicted;
  std::string key;  // scenario key
  std::string simulator_version;
  std::string profile;
  std::string fidelity;
  std::vector<StepRecord> steps;
  std::vector<Span> spans;  // of the last step
  TimePoint spans_from;     // start of that step (end of the step before)
  std::vector<std::string> tensor_names;
};

bool is_compute(OpKind k);        // occupies the device that computes
bool is_communication(OpKind k);  // a collective, or waiting for one

}  // namespace ddpsim
