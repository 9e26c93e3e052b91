#include "sim/io/codecs.h"

namespace ddpsim::io {

OrderedJson write_run(const Run& run) {
  OrderedJson j;
  j["schema"] = "ddpsim.run/1";
  j["kind"] = run.kind == RunKind::Predicted ? "predicted" : "measured";
  j["case"] = {{"key", run.key}};
  j["origin"] = {{"simulator", run.simulator_version}, {"profile", run.profile}, {"fidelity", run.fidelity}};
  j["clock"] = {{"domain", "virtual"}, {"offset_bound_ps", 0}};
  j["steps"] = OrderedJson::array();
  for (const StepRecord& s : run.steps) j["steps"].push_back({{"kind", name_of(s.kind)}, {"duration_ps", s.duration.ps}});
  j["spans"] = OrderedJson::array();
  for (const Span& s : run.spans) {
    OrderedJson span;
    span["step"] = s.step;
    span["class"] = s.actor;
    span["count"] = s.count;
    span["lane"] = name_of(s.lane);
    span["op"] = s.op;
    if (is_communication(s.kind) && !s.algorithm.empty()) {
      span["tensors"] = s.tensors;
      span["bytes"] = s.bytes;
      span["algorithm"] = s.algorithm;
    }
    span["ready_ps"] = (s.ready - run.spans_from).ps;
    span["begin_ps"] = (s.begin - run.spans_from).ps;
    span["end_ps"] = (s.end - run.spans_from).ps;
    j["spans"].push_back(std::move(span));
  }
  return j;
}

OrderedJson write_program(const Program& p) {
  OrderedJson j;
  j["steps"] = OrderedJson::array();
  auto add = [&](const StepProgram& s) {
    OrderedJson step;
    step["kind"] = name_of(s.kind);
    step["ops"] = OrderedJson::array();
    for (std::uint32_t i = 0; i < s.ops.size(); ++i) {
      OrderedJson op;
      op["lane"] = name_of(s.ops[i].lane);
      op["op"] = name_of(p, s, i);
      op["tensors"] = OrderedJson::array();
      for (TensorIndex t : tensors_of(p, s, i)) op["tensors"].push_back(p.tensor_names[t]);
      op["bytes"] = s.ops[i].bytes;
      std::vector<std::string> waits;
      for (std::uint32_t d : deps_of(s, i)) waits.push_back(name_of(p, s, d));
      std::sort(waits.begin(), waits.end());
      op["waits_for"] = waits;
      step["ops"].push_back(std::move(op));
    }
    j["steps"].push_back(std::move(step));
  };
  for (const StepProgram& s : p.warmup) add(s);
  add(p.steady);
  return j;
}

}  // namespace ddpsim::io
