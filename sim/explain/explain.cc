#include "sim/explain/explain.h"

#include <algorithm>

#include "sim/predict/given_program.h"

namespace ddpsim::predict {
namespace {

class Explainer {
 public:
  Explainer(const Question& q, const Options& options)
      : q_(q), options_(keeping(options)), played_(q, options_) {}

  Explanation run() {
    Explanation out;
    out.step = played_.period();
    out.counted = played_.counted();
    out.last = played_.length();
    out.actor = played_.span(played_.last_class(), 0).actor;
    out.path = critical_path(played_, q_.scenario.plan.system);
    expose(out);
    Tenths tenths = tenths_of(played_, q_, options_);
    out.deciles = std::move(tenths.of);
    out.link = std::move(tenths.link);
    ask_what_helps(out);
    out.words.push_back(path_in_words(out.path));
    return out;
  }

 private:
  // With communicators of its own, where the question brings none.
  Options keeping(Options options) {
    if (!options.known) options.known = &own_;
    return options;
  }

  void expose(Explanation& out) const {
    const analysis::Summary& summary = played_.summary();
    out.exposed = summary.exposed_communication;
    auto times = summary.buckets.begin();
    for (std::uint32_t i = 0; i < played_.ops(); ++i)
      out.reduces = out.reduces && (!carries_tensors(played_.op(i).kind) ||
                                    played_.op(i).kind.operation == Operation::AllReduce);
    // Where there are others, a bucket's name says which of its collectives it is.
    for (std::uint32_t i = 0; i < played_.ops(); ++i) {
      if (!carries_tensors(played_.op(i).kind)) continue;
      std::string name = out.reduces && carries_bucket(played_.op(i).kind)
                             ? "bucket " + std::to_string(played_.op(i).subject)
                             : name_of(played_.program(), played_.program().steady, i);
      out.buckets.push_back(
          {name, times->bytes, times->ready, times->begin, times->end, times->exposed});
      ++times;
    }
    std::size_t other = 0;
    for (std::uint32_t i = 0; i < played_.ops() && other < summary.others.size(); ++i) {
      if (!is_communication(played_.op(i).kind) || carries_tensors(played_.op(i).kind)) continue;
      if (summary.others[other].exposed.ps > 0)
        out.others.push_back({name_of(played_.program(), played_.program().steady, i),
                              summary.others[other].exposed});
      ++other;
    }
    for (; other < summary.others.size(); ++other)  // of another step than the last
      if (summary.others[other].exposed.ps > 0) out.others.push_back(summary.others[other]);
  }

  void ask_what_helps(Explanation& out) {
    OtherFabrics kept;
    out.diagnosis = diagnose(q_, out.step, options_, &kept);
    const Sensitivity& first = out.diagnosis.sensitivity.front();
    if (!out.diagnosis.worth_saying(first.step)) return;
    const bool other_fabric =
        first.resource == Resource::Network || first.resource == Resource::Inside;
    for (double factor : {1.25, 1.5, 2.0, 3.0, 4.0, 8.0}) {
      Hardware h = faster(q_, first.resource, factor);
      std::optional<OtherFabric> other;
      OtherFabrics fresh;
      Options options = options_;
      if (other_fabric) options.known = &other.emplace(h.cluster).known;
      std::optional<Program> program;
      if (options_.program)
        options.program = &program.emplace(faster(*options_.program, first.resource, factor));
      const topology::Fabric& fabric = other ? other->fabric : q_.fabric;
      const Question asked{h.workload, fabric, h.profile, q_.scenario};
      const Resource now = sensitivities(asked, options, other ? fresh : kept).front().resource;
      if (now == first.resource) continue;
      out.moves_at = factor;
      out.moves_to = now;
      return;
    }
  }

  const Question& q_;
  Communicators own_;
  Options options_;
  PlayedStep played_;
};

}  // namespace

Explanation explain(const Question& q, const Options& options) {
  return Explainer(q, options).run();
}

}  // namespace ddpsim::predict
