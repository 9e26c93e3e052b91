// Events are those of Chrome's tracing: a tensor is a process, B and E nest in it. What is reduced
// together enters an activity together: all begin before one of them ends.
#include "sim/io/horovod_timeline.h"

#include <algorithm>
#include <map>

#include "sim/io/json_reader.h"
#include "sim/systems/base/words.h"

namespace ddpsim::io {
namespace {

constexpr std::int64_t kMostTimelineUs = 1'000'000'000'000;  // eleven days

bool moves_between_ranks(const std::string& activity) {
  for (const char* end : {"_ALLREDUCE", "_REDUCESCATTER", "_ALLGATHER", "_REDUCE", "_BCAST"})
    if (activity.ends_with(end)) return true;
  return false;
}
bool reduces(const std::string& operation) {
  return operation == "ALLREDUCE" || operation == "ADASUM";
}

// "[64, 3, 7, 7]"; a scalar: "[]".
std::int64_t elements_of_shape(const std::string& shape) {
  std::int64_t out = 1;
  std::int64_t value = -1;
  for (char c : shape) {
    if (c >= '0' && c <= '9') {
      value = (value < 0 ? 0 : value) * 10 + (c - '0');
      if (value > std::int64_t{1} << 40) return 0;
    } else if (value >= 0) {
      if (value > 0 && out > (std::int64_t{1} << 50) / value) return 0;
      out *= value;
      value = -1;
    }
  }
  return out;
}

struct TimelineEvent {
  char phase = 0;
  std::int64_t us = 0;
  std::string name;
  std::string dtype;
  std::string shape;
};

// One tensor's own events, as they come.
struct TensorState {
  std::vector<std::string> open;  // what it is in: "ALLREDUCE", "MPI_ALLREDUCE"
  std::int64_t asked = -1;
  std::int64_t latest_rank = -1;  // of those that asked by name
  std::int64_t begun = 0;         // of its operation
  std::size_t occurrences = 0;
  std::vector<TimelineActivity> activities;
};

class TimelineReader {
 public:
  explicit TimelineReader(std::string file) : file_(std::move(file)) {}

  HorovodTimeline read(const Json& events) {
    if (!events.is_array())
      throw InputError{file_,
                       "is no timeline of Horovod: HOROVOD_TIMELINE writes a list of events"};
    for (std::size_t i = 0; i < events.size(); ++i) read_event(Reader(events[i], file_, place(i)));
    finish();
    return std::move(out_);
  }

 private:
  static std::string place(std::size_t i) { return "/" + std::to_string(i); }

  void read_event(const Reader& e) {
    if (!e.json().is_object() || !e.has("ph")) e.fail("is no event: it has no \"ph\"");
    const std::string phase = e.at("ph").text();
    if (phase == "M") return read_name(e);
    const std::int64_t us = e.at("ts").integer();
    if (us < 0 || us > kMostTimelineUs) e.at("ts").fail("0 to 10^12 microseconds");
    if (phase == "i") {
      if (e.has("name") && e.at("name").text() == "CYCLE_START") out_.cycles.push_back(us);
      return;
    }
    const std::size_t t = tensor_of(e);
    if (phase == "B") return begin(e, t, us, e.at("name").text());
    if (phase == "X") return rank_asks(e, t);
    if (phase == "E") return end(e, t, us);
    e.at("ph").fail("Horovod's timeline has events B, E, X, i and M");
  }

  void read_name(const Reader& e) {
    if (!e.has("name") || e.at("name").text() != "process_name") return;
    const Reader arguments = e.at("args");
    if (!arguments.has("name")) return;  // the file itself
    const std::int64_t pid = e.at("pid").integer();
    if (numbers_.count(pid)) e.fail("names process " + std::to_string(pid) + " again");
    numbers_[pid] = out_.tensors.size();
    out_.tensors.push_back({arguments.at("name").text(), "", 0});
    states_.emplace_back();
  }
  std::size_t tensor_of(const Reader& e) const {
    const std::int64_t pid = e.at("pid").integer();
    auto it = numbers_.find(pid);
    if (it == numbers_.end())
      e.at("pid").fail("no process_name said which tensor process " + std::to_string(pid) + " is");
    return it->second;
  }

  void begin(const Reader& e, std::size_t t, std::int64_t us, const std::string& name) {
    TensorState& s = states_[t];
    if (s.open.size() > 1) e.fail("a tensor's activities nest two deep");
    s.open.push_back(name);
    if (name.starts_with("NEGOTIATE_")) {
      s.asked = us;
      return;
    }
    if (s.open.size() == 1) {
      s.begun = us;
      s.activities.clear();
      return;
    }
    if (reduces(s.open.front())) s.activities.push_back({name, us, us});
    if (!reduces(s.open.front()) || !moves_between_ranks(name) || in_set_.count(t)) return;
    // The first of its activities among ranks says with whom.
    if (!gathering_) {
      gathering_ = true;
      sets_.emplace_back();
    }
    in_set_[t] = sets_.size() - 1;
    sets_.back().push_back(t);
  }

