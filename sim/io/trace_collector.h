// What profilers wrote, event by event, into a Trace. Whoever reads another profiler's file names
// its events as PyTorch's profiler does (kineto_events.h), so that one rule says what they are.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "sim/analysis/trace.h"
#include "sim/io/kineto_events.h"

namespace ddpsim::io {

// Takes the events of the kinds that a Trace has and that begin in [from, to). An event that a
// backend's annotation lies in (record_param_comms) must come before it.
class TraceCollector {
 public:
  // `marks_alone`: only what tells iterations.
  TraceCollector(analysis::Trace& trace, bool marks_alone, TimePoint from, TimePoint to)
      : trace_(trace), marks_alone_(marks_alone), from_(from), to_(to) {}
  // Where times count from; without it, from the first event.
  void count_from(std::int64_t us);
  // Throws InputError: too many events, or those of another kind of device.
  void operator()(const KinetoEvent& e);
  // Puts the events in order. After the last one.
  void finish();

 private:
  std::uint32_t number(std::map<std::string, std::uint32_t>& of, const std::string& name);
  std::uint32_t named(const std::string& name);
  std::uint32_t gradient(const KinetoEvent& e);
  void remember(const KinetoEvent& e);
  std::uint32_t message(const KinetoEvent& e);
  void keep(std::size_t bytes);

  analysis::Trace& trace_;
  bool marks_alone_;
  TimePoint from_;
  TimePoint to_;
  bool based_ = false;
  std::map<std::string, std::uint32_t> threads_;
  std::map<std::string, std::uint32_t> names_;
  std::map<std::string, KinetoEvent> around_;  // by thread
  std::size_t kept_ = 0;                       // bytes beside the events
};

// The last `iterations` of those that `marks` has, and one more, whose last kernel is where the
// first one begins: from where to where events are needed. REQUIRES: there is one.
struct TimeSpan {
  TimePoint from;
  TimePoint to;
};
TimeSpan last_of(const std::vector<analysis::Iteration>& marks, int iterations);

}  // namespace ddpsim::io