  void rank_asks(const Reader& e, std::size_t t) {
    const std::string name = e.at("name").text();
    if (name.empty() || name.size() > 7 || name.find_first_not_of("0123456789") != name.npos)
      e.at("name").fail("the number of the rank that asked");
    states_[t].latest_rank = std::stoll(name);
    out_.ranks = std::max(out_.ranks, std::stoi(name) + 1);
  }

  void end(const Reader& e, std::size_t t, std::int64_t us) {
    TensorState& s = states_[t];
    if (s.open.empty())
      e.fail("ends something of \"" + out_.tensors[t].name + "\" that is not open");
    const std::string what = s.open.back();
    s.open.pop_back();
    if (what.starts_with("NEGOTIATE_")) {
      if (s.latest_rank >= 0) ++lasts_[s.latest_rank];
      s.latest_rank = -1;
      return;
    }
    if (!s.open.empty()) {
      if (!s.activities.empty()) s.activities.back().end = us;
      if (in_set_.count(t)) gathering_ = false;
      return;
    }
    if (!reduces(what)) return;
    describe(e, t);
    done(t, us);
  }

  void describe(const Reader& e, std::size_t t) {
    if (!e.has("args")) return;
    const Reader arguments = e.at("args");
    HorovodTimeline::Tensor& tensor = out_.tensors[t];
    if (arguments.has("dtype")) tensor.dtype = arguments.at("dtype").text();
    if (arguments.has("shape")) tensor.elements = elements_of_shape(arguments.at("shape").text());
  }

  // A tensor's reduction has ended: that of all with which it is, when all have.
  void done(std::size_t t, std::int64_t us) {
    gathering_ = false;
    auto it = in_set_.find(t);
    if (it == in_set_.end()) {  // on one rank nothing moves
      ++states_[t].occurrences;
      return;
    }
    const std::size_t number = it->second;
    in_set_.erase(it);
    Part& part = parts_[number];
    const TensorState& s = states_[t];
    TimelineReduction& r = part.reduction;
    if (part.ended == 0) {
      r.begin = s.begun;
      r.asked = r.first_asked = s.asked;
    }
    if (s.asked >= 0) r.first_asked = std::min(r.first_asked, s.asked);
    r.begin = std::min(r.begin, s.begun);
    r.asked = std::max(r.asked, s.asked);
    r.end = std::max(r.end, us);
    for (std::size_t k = 0; k < s.activities.size(); ++k) {
      const TimelineActivity& a = s.activities[k];
      auto [at, fresh] = part.activities.try_emplace(a.name, r.activities.size());
      if (fresh) {
        r.activities.push_back(a);
        continue;
      }
      TimelineActivity& same = r.activities[at->second];
      same.begin = std::min(same.begin, a.begin);
      same.end = std::max(same.end, a.end);
    }
    part.step = std::max(part.step, states_[t].occurrences++);
    if (++part.ended < sets_[number].size()) return;
    r.tensors = sets_[number];
    if (r.asked < 0) r.asked = r.first_asked = r.begin;
    if (by_step_.size() <= part.step) by_step_.resize(part.step + 1);
    by_step_[part.step].push_back(std::move(r));
    parts_.erase(number);
  }

  void finish() {
    if (out_.tensors.empty())
      throw InputError{file_, "names no tensor: is it Horovod's timeline, of rank 0?"};
    // Others than the model's: those that are reduced more or less often.
    std::map<std::size_t, std::size_t> often;
    for (const TensorState& s : states_)
      if (s.occurrences > 0) ++often[s.occurrences];
    if (often.empty()) throw InputError{file_, "has no all-reduce that ended"};
    std::size_t steps = 0, most = 0;
    for (const auto& [count, tensors] : often)
      if (tensors >= most) most = tensors, steps = count;
    std::size_t others = 0;
    std::vector<bool> left_out(states_.size());
    for (std::size_t t = 0; t < states_.size(); ++t) {
      const std::size_t n = states_[t].occurrences;
      // The last step may have been cut off.
      if (n == 0 || n == steps || n + 1 == steps || n == steps + 1) continue;
      left_out[t] = true;
      ++others;
    }
    if (others > 0)
      out_.notes.push_back(std::to_string(others) + " tensors are not reduced in each of the " +
                           std::to_string(steps) + " steps, and are left out");
    by_step_.resize(std::min(by_step_.size(), steps));
    for (auto& step : by_step_) {
      std::erase_if(step, [&](const TimelineReduction& r) { return left_out[r.tensors.front()]; });
      if (step.empty()) break;
      out_.steps.push_back(std::move(step));
    }
    if (out_.steps.empty())
      throw InputError{file_,
                       "nothing moves between ranks in it (one rank?): there is no step to tell"};
    if (!lasts_.empty()) out_.last_rank.assign(out_.ranks, 0);
    for (const auto& [rank, count] : lasts_) out_.last_rank[rank] = count;
    if (out_.cycles.empty())
      out_.notes.push_back("cycles are not marked (HOROVOD_TIMELINE_MARK_CYCLES=1 does)");
  }

  struct Part {
    TimelineReduction reduction;
    std::map<std::string, std::size_t> activities;  // of the reduction's, by name
    std::size_t ended = 0;
    std::size_t step = 0;
  };
  std::string file_;
  HorovodTimeline out_;
  std::map<std::int64_t, std::size_t> numbers_;  // by pid
  std::vector<TensorState> states_;
  bool gathering_ = false;  // the last set is still being joined
  std::vector<std::vector<std::size_t>> sets_;
  std::map<std::size_t, std::size_t> in_set_;  // by tensor
  std::map<std::size_t, Part> parts_;          // by set
  std::vector<std::vector<TimelineReduction>> by_step_;
  std::map<std::int64_t, std::int64_t> lasts_;
};

// The operation of a Program that an activity is; "" = none. `scattered`: among hosts only, as a
// reduce-scatter of the same reduction has run on each.
std::string word_of_activity(const std::string& name, bool scattered) {
  if (name == "MEMCPY_IN_FUSION_BUFFER") return "copy_in/fused.";
  if (name == "MEMCPY_OUT_FUSION_BUFFER") return "copy_out/fused.";
  if (name == "MEMCPY_IN_HOST_BUFFER") return "to_host/fused.";
  if (name == "MEMCPY_OUT_HOST_BUFFER") return "to_device/fused.";
  if (name == "NCCL_REDUCESCATTER") return "reduce_scatter/fused.";
  if (name == "NCCL_ALLGATHER") return "allgather/fused.";
  if (name == "NCCL_REDUCE") return "reduce/fused.";
  if (name == "NCCL_BCAST") return "broadcast/fused.";
  if (name.ends_with("_ALLREDUCE"))
    return scattered ? "allreduce_across/fused." : "allreduce/fused.";
  return "";
}

}  // namespace

HorovodTimeline read_horovod_timeline(const std::string& text, const std::string& file) {
  // Before 0.21, and where the job was killed, the list is not closed.
  std::string whole = text;
  while (!whole.empty() && (whole.back() == '\n' || whole.back() == ' ' || whole.back() == ','))
    whole.pop_back();
  if (!whole.empty() && whole.front() == '[' && whole.back() == '}') whole += "]";
  return TimelineReader(file).read(parse_json(whole, file));
}

Run run_of(const HorovodTimeline& timeline) {
  Run run;
  run.kind = RunKind::Measured;
  run.evidence = EvidenceClass::System;
  for (const HorovodTimeline::Tensor& t : timeline.tensors) run.tensor_names.push_back(t.name);
  std::int64_t from = timeline.steps.front().front().first_asked;
  for (const TimelineReduction& r : timeline.steps.front()) from = std::min(from, r.first_asked);
  for (std::size_t k = 0; k < timeline.steps.size(); ++k) {
    std::int64_t end = from;
    std::uint32_t number = 0;
    for (const TimelineReduction& r : timeline.steps[k]) {
      end = std::max(end, r.end);
      std::int64_t bytes = 0;
      std::vector<TensorIndex> tensors;
      for (std::size_t t : r.tensors) {
        tensors.push_back(static_cast<TensorIndex>(t));
        const auto type = parse_dtype(timeline.tensors[t].dtype);
        bytes += timeline.tensors[t].elements * (type ? element_size(*type) : 0);
      }
      const bool scattered =
          std::any_of(r.activities.begin(), r.activities.end(),
                      [](const TimelineActivity& a) { return a.name == "NCCL_REDUCESCATTER"; });
      for (const TimelineActivity& a : r.activities) {
        const std::string word = word_of_activity(a.name, scattered);
        if (word.empty() || a.end < a.begin) continue;
        Span s;
        s.step = static_cast<int>(k);
        s.op = word + std::to_string(number);
        s.kind = *systems::kind_of(s.op);
        const bool on_host = !a.name.starts_with("NCCL_") && !is_collective(s.kind);
        s.lane = is_collective(s.kind) ? Lane::Comm : on_host ? Lane::Worker : Lane::Comm;
        s.tensors = is_collective(s.kind) ? tensors : std::vector<TensorIndex>{};
        s.bytes = bytes;
        s.begin = {(a.begin - from) * kMicrosecond.ps};
        s.end = {(a.end - from) * kMicrosecond.ps};
        s.ready = {(is_collective(s.kind) ? std::min(r.asked, a.begin) - from : a.begin - from) *
                   kMicrosecond.ps};
        if (is_collective(s.kind)) s.algorithm = a.name;
        run.spans.push_back(std::move(s));
      }
      ++number;
    }
    run.steps.push_back(
        {k == 0 ? StepKind::First : StepKind::Steady, Duration{(end - from) * kMicrosecond.ps}});
    from = end;
  }
  return run;
}

}  // namespace ddpsim::io
